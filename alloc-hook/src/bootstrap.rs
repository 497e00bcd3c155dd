//! Memory for calls that arrive while the next allocator is being looked up: `dlsym` itself may allocate.
//!
//! Handed out once, never taken back: a handful of small strings in the life of a process.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 16 << 10;

#[repr(C, align(4096))]
struct Arena(UnsafeCell<[u8; BYTES]>);

// SAFETY: `USED` hands every byte to one caller only.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Zeroed memory, aligned to `alignment` (at most a page); null when used up.
pub(crate) fn allocate(size: usize, alignment: usize) -> *mut u8 {
    let alignment = alignment.max(16);
    let mut at = 0;
    let fits = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        // The size stands in the word before the block.
        at = used.checked_add(16)?.checked_next_multiple_of(alignment)?;
        at.checked_add(size).filter(|end| *end <= BYTES)
    });
    if fits.is_err() {
        return core::ptr::null_mut();
    }
    // SAFETY: `at..at + size` and the 16 bytes before lie in the arena and were handed out just now.
    unsafe {
        let block = ARENA.0.get().cast::<u8>().add(at);
        block.sub(8).cast::<usize>().write(size);
        block
    }
}

/// Whether no block came from here.
pub(crate) fn is_unused() -> bool {
    USED.load(Ordering::Relaxed) == 0
}

/// Whether a block came from here.
#[inline]
pub(crate) fn contains(address: *mut u8) -> bool {
    (address as usize).wrapping_sub(ARENA.0.get() as usize) < BYTES
}

/// Bytes that were asked for a block that came from here.
pub(crate) fn size_of(address: *mut u8) -> usize {
    // SAFETY: `allocate` wrote the word.
    unsafe { address.sub(8).cast::<usize>().read() }
}
