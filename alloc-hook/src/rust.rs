//! The door for Rust programs: a [`GlobalAlloc`] around any other.
#![allow(unsafe_code)]

use crate::counted::{self, ALLOC, ALLOC_ZEROED, Counted};
use crate::fast;
use crate::record::{Freed, after_realloc, allocated, before_realloc, freed, is_every, may_be_followed, record_every};
use crate::registers::{Caller, here};
use core::alloc::{GlobalAlloc, Layout};
use layout::Function;

/// A global allocator that records what goes through it, and leaves the work to `A`.
///
/// ```
/// #[global_allocator]
/// static ALLOC: profile_recorder_alloc_hook::RecordingAllocator = profile_recorder_alloc_hook::RecordingAllocator::system();
/// # fn main() {}
/// ```
///
/// Calls, bytes and live bytes are counted from the first allocation on, by thread; nothing else is done until a recorder asks for allocations with their stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordingAllocator<A = SystemAllocator>(A);

impl RecordingAllocator<SystemAllocator> {
    /// Records in front of the C library's allocator.
    pub const fn system() -> Self {
        Self(SystemAllocator)
    }
}

impl<A> RecordingAllocator<A> {
    /// Records in front of `inner`.
    pub const fn new(inner: A) -> Self {
        Self(inner)
    }
}

// SAFETY: every block comes from `A` and goes back to it with the layout it was made with.
unsafe impl<A: GlobalAlloc> GlobalAlloc for RecordingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        let address = unsafe { self.0.alloc(layout) };
        count::<ALLOC>(address, layout.size());
        address
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        let address = unsafe { self.0.alloc_zeroed(layout) };
        count::<ALLOC_ZEROED>(address, layout.size());
        address
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old block may be another's as soon as it is given back: whether its end is followed is asked before.
        if may_be_followed(old) {
            let Caller { pc, sp, fp } = here();
            // SAFETY: passed on as it came.
            return unsafe { realloc_followed(old, layout, size, &self.0, pc, sp, fp) };
        }
        // SAFETY: passed on as it came.
        let address = unsafe { self.0.realloc(old, layout, size) };
        if counted::reallocated(old, layout.size(), address, size) != Counted::Wholly {
            let Caller { pc, sp, fp } = here();
            realloc_whole(old, layout.size(), address, size, pc, sp, fp);
        }
        address
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: passed on as it came, whichever way.
        unsafe {
            match counted::freed(address, size) {
                Counted::Wholly => self.0.dealloc(address, layout),
                Counted::ButBytes => dealloc_counted(address, size, align, &self.0),
                Counted::BesideOthers => dealloc_beside_others(address, size, align, &self.0),
                Counted::NotYet | Counted::IsDue => dealloc_whole(address, size, align, &self.0),
            }
        }
    }
}

// What need only be counted is inlined, the rest is there once in a program. Numbers one by one, as in `record`.

#[inline(always)]
fn count<const FUNCTION: u8>(address: *mut u8, size: usize) {
    let counted = counted::allocated::<FUNCTION>(address, size);
    if counted == Counted::Wholly {
        return;
    }
    let Caller { pc, sp, fp } = here();
    if counted == Counted::IsDue {
        due::<FUNCTION>(address, size, pc, sp, fp);
    } else {
        whole::<FUNCTION>(address, size, pc, sp, fp);
    }
}

#[inline(never)]
fn due<const FUNCTION: u8>(address: *mut u8, size: usize, pc: u64, sp: u64, fp: u64) {
    if is_every() && counted::allocated_due::<FUNCTION>(size) {
        record_every(function::<FUNCTION>(), address as u64, size as u64, pc, sp, fp);
    } else {
        whole::<FUNCTION>(address, size, pc, sp, fp);
    }
}

#[inline(never)]
fn whole<const FUNCTION: u8>(address: *mut u8, size: usize, pc: u64, sp: u64, fp: u64) {
    allocated(function::<FUNCTION>(), address, size, || Caller { pc, sp, fp });
}

const fn function<const FUNCTION: u8>() -> Function {
    if FUNCTION == ALLOC { Function::RustAlloc } else { Function::RustAllocZeroed }
}

/// A reallocation of a block whose end is not followed.
#[inline(never)]
fn realloc_whole(old: *mut u8, old_size: usize, address: *mut u8, size: usize, pc: u64, sp: u64, fp: u64) {
    realloc_recorded(&Freed::unfollowed(old, old_size), address, size, Caller { pc, sp, fp });
}

/// A reallocation of a block whose end is followed, or that lies beside such a one.
#[inline(never)]
unsafe fn realloc_followed<A: GlobalAlloc>(
    old: *mut u8,
    layout: Layout,
    size: usize,
    allocator: &A,
    pc: u64,
    sp: u64,
    fp: u64,
) -> *mut u8 {
    let before = before_realloc(Function::RustRealloc, old, layout.size());
    // SAFETY: as the caller promises.
    let address = unsafe { allocator.realloc(old, layout, size) };
    if before.is_taken() || counted::reallocated(old, layout.size(), address, size) != Counted::Wholly {
        realloc_recorded(&before, address, size, Caller { pc, sp, fp });
    }
    address
}

fn realloc_recorded(before: &Freed, address: *mut u8, size: usize, from: Caller) {
    after_realloc(Function::RustRealloc, before, !address.is_null());
    allocated(Function::RustRealloc, address, size, || from);
}

// What is seldom done with a block that is given back: all of it, so that nothing need be kept where it is called, and in the order in which the arguments came.

#[inline(never)]
unsafe fn dealloc_counted<A: GlobalAlloc>(address: *mut u8, size: usize, align: usize, allocator: &A) {
    fast::shrink(size);
    // SAFETY: as the caller promises; these are a layout's.
    unsafe { allocator.dealloc(address, Layout::from_size_align_unchecked(size, align)) };
}

#[inline(never)]
unsafe fn dealloc_beside_others<A: GlobalAlloc>(address: *mut u8, size: usize, align: usize, allocator: &A) {
    match counted::freed_beside_others(address, size) {
        Counted::Wholly => {}
        Counted::ButBytes => fast::shrink(size),
        _ => freed(Function::RustDealloc, address, size),
    }
    // SAFETY: as above.
    unsafe { allocator.dealloc(address, Layout::from_size_align_unchecked(size, align)) };
}

#[inline(never)]
unsafe fn dealloc_whole<A: GlobalAlloc>(address: *mut u8, size: usize, align: usize, allocator: &A) {
    freed(Function::RustDealloc, address, size);
    // SAFETY: as above.
    unsafe { allocator.dealloc(address, Layout::from_size_align_unchecked(size, align)) };
}

/// The C library's allocator, as `std::alloc::System` uses it; this crate has no std.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemAllocator;

#[cold]
#[inline(never)]
fn aligned(layout: Layout) -> *mut u8 {
    let mut address = core::ptr::null_mut();
    // SAFETY: the alignment is a power of two and at least the size of a pointer.
    let result =
        unsafe { libc::posix_memalign(&raw mut address, layout.align().max(size_of::<usize>()), layout.size()) };
    if result == 0 { address.cast() } else { core::ptr::null_mut() }
}

/// Alignment that `malloc` gives to every block.
const MIN_ALIGN: usize = 16;

// SAFETY: malloc, calloc, realloc, posix_memalign and free of one C library, which belong together.
unsafe impl GlobalAlloc for SystemAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGN && layout.align() <= layout.size() {
            // SAFETY: any size is allowed.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        aligned(layout)
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGN && layout.align() <= layout.size() {
            // SAFETY: any size is allowed.
            return unsafe { libc::calloc(layout.size(), 1) }.cast();
        }
        // SAFETY: the block has as many bytes as are zeroed.
        unsafe {
            let address = self.alloc(layout);
            if !address.is_null() {
                core::ptr::write_bytes(address, 0, layout.size());
            }
            address
        }
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= MIN_ALIGN && layout.align() <= size {
            // SAFETY: the block came from this C library.
            return unsafe { libc::realloc(old.cast(), size) }.cast();
        }
        // SAFETY: the caller promises that the size is valid for the alignment; the new block holds what is copied; the old one is freed once.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(old, new, layout.size().min(size));
                self.dealloc(old, layout);
            }
            new
        }
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, _layout: Layout) {
        // SAFETY: the block came from this C library.
        unsafe { libc::free(address.cast()) };
    }
}
