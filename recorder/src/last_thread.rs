//! The end of a process with its last thread: `main` may leave by `pthread_exit`, and a child that was forked by a thread may have no other than that.
//!
//! The C library ends the process then (`exit(0)`, POSIX), but counts the recorder's threads, which do not end before the process does: it would stay for ever. So the host's last thread does it instead.
//! A thread that ends by the system call alone tells nobody; the kernel ends the process with the last, and the recorder's agent looks now and then whether it is alone.
//!
//! Called from: a thread of the host that ends and is no longer registered; the agent. May: allocate, wait for a moment. May not: be called in a handler.
//!
//! # Orderings
//!
//! Numbers are taken to belong together if those that were read before and after them are the same (SeqCst).

use crate::own;
use crate::sampler::tasks::{self, exists};
use capture::syscall::{self, File};
use capture::{clock, thread, wait};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Threads that end and are here.
static ENDING: AtomicU32 = AtomicU32::new(0);
/// Whether one of them ends the process.
static IS_FOUND: AtomicBool = AtomicBool::new(false);

/// How long threads are waited for that have left here, or are the recorder's and end.
const MOST_NS: u64 = 100_000_000;

/// The calling thread ends. If it is the host's last, so does the process.
pub(crate) fn thread_ends() {
    if own::has_threads() && is_last() {
        // What the C library would do on this thread, a moment later.
        std::process::exit(0);
    }
}

/// How often the agent looks.
pub(crate) const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// On the agent, as often as it likes: ends the process if no thread of the host is left in it, with the status that the first one left.
pub(crate) fn end_if_alone() {
    static LOOKED_NS: AtomicU64 = AtomicU64::new(0);
    let now_ns = clock::monotonic_ns();
    let since_ns = now_ns.saturating_sub(LOOKED_NS.load(Ordering::Relaxed));
    if u128::from(since_ns) < LOOKS_EVERY.as_nanos() / 2 {
        return;
    }
    LOOKED_NS.store(now_ns, Ordering::Relaxed);
    let before = own::started_and_ended();
    if let Some(Threads { all, is_first_gone: true, status }) = threads()
        && all == 1 + own_threads()
        && before.is_some()
        && own::started_and_ended() == before
    {
        crate::preload::exits();
        // As wait(2) has it: the first thread ended by a call, since a signal would have ended all.
        syscall::exit_group(status >> 8 & 0xff);
    }
}

/// In a child after fork.
pub(crate) fn reset_in_child() {
    ENDING.store(0, Ordering::Relaxed);
    IS_FOUND.store(false, Ordering::Relaxed);
}

fn is_last() -> bool {
    let mut is_last = false;
    ENDING.fetch_add(1, Ordering::SeqCst);
    wait::wait_at_most(MOST_NS, || {
        if has_registered() {
            return true;
        }
        let all = are_all_known() == Some(true);
        // Of several that end at once, one is the last.
        is_last = all && !IS_FOUND.swap(true, Ordering::SeqCst);
        all
    });
    ENDING.fetch_sub(1, Ordering::SeqCst);
    is_last
}

/// Whether the host has a thread that is registered. Those that `clone` made keep no process.
fn has_registered() -> bool {
    let mut has = false;
    thread::each(|thread| has = has || !thread.is_guest() && exists(thread.tid()));
    has
}

/// Whether the kernel's threads of this process are those that end here, the first, if that ended before, the recorder's, and such as keep no process; `None`: they changed meanwhile.
fn are_all_known() -> Option<bool> {
    let known = || {
        let mut guests = 0;
        thread::each(|thread| guests += u32::from(thread.is_guest() && exists(thread.tid())));
        Some((own::started_and_ended()?, ENDING.load(Ordering::SeqCst) + guests + own_threads()))
    };
    let before = known()?;
    let Threads { all, is_first_gone, .. } = threads()?;
    (known()? == before).then_some(all == before.1 + u32::from(is_first_gone))
}

/// How many the recorder has.
fn own_threads() -> u32 {
    own::running().filter(|tid| exists(*tid)).count() as u32
}

/// Whether the calling thread is the host's only one.
pub(crate) fn is_only() -> bool {
    // One of the recorder's that begins is not known yet.
    wait::wait_at_most(MOST_NS, || own::started_and_ended().is_some());
    threads().is_some_and(|threads| threads.all == 1 + own_threads())
}

/// What the kernel has of the process.
#[derive(Debug, PartialEq, Eq)]
struct Threads {
    all: u32,
    /// Whether the first has ended, which the kernel keeps until the process does.
    is_first_gone: bool,
    /// What the first left, as wait(2) gives it.
    status: i32,
}

fn threads() -> Option<Threads> {
    let mut line = [0; 512];
    let length = File::open(b"/proc/self/stat\0", File::READ).ok()?.read(&mut line).ok()?;
    parse(line.get(..length)?)
}

/// Of the line of `stat`: the third word, the twentieth, and the last.
fn parse(line: &[u8]) -> Option<Threads> {
    let mut words = tasks::words(line)?;
    let state = words.next()?;
    let all = words.nth(20 - 4)?.parse().ok()?;
    Some(Threads { all, is_first_gone: state == "Z", status: words.nth(52 - 21)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_by_the_kernels_line() {
        let line = b"4711 (a) b (Z) Z 1 4711 4711 0 -1 4194560 2 0 0 0 1 0 0 0 20 0 7 0 123 0 0 18446744073709551615 \
            0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 1792\n";
        assert_eq!(parse(line), Some(Threads { all: 7, is_first_gone: true, status: 7 << 8 }));
        assert_eq!(parse(b"4711 (a) S 1"), None);
        let (begin, wait) = std::sync::mpsc::channel::<()>();
        let before = threads().unwrap();
        let more = std::thread::spawn(move || wait.recv());
        // Others come and go in this process.
        assert!(!before.is_first_gone && threads().unwrap().all >= 2);
        // The kernel gives no number beyond 2 to the power of 22.
        assert!(exists(capture::syscall::gettid()) && !exists(1 << 22));
        drop(begin);
        let _ = more.join().unwrap();
    }
}
