//! The recorder's own heap, for what Rust's library takes by C's names: it has handles of threads from the system's allocator, whatever the program's own. The linker gives these names to the functions here
//! where this library uses them itself (`--wrap`, in `build.rs`); what it exports is unchanged.
//!
//! The C library's `realpath` would take memory that Rust's library gives back by `free`: it gets some of this heap, too.
//!
//! # Safety
//! As the C functions. A block has its size and its alignment in the two words before it, behind padding of as many bytes as it is aligned to.

use crate::HEAP;
use core::alloc::{GlobalAlloc as _, Layout};
use core::arch::global_asm;
use core::ffi::{c_char, c_int};

const LEAST: usize = 16;

unsafe fn take(bytes: usize, alignment: usize) -> *mut u8 {
    let Some(Ok(layout)) = bytes.checked_add(alignment).map(|total| Layout::from_size_align(total, alignment)) else {
        return core::ptr::null_mut();
    };
    // SAFETY: the layout is not empty, and the block has room for the two words in front.
    unsafe {
        let start = HEAP.alloc(layout);
        if start.is_null() {
            return start;
        }
        let block = start.add(alignment);
        block.cast::<[usize; 2]>().sub(1).write([bytes, alignment]);
        block
    }
}

unsafe extern "C" fn malloc(bytes: usize) -> *mut u8 {
    // SAFETY: as the C function.
    unsafe { take(bytes, LEAST) }
}

unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut u8 {
    let Some(bytes) = count.checked_mul(bytes) else { return core::ptr::null_mut() };
    // SAFETY: as the C function; a block is written as far as it goes.
    unsafe {
        let block = take(bytes, LEAST);
        if !block.is_null() {
            block.write_bytes(0, bytes);
        }
        block
    }
}

unsafe extern "C" fn posix_memalign(to: *mut *mut u8, alignment: usize, bytes: usize) -> c_int {
    // SAFETY: as the C function.
    let block = unsafe { take(bytes, alignment.max(LEAST)) };
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: as the C function.
    unsafe { to.write(block) };
    0
}

unsafe extern "C" fn realloc(old: *mut u8, bytes: usize) -> *mut u8 {
    // SAFETY: as the C function; both blocks have as many bytes.
    unsafe {
        let new = take(bytes, LEAST);
        if !new.is_null() && !old.is_null() {
            let [had, _] = old.cast::<[usize; 2]>().sub(1).read();
            core::ptr::copy_nonoverlapping(old, new, had.min(bytes));
            free(old);
        }
        new
    }
}

unsafe extern "C" fn free(block: *mut u8) {
    if block.is_null() {
        return;
    }
    // SAFETY: as the C function: `take` wrote the two words.
    unsafe {
        let [bytes, alignment] = block.cast::<[usize; 2]>().sub(1).read();
        HEAP.dealloc(block.sub(alignment), Layout::from_size_align_unchecked(bytes + alignment, alignment));
    }
}

unsafe extern "C" {
    /// The C library's function.
    fn __real_realpath(path: *const c_char, to: *mut c_char) -> *mut c_char;
}

unsafe extern "C" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    if !to.is_null() {
        // SAFETY: as the C function.
        return unsafe { __real_realpath(path, to) };
    }
    // SAFETY: as the C function, which writes no more.
    unsafe {
        let room = take(libc::PATH_MAX as usize, LEAST);
        let found = if room.is_null() { room.cast() } else { __real_realpath(path, room.cast()) };
        if found.is_null() {
            free(room);
        }
        found
    }
}

/// Defines the linker's name for a function.
macro_rules! wrap {
    ($($name:ident)*) => {
        $(global_asm!(
            concat!(".globl __wrap_", stringify!($name)),
            concat!(".hidden __wrap_", stringify!($name)),
            concat!("__wrap_", stringify!($name), ":"),
            "jmp {function}",
            function = sym $name,
        );)*
    };
}

wrap!(malloc calloc posix_memalign realloc free realpath);
