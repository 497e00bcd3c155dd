//! The rights of the recorder's threads: those of the host's thread, where the host has one.
//!
//! A thread that takes or gives up capabilities does so alone (`capset`, `PR_SET_KEEPCAPS`), and so does one that changes its ids by the system call itself. The recorder's threads repeat that: they
//! are to keep nothing that the host gave up, and what the host does on all threads later (`setuid`) must have the same result on theirs, or the C library aborts.
//!
//! Called from: a thread of the host that waits; threads of the recorder that look now and then, or were woken. May not: be called in a handler.
//!
//! # Orderings
//!
//! Who sees a number (Acquire) sees the change that it is of (Release).

use crate::lock::Lock;
use crate::{own, resident};
use capture::rights::Change;
use capture::wait::wait_at_most;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How long threads are waited for: those that wait for a tick have it in that time.
const MOST_NS: u64 = 50_000_000;

/// What is to be repeated; `None` when nobody waits for it any more.
static CHANGE: Lock<Option<Change>> = Lock::new(None);
/// How many changes there were.
static NUMBER: AtomicU32 = AtomicU32::new(0);
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Has each thread of the recorder repeat the change; whether each did. They may have different rights if not.
pub(crate) fn repeat_everywhere(change: Change) -> bool {
    *CHANGE.lock() = Some(change);
    IS_REFUSED.store(false, Ordering::Relaxed);
    let number = NUMBER.fetch_add(1, Ordering::AcqRel) + 1;
    resident::wake();
    let have_all = wait_at_most(MOST_NS, || own::have_all_repeated(number));
    // Who comes later does nothing: its rights may have changed otherwise by then.
    *CHANGE.lock() = None;
    have_all && !IS_REFUSED.load(Ordering::Acquire)
}

/// On a thread of the recorder: repeats the change, if there is one that it has not repeated. Whether there was.
pub(crate) fn repeat() -> bool {
    let number = NUMBER.load(Ordering::Acquire);
    if own::repeated() == number {
        return false;
    }
    if let Some(change) = *CHANGE.lock()
        && !change.make()
    {
        IS_REFUSED.store(true, Ordering::Release);
    }
    own::note_repeated(number);
    true
}

/// In a child after fork.
///
/// # Safety
/// The process has one thread, which does not use this module at the moment.
#[allow(unsafe_code)]
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the function's own contract.
    unsafe { CHANGE.take_in_child() };
}

/// Number of the last change.
pub(crate) fn number() -> u32 {
    NUMBER.load(Ordering::Acquire)
}
