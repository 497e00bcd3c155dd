//! The objects of this process, as the dynamic linker knows them: notices those that the application opened and closed, where nobody stands in front of `dlclose`, tells how far each lies from
//! where it was linked, and keeps the recorder's own.
//!
//! Called from: the recorder's own threads, at the start of a recording, while one samples time and for a question; [`keep_own`] from a program's first call. The preload library sees `dlclose` itself.
//!
//! # Safety
//! The dynamic linker holds its lock while it answers, which no handler and no hook waits for; what it describes stays until it has answered. The handle of what is
//! kept is never closed.
#![allow(unsafe_code)]

use alloc_hook::thread_end;
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

/// A plugin that carries this code stays when it is closed: signals come and threads run in it from now on.
pub(crate) fn keep_own() {
    if !thread_end::may_close() {
        return;
    }
    // SAFETY: all zero is a value of the type.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is looked for and not followed; the result is written to where it may be.
    let found = unsafe { libc::dladdr(keep_own as *const libc::c_void, &mut info) };
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is the loader's; nothing is loaded that is not there.
    if found != 0 && !unsafe { libc::dlopen(info.dli_fname, flags) }.is_null() {
        thread_end::stays();
    }
}

/// A segment of an object.
pub(crate) struct Loaded {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// What to add to an address that the object was linked with.
    pub(crate) bias: u64,
}

/// The segments of all objects that are loaded.
pub(crate) fn loaded() -> Vec<Loaded> {
    extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, objects: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the linker passes a whole description with its headers, and our own pointer.
        let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<Loaded>>()) };
        // SAFETY: as above.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let segments = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        objects.extend(segments.map(|segment| {
            let start = info.dlpi_addr.wrapping_add(segment.p_vaddr);
            Loaded { start, end: start.wrapping_add(segment.p_memsz), bias: info.dlpi_addr }
        }));
        0
    }
    let mut objects = Vec::new();
    // SAFETY: the callback has the type that is asked for, and the pointer lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut objects).cast()) };
    objects
}
