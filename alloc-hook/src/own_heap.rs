//! The recorder's own heap in a preloaded process: what it allocates never touches the host's allocator.
//!
//! Called from: any thread that runs recorder code, hooks (building a table) included; never from a handler. Power-of-two size classes with free lists behind
//! a lock, cut from mappings of 256 KiB; larger blocks are mappings of their own.
#![allow(unsafe_code)]

use capture::syscall::{map, mm, unmap};
use capture::wait;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

const CLASSES: usize = 14;
/// Smallest class: 16 bytes; largest: 128 KiB.
const SMALLEST_LOG2: u32 = 4;
const SLAB: usize = 256 << 10;
/// Nanoseconds that the lists are waited for. A block with pages of its own is as good.
const LISTS_TAKE_NS: u64 = 50_000_000;

struct Lists {
    /// First free block of each class; its first word points to the next.
    free: [*mut u8; CLASSES],
    slab: *mut u8,
    slab_left: usize,
}

impl Lists {
    const EMPTY: Self = Self { free: [core::ptr::null_mut(); CLASSES], slab: core::ptr::null_mut(), slab_left: 0 };
}

/// A heap of our own, for `#[global_allocator]` of the preload library.
pub struct OwnHeap {
    locked: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are used under the lock alone.
unsafe impl Sync for OwnHeap {}

impl core::fmt::Debug for OwnHeap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OwnHeap")
    }
}

impl Default for OwnHeap {
    fn default() -> Self {
        Self::new()
    }
}

impl OwnHeap {
    /// An empty heap.
    pub const fn new() -> Self {
        Self { locked: AtomicBool::new(false), lists: UnsafeCell::new(Lists::EMPTY) }
    }

    /// In a child after fork: the thread that held the lock is not here, and may have left a list half changed. What was free is given up.
    pub fn reset_in_child(&self) {
        // SAFETY: the child has one thread, and it is here.
        unsafe { *self.lists.get() = Lists::EMPTY };
        self.locked.store(false, Ordering::Release);
    }

    fn class(layout: Layout) -> Option<usize> {
        let size = layout.size().max(layout.align()).max(1 << SMALLEST_LOG2);
        let class = (usize::BITS - (size - 1).leading_zeros()).checked_sub(SMALLEST_LOG2)? as usize;
        (class < CLASSES).then_some(class)
    }

    /// `None` if the lock cannot be had: a signal handler of the host that starts a thread may stand above the very code that holds it.
    fn with<R>(&self, f: impl FnOnce(&mut Lists) -> R) -> Option<R> {
        let take = || self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !wait::wait_at_most(LISTS_TAKE_NS, take) {
            return None;
        }
        // SAFETY: the lock is held.
        let result = f(unsafe { &mut *self.lists.get() });
        self.locked.store(false, Ordering::Release);
        Some(result)
    }
}

// SAFETY: blocks are disjoint, at least as large and as aligned as asked, and stay valid until they are given back.
unsafe impl GlobalAlloc for OwnHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Self::class(layout) else {
            if layout.align() > 4096 {
                return core::ptr::null_mut();
            }
            return pages(layout.size());
        };
        let size = 1_usize << (class as u32 + SMALLEST_LOG2);
        let block = self.with(|lists| {
            if let Some(first) = lists.free.get_mut(class)
                && !first.is_null()
            {
                let block = *first;
                // SAFETY: a free block's first word is ours.
                *first = unsafe { block.cast::<*mut u8>().read() };
                return block;
            }
            // Blocks of a class are aligned to their size, up to a page: slabs begin at a page, and the rest of one that does not fit is left.
            let skip = (lists.slab as usize).wrapping_neg() % size.min(4096);
            if lists.slab_left < size + skip {
                let Ok(slab) = map(SLAB, mm::READ_WRITE, mm::ANONYMOUS, None) else { return core::ptr::null_mut() };
                lists.slab = slab;
                lists.slab_left = SLAB;
                return cut(lists, size, 0);
            }
            cut(lists, size, skip)
        });
        // A block with pages of its own is as good; when it is given back, it goes to the list of its class.
        block.unwrap_or_else(|| pages(size))
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        let Some(class) = Self::class(layout) else {
            // SAFETY: mapped by `alloc` with this length.
            unsafe { unmap(address, layout.size().next_multiple_of(4096)) };
            return;
        };
        // Without the lock, the block is given up.
        let _ = self.with(|lists| {
            if let Some(first) = lists.free.get_mut(class) {
                // SAFETY: the block is ours again and has at least 16 bytes.
                unsafe { address.cast::<*mut u8>().write(*first) };
                *first = address;
            }
        });
    }
}

fn pages(size: usize) -> *mut u8 {
    map(size.next_multiple_of(4096), mm::READ_WRITE, mm::ANONYMOUS, None).unwrap_or(core::ptr::null_mut())
}

fn cut(lists: &mut Lists, size: usize, skip: usize) -> *mut u8 {
    // SAFETY: the slab has at least `skip + size` bytes left.
    let block = unsafe { lists.slab.add(skip) };
    // SAFETY: as above; one past the end is allowed.
    lists.slab = unsafe { block.add(size) };
    lists.slab_left -= size + skip;
    block
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn blocks_are_aligned_disjoint_and_reused() {
        let heap = OwnHeap::new();
        let mut blocks: Vec<(*mut u8, Layout)> = Vec::new();
        for i in 1..2000_usize {
            let layout = Layout::from_size_align(i * 37 % 300_000 + 1, 1 << (i % 13)).unwrap();
            // SAFETY: a valid layout of a size that is not zero.
            let block = unsafe { heap.alloc(layout) };
            assert!(!block.is_null() && (block as usize).is_multiple_of(layout.align()));
            // SAFETY: the block has that many bytes.
            unsafe { block.write_bytes(i as u8, layout.size()) };
            blocks.push((block, layout));
        }
        let mut ranges: Vec<_> = blocks.iter().map(|(b, l)| (*b as usize, *b as usize + l.size())).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| matches!(pair, [a, b] if a.1 <= b.0)));
        let (last, layout) = blocks.pop().unwrap();
        // SAFETY: allocated above with that layout.
        unsafe { heap.dealloc(last, layout) };
        // SAFETY: a valid layout.
        let again = unsafe { heap.alloc(layout) };
        assert!(OwnHeap::class(layout).is_none() || again == last);
    }
}
