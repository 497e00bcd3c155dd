//! Whether memory is left for what the recorder is about to do.
//!
//! Rust's allocator ends the process where memory is refused, and a recorder may not be the reason for that: under a limit (`RLIMIT_AS`, strict overcommit) a recording is refused, or told with fewer
//! details, before it begins. A control group's limit is not seen here, since the kernel enforces it when memory is touched.
//!
//! # Safety
//!
//! A mapping is made and taken away again that nobody else knows of.
#![allow(unsafe_code)]

use capture::region;

/// What a snapshot, its profile and a written format take, for each byte of the store and altogether: measured at four to eight times the store.
const FOR_EACH_BYTE: usize = 12;
const AT_LEAST: usize = 8 << 20;
/// What inlined functions and lines take while they are looked up: 145 MiB for a debug build with 74 MiB of DWARF.
const FOR_LINES: usize = 256 << 20;

/// Whether a recording can be copied, decoded and written now.
pub(crate) fn for_a_recording() -> bool {
    is_there(AT_LEAST.saturating_add(region::used_bytes().saturating_mul(FOR_EACH_BYTE)))
}

/// Whether a thread can be started now: its stack, the one for its signals, what it allocates at its start.
pub(crate) fn for_a_thread() -> bool {
    is_there(8 << 20)
}

/// Whether lines and inlined functions can be looked up now.
pub(crate) fn for_lines() -> bool {
    is_there(FOR_LINES)
}

/// Asks the kernel for so much, and gives it back untouched.
fn is_there(bytes: usize) -> bool {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice changes nothing that exists.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping that was just made, which nobody uses.
    unsafe { libc::munmap(mapped, bytes) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_is_there_and_everything_is_not() {
        assert!(is_there(1 << 20) && !is_there(usize::MAX >> 1));
    }
}
