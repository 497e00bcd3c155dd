//! The dynamic linker's list of objects, and its search for names.
//!
//! Called from: the start of the process, when nobody opens or closes objects.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char};

/// What the objects before all others have under a name; 0: nothing.
pub(crate) fn default(name: &CStr) -> u64 {
    // SAFETY: the name is zero-terminated.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as u64 }
}

/// What those behind this library have.
pub(crate) fn next(name: &CStr) -> u64 {
    // SAFETY: the name is zero-terminated.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as u64 }
}

/// What the dynamic linker tells debuggers, and its list of objects. 0: unknown.
pub(crate) fn list() -> (u64, u64) {
    let linker = default(c"_r_debug");
    // SAFETY: glibc's structure for debuggers: a version, then the list of objects.
    (linker, if linker == 0 { 0 } else { unsafe { *(linker as *const u64).add(1) } })
}

/// An object in the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linked {
    /// Where it was loaded, and the next one above.
    pub(crate) loaded: u64,
    above: u64,
    name: *const c_char,
}

impl Linked {
    /// The object that an address lies in: the nearest one below.
    pub(crate) fn of(list: u64, address: u64) -> Option<Self> {
        let (mut object, mut nearest, mut above) = (list as *const u64, None, u64::MAX);
        while !object.is_null() {
            // SAFETY: the linker's list of objects begins with the public fields: where it was loaded, its name, ..., the next one.
            let [loaded, name, _, next] = unsafe { object.cast::<[u64; 4]>().read() };
            if loaded > address {
                above = above.min(loaded);
            } else if nearest.is_none_or(|nearest: Self| nearest.loaded <= loaded) {
                nearest = Some(Self { loaded, above: 0, name: name as *const c_char });
            }
            object = next as *const u64;
        }
        nearest.map(|nearest| Self { above, ..nearest })
    }

    /// Whether an address lies in it, or behind it and before the next one.
    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.loaded..self.above).contains(&address)
    }

    /// Whether it is the C library, the linker or the compiler's own library.
    pub(crate) fn is_system(&self) -> bool {
        const NAMES: [&[u8]; 5] = [b"libc.so.", b"ld-linux-", b"libgcc_s.so.", b"libpthread.so.", b"libdl.so."];
        if self.name.is_null() {
            return false;
        }
        // SAFETY: the linker's names end with a zero.
        let path = unsafe { CStr::from_ptr(self.name) }.to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        NAMES.iter().any(|name| file.starts_with(name))
    }
}

/// Whether a function is the C library's.
pub fn is_in_libc(function: u64) -> bool {
    let (_, list) = list();
    Linked::of(list, next(c"__libc_start_main")).is_some_and(|libc| libc.contains(function))
}
