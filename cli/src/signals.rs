//! Signals that reach this process while the command runs.
//!
//! What somebody sends to this process is meant for the command, so it is passed on. What the terminal sends (Ctrl-C, Ctrl-Z, a
//! changed window) has gone to the command as well, so it is not. Either way the recording ends with the command, and its
//! profile is written.

use nix::sys::signal::{SigEvent, SigevNotify};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::signal::*;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// End this process if they come once the command is gone.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGQUIT];
const PASSED_ON: [i32; 9] = [SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP];

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

/// Receives signals from its creation on. When dropped, those that end a process do so again.
#[derive(Debug)]
pub(crate) struct Relay {
    signals: SignalsInfo<WithOrigin>,
    done: Arc<AtomicBool>,
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
        // The end of a child is noticed even if this process was told to ignore it.
        let received = PASSED_ON.into_iter().filter(is_received).chain([SIGCHLD, SIGALRM]);
        Ok(Self { signals: SignalsInfo::new(received)?, done })
    }

    /// Passes signals on until the child has ended, or so much time is over: `None`.
    pub(crate) fn wait(&mut self, child: &mut Child, at_most: Option<Duration>) -> io::Result<Option<ExitStatus>> {
        let pid = Pid::from_child(child);
        let begun = Instant::now();
        let _alarm = at_most.map(alarm_in).transpose()?;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if at_most.is_some_and(|most| begun.elapsed() >= most) {
                return Ok(None);
            }
            for origin in self.signals.wait() {
                react(&origin, pid);
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
    }
}

/// A signal to this process by then; none once it is dropped.
fn alarm_in(time: Duration) -> io::Result<Timer> {
    let signal = SigevNotify::SigevSignal { signal: nix::sys::signal::SIGALRM, si_value: 0 };
    let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(signal))?;
    // Zero would be no alarm at all.
    let time = TimeSpec::from_duration(time.max(Duration::from_nanos(1)));
    timer.set(Expiration::OneShot(time), TimerSetTimeFlags::empty())?;
    Ok(timer)
}

fn react(origin: &Origin, child: Pid) {
    let Some(signal) = Signal::from_named_raw(origin.signal) else { return };
    if matches!(signal, Signal::CHILD | Signal::ALARM) {
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
