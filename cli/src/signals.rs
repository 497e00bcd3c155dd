//! Signals that reach this process while the command runs.
//!
//! What somebody sends to this process is meant for the command, so it is passed on. What the terminal sends (Ctrl-C, Ctrl-Z, a
//! changed window) has gone to the command as well, so it is not. Either way the recording ends with the command, and its
//! profile is written.

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::signal::*;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// End this process if they come once the command is gone.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGQUIT];
const PASSED_ON: [i32; 10] = [SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP];

/// A flag that the first signal to end raises, which then ends nothing; the next one ends this process as ever. One that this process was told to ignore stays ignored.
pub(crate) fn asked_to_end() -> io::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    let ignored = ignored();
    for signal in [SIGINT, SIGTERM].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0) {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&asked))?;
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    Ok(asked)
}

/// Receives signals from its creation on, blocked or not. When dropped, those that end a process do so again, and what was blocked is blocked.
#[derive(Debug)]
pub(crate) struct Relay {
    signals: SignalDelivery<UnixStream, WithOrigin>,
    done: Arc<AtomicBool>,
    received: SigSet,
    /// What this process was started with.
    blocked: SigSet,
}

impl Relay {
    /// Begins to receive. A signal that this process was told to ignore (`nohup`) stays ignored, here and in the command.
    pub(crate) fn start() -> io::Result<Self> {
        let ignored = ignored();
        let is_received = |signal: &i32| ignored & (1 << (signal - 1)) == 0;
        let done = Arc::new(AtomicBool::new(false));
        for signal in ENDING.into_iter().filter(is_received) {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&done))?;
        }
        // The end of a child is noticed even if this process was told to ignore it: the kernel would forget how it ended. The command then finds SIGCHLD at its default.
        let received: Vec<i32> = PASSED_ON.into_iter().filter(is_received).chain([SIGCHLD]).collect();
        let (read, write) = UnixStream::pair()?;
        let signals = SignalDelivery::with_pipe(read, write, WithOrigin::default(), &received)?;
        let received = received.into_iter().filter_map(|signal| signal.try_into().ok()).collect::<SigSet>();
        // Who started this process may have blocked them. Threads that are made later have the mask of this one.
        let blocked = received.thread_swap_mask(SigmaskHow::SIG_UNBLOCK)?;
        Ok(Self { signals, done, received, blocked })
    }

    /// Starts the command with the signals blocked that it would find blocked without this process.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.blocked.thread_set_mask()?;
        let child = command.spawn();
        self.received.thread_unblock()?;
        child
    }

    /// Passes signals on until the child has ended, or so much time is over: `None`.
    pub(crate) fn wait(&mut self, child: &mut Child, at_most: Option<Duration>) -> io::Result<Option<ExitStatus>> {
        let pid = Pid::from_child(child);
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            let left = at_most.map(|most| most.saturating_sub(begun.elapsed()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            self.signals.get_read().set_read_timeout(left)?;
            for origin in self.signals.poll_pending(&mut has_come)?.into_iter().flatten() {
                react(&origin, pid);
            }
        }
    }
}

/// Waits for a signal; false if there is none when the time is over, or perhaps none.
fn has_come(wakeups: &mut UnixStream) -> io::Result<bool> {
    match wakeups.read(&mut [0]) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
        Err(e) => Err(e),
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
        let _ = self.blocked.thread_set_mask();
    }
}

fn react(origin: &Origin, child: Pid) {
    let Some(signal) = Signal::from_named_raw(origin.signal) else { return };
    if signal == Signal::CHILD {
        return;
    }
    // A command that signals its parent does not mean itself.
    let from_child = origin.process.is_some_and(|process| process.pid == child.as_raw_nonzero().get());
    if matches!(origin.cause, Cause::Sent(_)) && !from_child {
        let _ = kill_process(child, signal);
    }
    if signal == Signal::TSTP {
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
    }
}

/// The signals that this process ignores, as a mask; the Rust runtime's own SIGPIPE included.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_known() {
        assert_ne!(ignored() & (1 << (SIGPIPE - 1)), 0);
        assert_eq!(ignored() & (1 << (SIGKILL - 1)), 0);
    }
}
