//! Notices objects that the application opened and closed, where nobody stands in front of `dlclose`.
//!
//! Called from: the recorder's own threads, at the start of a recording and while one samples time. The preload library sees `dlclose` itself.
//!
//! # Safety
//! The dynamic linker is asked for two of its counters; it holds its lock while it answers, which no handler and no hook waits for.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

/// Objects opened and closed so far, when we looked last.
static OPENED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// Asks for the list of mappings to be read anew if an object was opened or closed since the last call.
pub(crate) fn notice_changes() {
    extern "C" fn first(info: *mut libc::dl_phdr_info, size: usize, counts: *mut libc::c_void) -> libc::c_int {
        // Older C libraries pass a structure that ends before the counters.
        if size >= size_of::<libc::dl_phdr_info>() {
            // SAFETY: the linker passes a whole description, and our own pointer.
            unsafe { *counts.cast::<[u64; 2]>() = [(*info).dlpi_adds, (*info).dlpi_subs] };
        }
        1
    }
    let mut counts = [0_u64; 2];
    // SAFETY: the callback has the type that is asked for, and the pointer lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counts).cast()) };
    let [opened, closed] = counts;
    if CLOSED.swap(closed, Ordering::AcqRel) != closed {
        capture::modules::mark_stale();
        capture::modules::request_refresh();
    }
    if OPENED.swap(opened, Ordering::AcqRel) != opened {
        capture::modules::request_refresh();
    }
}
