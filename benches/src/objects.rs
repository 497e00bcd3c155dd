//! The objects that this process has loaded, as the dynamic linker lists them: independent of the recorder's own list.

use std::ffi::CStr;
use std::ops::Range;
use unwind::build::{Section, find_eh_frame};

/// A loaded object with unwind information.
#[derive(Clone, Debug)]
pub struct Object {
    /// Path of the file; empty for the executable.
    pub path: String,
    /// Address in the process minus address in the file.
    pub bias: u64,
    /// Where its segments lie in the process.
    pub range: Range<u64>,
    /// `.eh_frame_hdr`, and what follows it in its segment.
    pub eh_frame_hdr: Section<'static>,
    /// `.eh_frame`, and what follows it in its segment.
    pub eh_frame: Section<'static>,
}

/// All of them.
pub fn loaded() -> Vec<Object> {
    let mut objects = Vec::new();
    // SAFETY: the callback gets the pointer that is passed here, and only during this call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut objects).cast()) };
    objects
}

extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, objects: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `dl_iterate_phdr` gives a valid description, and passes through the vector from above.
    let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<Object>>()) };
    objects.extend(object(info));
    0
}

fn object(info: &libc::dl_phdr_info) -> Option<Object> {
    // SAFETY: the linker keeps that many program headers there.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let bias = info.dlpi_addr;
    let segments = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(|h| h.p_vaddr..h.p_vaddr + h.p_memsz);
    let to_end_of_segment = |address: u64| {
        let segment = segments().find(|segment| segment.contains(&(address - bias)))?;
        let length = (bias + segment.end - address) as usize;
        // SAFETY: the bytes lie in a loaded read-only segment, and no benchmark unloads anything.
        Some(Section { bytes: unsafe { std::slice::from_raw_parts(address as *const u8, length) }, address })
    };
    let hdr = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
    let eh_frame_hdr = to_end_of_segment(bias + hdr.p_vaddr)?;
    let eh_frame = to_end_of_segment(find_eh_frame(eh_frame_hdr)?)?;
    let start = segments().map(|segment| segment.start).min()?;
    let end = segments().map(|segment| segment.end).max()?;
    // SAFETY: the name is a string of the linker's that lives as long as the object.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned();
    Some(Object { path, bias, range: bias + start..bias + end, eh_frame_hdr, eh_frame })
}
