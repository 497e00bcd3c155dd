//! Memory for calls that are not to reach the next allocator.
//!
//! Those that arrive while it is being looked up: `dlsym` itself may allocate. What they get is handed out once and never taken back: a handful of small strings in the life of a process.
//!
//! And those of the recorder's own threads, for which the C library notes what is to be done at their end. The next allocator may be one for programs of a single thread, as that of graphviz's `gvpr`, and
//! the program may have no other. Then what the dynamic linker allocates for such a thread comes from here, too. That may be another thread's one day: from then on every block is looked at when it is
//! given back (`fast`).
#![allow(unsafe_code)]

use crate::{fast, next};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes that are handed out once; behind them lie the cells.
const ONCE: usize = 16 << 10;
/// Cells for the recorder's threads, each with the size before the block, as others have. A note has 32 bytes, and a thread few of them; its list of thread-local storage has 16 for each object.
const CELLS: usize = 64;
const CELL: usize = 1024;
const BYTES: usize = ONCE + CELLS * CELL;
/// Most that a cell holds.
const MOST: usize = CELL - 16;
/// The C library's notes on a thread, which nobody else gives back.
const NOTE: usize = 32;

#[repr(C, align(4096))]
struct Arena(UnsafeCell<[u8; BYTES]>);

// SAFETY: `USED` and `TAKEN` hand every byte to one caller only.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);
/// Whether other threads may give a cell back.
static SHARED: AtomicBool = AtomicBool::new(false);
/// Cells in use: one bit each.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Zeroed memory, aligned to `alignment` (at most a page); null when used up.
pub(crate) fn allocate(size: usize, alignment: usize) -> *mut u8 {
    let alignment = alignment.max(16);
    let mut at = 0;
    let fits = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        // The size stands in the word before the block.
        at = used.checked_add(16)?.checked_next_multiple_of(alignment)?;
        at.checked_add(size).filter(|end| *end <= ONCE)
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

/// Zeroed memory for the calling thread, which is the recorder's own; null if the next allocator may be asked, or there is none.
#[cold]
#[inline(never)]
pub(crate) fn allocate_own(size: usize) -> *mut u8 {
    let free = |taken: u64| Some(taken | taken.wrapping_add(1)).filter(|more| *more != taken);
    if size > if next::may_be_single() { MOST } else { NOTE } {
        return core::ptr::null_mut();
    }
    if size > NOTE && !SHARED.swap(true, Ordering::SeqCst) {
        fast::rearrange();
    }
    let Ok(taken) = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, free) else {
        return core::ptr::null_mut();
    };
    let cell = taken.trailing_ones() as usize;
    // SAFETY: the cell was taken just now, and lies in the arena.
    unsafe {
        let block = ARENA.0.get().cast::<u8>().add(ONCE + cell * CELL + 16);
        block.write_bytes(0, MOST);
        block.sub(8).cast::<usize>().write(size);
        block
    }
}

/// A block that came from here is given back.
#[cold]
#[inline(never)]
pub(crate) fn release(address: *mut u8) {
    let offset = (address as usize).wrapping_sub(ARENA.0.get() as usize);
    let cell = offset.checked_sub(ONCE).map(|offset| offset / CELL);
    if let Some(cell) = cell.filter(|cell| *cell < CELLS) {
        TAKEN.fetch_and(!(1 << cell), Ordering::Release);
    }
}

/// In a child after fork: the recorder's threads are not here. The C library keeps their stacks, and the lists of thread-local storage with them.
pub(crate) fn reset_in_child() {
    if !SHARED.load(Ordering::Relaxed) {
        TAKEN.store(0, Ordering::Relaxed);
    }
}

/// Whether no block came from here that others than the recorder's threads may have.
pub(crate) fn is_unused() -> bool {
    USED.load(Ordering::Relaxed) == 0 && !SHARED.load(Ordering::SeqCst)
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
