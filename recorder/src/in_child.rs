//! For tests: what is done in a child after fork.
//!
//! # Safety
//!
//! The child has the calling thread alone, and ends when that is done. What other threads of the tests were at is half done in it.
#![allow(unsafe_code)]

/// Whether it is so in a child. May not allocate. One that panics would end with its only thread, as if all were well.
pub(crate) fn in_child(is_so: impl FnOnce() -> bool) -> bool {
    // SAFETY: as above.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_so = std::panic::catch_unwind(std::panic::AssertUnwindSafe(is_so));
        let status = i32::from(!is_so.unwrap_or(false));
        // SAFETY: ends the child.
        unsafe { libc::_exit(status) };
    }
    let mut status = -1;
    // SAFETY: waits for the child that was made here.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}
