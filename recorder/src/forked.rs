//! A child after fork: what it has of its parent's recorder, and shall not keep.
//!
//! Called from: the C library's fork hook, on the child's only thread. May not: take a lock that a thread of the parent may have held.
//!
//! # Safety
//!
//! A lock is taken away from a thread that does not exist here.
#![allow(unsafe_code)]

use crate::{engine, own, registry, server};
use parking_lot::Mutex;

/// Forgets the parent's sessions, threads, files and sockets. The child's own server and recordings begin from nothing.
///
/// # Safety
/// The process has one thread, which uses none of these modules at the moment.
pub(crate) unsafe fn reset() {
    registry::reset_in_child();
    // SAFETY: the function's own contract.
    unsafe {
        engine::reset_in_child();
        own::reset_in_child();
        server::reset_in_child();
    }
}

/// Frees a lock of the parent and takes what it guarded; `None` if a thread of the parent was at it, and it may be half written. Whoever takes it forgets it: a hook gives no memory back.
///
/// # Safety
/// The process has one thread, which does not hold the lock.
pub(crate) unsafe fn take<T: Default>(lock: &Mutex<T>) -> Option<T> {
    let was_held = lock.is_locked();
    if was_held {
        // SAFETY: as the function's contract says, the thread that holds it does not exist here.
        unsafe { lock.force_unlock() };
    }
    let content = std::mem::take(&mut *lock.lock());
    if was_held {
        std::mem::forget(content);
        return None;
    }
    Some(content)
}
