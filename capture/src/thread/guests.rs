//! Threads without storage of their own: made by `clone` and not by the C library, they share their creator's, or have some that the C library did not lay out. Each has a state that is
//! found by its number alone, and tells nobody of its end.
//!
//! What such a thread allocates counts as that of the thread whose storage it uses: a hook does not ask the kernel where it is.
//!
//! Called from: handlers, with their signal masked; a new thread that has all signals blocked; the recorder's threads retire. May: make system calls, map memory, write the store.
//! May not: allocate, lock, touch thread-local storage.

use super::{Current, ThreadState, each, numbered, states};
use crate::clock;
use crate::region;
use crate::syscall::{self, clock_ns, thread_cpu_clock};
use core::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the C library's control block of a thread, and some more.
const CONTROL_BLOCK: u64 = 8 << 10;

/// Whether there was any.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether the calling thread, whose number this is, has storage that the C library laid out for it.
///
/// glibc tells the kernel of each thread where in its control block it notes mutexes that outlive their owners (`set_robust_list`). Of a thread that it did not make the kernel has no such
/// address, even where the thread register points to another's block.
pub(super) fn has_own_storage(tid: u32) -> bool {
    // The first thread has it, and musl tells the kernel only when a thread takes such a mutex.
    if cfg!(target_env = "musl") || tid == syscall::getpid() {
        return true;
    }
    match (syscall::robust_list(), syscall::thread_pointer()) {
        (Ok(list), Ok(block)) => list.wrapping_sub(block) < CONTROL_BLOCK,
        // The kernel does not tell.
        _ => true,
    }
}

/// The calling thread, which has no state yet, and none in its storage.
pub(super) fn registered(tid: u32) -> Current {
    let state = region::header().and_then(|_| ThreadState::begin(&syscall::thread_name(), tid, true));
    let Some(state) = state else { return Current::Unregistered };
    ANY.store(true, Ordering::Release);
    super::announce(state);
    Current::Known(state)
}

/// The number was one's that ended, if it is there under it, or that has storage after all: the calling thread gets a state of the usual kind.
pub(super) fn replaced(tid: u32) {
    if ANY.load(Ordering::Acquire)
        && let Some(state) = numbered::find(tid).filter(|state| state.is_guest())
    {
        states::retire(state);
    }
}

/// Retires those that are not listed any more, and have no clock.
pub fn retire_ended_guests(is_listed: impl Fn(u32) -> bool) {
    if !ANY.load(Ordering::Acquire) || clock::thread_cpu_ns() == 0 {
        return;
    }
    each(|state| {
        let tid = state.tid();
        if state.is_guest() && !is_listed(tid) && clock_ns(thread_cpu_clock(tid)) == 0 {
            states::retire(state);
        }
    });
}

/// Retires the calling thread, which ends.
pub fn retire_guest(state: &ThreadState) {
    state.rename(&syscall::thread_name());
    states::retire(state);
}
