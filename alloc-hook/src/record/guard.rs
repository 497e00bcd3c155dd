//! Entering the recorder, and what a hook leaves behind that a signal handler of the host left by a jump.
#![allow(unsafe_code)]

use crate::live;
use capture::blocked::Blocked;
use capture::thread::{Inside, Mark, ThreadState, stack_pointer};
use core::sync::atomic::Ordering;

/// Enters the recorder, in a hook whose caller has this stack pointer; `None` if the thread is inside already. A hook that was left by a jump is not.
#[inline(always)]
pub(super) fn enter_from<'a>(thread: &'a ThreadState, mark: &'a Mark, sp: u64) -> Option<Inside<'a>> {
    thread.enter(mark).or_else(|| if is_mended(thread, sp) { thread.enter(mark) } else { None })
}

/// The same where the caller's is not at hand. Not where the recorder's own allocations come.
#[inline(always)]
pub(super) fn enter<'a>(thread: &'a ThreadState, mark: &'a Mark) -> Option<Inside<'a>> {
    /// What a hook and its caller are apart at most. Between a hook and what a handler calls the kernel puts at least a kilobyte.
    const APART: u64 = 512;
    enter_from(thread, mark, stack_pointer() + APART)
}

/// Whether a hook that is inside was left by a jump, as seen from a stack pointer; then what it left half done is mended, and none is inside.
#[cold]
#[inline(never)]
pub(super) fn is_mended(thread: &ThreadState, here: u64) -> bool {
    if !thread.was_left(here) {
        return false;
    }
    // SAFETY: it has just said that it was left.
    unsafe { mend(thread) };
    true
}

/// # Safety
/// On the thread itself, of which a hook was left.
unsafe fn mend(thread: &ThreadState) {
    let _blocked = Blocked::new();
    live::recover();
    // SAFETY: as the caller promises.
    unsafe { thread.forget_left() };
    // Its allocation may be known in part.
    thread.last_address.store(1, Ordering::Relaxed);
}

/// The thread ends, and leaves no hook unfinished: a handler can have ended it.
pub(crate) fn thread_ends(thread: &ThreadState) {
    if thread.is_inside() {
        // SAFETY: where a thread's last destructors run, its hooks are gone.
        unsafe { mend(thread) };
    }
}
