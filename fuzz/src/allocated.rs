//! An allocator that refuses to give more than a piece of work may take.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, up to a limit. Who asks for more is given nothing, which ends the process.
struct Limited;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

fn has_room(bytes: usize) -> bool {
    ALLOCATED.load(Relaxed).saturating_add(bytes) <= LIMIT.load(Relaxed)
}

// SAFETY: every block comes from the system's allocator and goes back to it with its own layout.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !has_room(layout.size()) {
            return std::ptr::null_mut();
        }
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !has_room(size.saturating_sub(layout.size())) {
            return std::ptr::null_mut();
        }
        ALLOCATED.fetch_add(size, Relaxed);
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Does something that may allocate this much at most at any time; ends the process otherwise ("memory allocation failed").
pub fn at_most<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let before = LIMIT.swap(ALLOCATED.load(Relaxed).saturating_add(bytes), Relaxed);
    let result = work();
    LIMIT.store(before, Relaxed);
    result
}
