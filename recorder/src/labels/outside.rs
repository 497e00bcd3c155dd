//! The recorder that `profrec record` loads into a process has a store of its own: labels are told to it as well.
//!
//! Called from: ordinary code that enters and leaves labels. The two functions are looked for once, by name; where the preload library is not loaded, they are not there.
//!
//! # Safety
//! The preload library of the same version exports functions of these types under these names.
#![allow(unsafe_code)]

use capture::thread::{self, Current};
use capture::{labels, region};
use layout::{Lost, RecordId};
use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// What was in force before a label: the set, below the number of the store.
pub(super) type Before = u64;
/// Nothing was entered.
const NOTHING: Before = u64::MAX;

type Enter = unsafe extern "C" fn(*const u8, usize, *const u8, usize) -> Before;
type Leave = unsafe extern "C" fn(Before);

const ENTER: &CStr = c"profile_recorder_label_enter_v1";
const LEAVE: &CStr = c"profile_recorder_label_leave_v1";

/// The functions of the preload library.
#[derive(Clone, Copy)]
pub(super) struct Outside {
    enter: Enter,
    leave: Leave,
}

/// The preload library's recorder, if it is loaded.
#[inline]
pub(super) fn recorder() -> Option<Outside> {
    static FOUND: OnceLock<Option<Outside>> = OnceLock::new();
    *FOUND.get_or_init(find)
}

#[cold]
fn find() -> Option<Outside> {
    // SAFETY: the names end with zero.
    let [enter, leave] = [ENTER, LEAVE].map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
    if enter.is_null() || leave.is_null() {
        return None;
    }
    // SAFETY: as the module says.
    unsafe {
        Some(Outside {
            enter: std::mem::transmute::<*mut libc::c_void, Enter>(enter),
            leave: std::mem::transmute::<*mut libc::c_void, Leave>(leave),
        })
    }
}

impl Outside {
    pub(super) fn enter(self, key: &str, value: &str) -> Before {
        // SAFETY: the pointers are valid for their lengths during the call.
        unsafe { (self.enter)(key.as_ptr(), key.len(), value.as_ptr(), value.len()) }
    }

    pub(super) fn leave(self, before: Before) {
        // SAFETY: `before` came from `enter`.
        unsafe { (self.leave)(before) };
    }
}

/// Puts the calling thread under one more label; what was in force before.
pub(crate) fn enter_here(key: &[u8], value: &[u8]) -> Before {
    let Some(Current::Known(thread)) = region::header().map(|_| thread::current()) else { return NOTHING };
    let before = thread.label_set();
    match labels::with(before, key, value) {
        Some(set) => thread.labels.store(set.0, Ordering::Relaxed),
        None => region::lose(Lost::LabelsFull, 1, 0),
    }
    u64::from(region::epoch()) << 32 | u64::from(before.0)
}

/// Puts the calling thread under the labels that were in force; nothing in a child after fork, where they were the parent's.
pub(crate) fn leave_here(before: Before) {
    if before == NOTHING {
        return;
    }
    let Current::Known(thread) = thread::current() else { return };
    if before >> 32 == u64::from(region::epoch()) {
        thread.labels.store(RecordId(before as u32).0, Ordering::Relaxed);
    }
}
