//! The process's own account of its CPU time, beside which samples are laid: what they do not explain is shown as `[unsampled]`.
//!
//! Called from: the tick handler, threads that end, the end of the process, snapshots. May: read clocks by raw system calls, write the store's header. May not: allocate, lock.

use capture::{clock, region, syscall};
use core::sync::atomic::{AtomicU64, Ordering};

/// CLOCK_MONOTONIC when a handler noted it last.
static NOTED: AtomicU64 = AtomicU64::new(0);
/// The kernel sums the clocks of all threads, so this is not done at every tick.
const PAUSE_NS: u64 = 50_000_000;

/// Notes the process's CPU time, of which the recorder's own threads used `own_ns`.
pub(crate) fn note(own_ns: u64) {
    let Some(header) = region::header() else { return };
    // After vfork this is the parent's memory, and the clock another's.
    if header.pid.load(Ordering::Relaxed) != syscall::getpid() {
        return;
    }
    let spent = clock::process_cpu_ns().saturating_sub(own_ns);
    header.last_cpu_ns.fetch_max(spent, Ordering::Relaxed);
}

/// The same where nothing may wait: not done in the moment in which a thread of the recorder begins or ends.
pub(super) fn note_at_once() {
    #[cfg(feature = "server")]
    let own_ns = crate::own::spent_at_once_ns();
    #[cfg(not(feature = "server"))]
    let own_ns = Some(0);
    if let Some(own_ns) = own_ns {
        note(own_ns);
    }
}

/// The same in a handler, at most every 50 ms. For a process that records itself from its start.
pub(super) fn note_now_and_then() {
    let now = clock::monotonic_ns();
    let before = NOTED.load(Ordering::Relaxed);
    let is_due = now.saturating_sub(before) >= PAUSE_NS;
    if is_due && NOTED.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        note_at_once();
    }
}
