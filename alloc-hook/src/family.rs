//! The malloc family, as the preload library exports it: forwards to the next allocator, counts, records.
//!
//! Each function here is the body of the exported one, with the caller's stack and frame pointer as additional arguments ([`Entry`]). `H` is what the
//! library wants done before the first allocation of the process.
#![allow(unsafe_code, clippy::missing_safety_doc, reason = "each is as safe as the C function of its name")]

use crate::record::{after_realloc, allocated, before_realloc, freed};
pub use crate::registers::Entry;
use crate::{bootstrap, next};
use capture::thread;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use layout::Function;

/// The library around the hooks.
pub trait Host {
    /// Called once, before the first allocation of the process is recorded; must not allocate.
    fn start();
}

const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;

#[inline(always)]
fn ready<H: Host>() -> bool {
    next::is_known() || next::resolve(H::start)
}

/// Makes sure that the next allocator is known and the library started, before any allocation.
pub fn ensure_started<H: Host>() {
    ready::<H>();
}

#[cold]
fn fail(errno: c_int) -> *mut u8 {
    // SAFETY: the address of the calling thread's errno.
    unsafe { *libc::__errno_location() = errno };
    core::ptr::null_mut()
}

/// `malloc`
#[inline(always)]
pub unsafe fn malloc<H: Host>(size: usize, entry: Entry) -> *mut u8 {
    if !ready::<H>() {
        return bootstrap::allocate(size, 16);
    }
    // SAFETY: as the host calls it.
    let Some(address) = (unsafe { next::malloc(size) }) else { return fail(ENOMEM) };
    allocated(Function::Malloc, address, size, || entry.caller());
    address
}

/// `calloc`
#[inline(always)]
pub unsafe fn calloc<H: Host>(count: usize, size: usize, entry: Entry) -> *mut u8 {
    if !ready::<H>() {
        return bootstrap::allocate(count.saturating_mul(size), 16);
    }
    if thread::is_own() {
        let block = bootstrap::allocate_own(count.saturating_mul(size));
        if !block.is_null() {
            return block;
        }
    }
    // SAFETY: as the host calls it.
    let Some(address) = (unsafe { next::calloc(count, size) }) else { return fail(ENOMEM) };
    // A product that is no number is refused, and nothing that could be added up was asked for.
    allocated(Function::Calloc, address, count.checked_mul(size).unwrap_or(0), || entry.caller());
    address
}

/// `realloc`
#[inline(always)]
pub unsafe fn realloc<H: Host>(address: *mut u8, size: usize, entry: Entry) -> *mut u8 {
    // SAFETY: as the host calls it.
    unsafe { reallocate::<H>(Function::Realloc, address, size, entry) }
}

/// The next `reallocarray`, where the host's `realloc` is not that of the next allocator; else null.
static ARRAYS: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Leaves arrays to the C library, which calls the host's `realloc` for them: its front counts the call.
pub(crate) fn leave_arrays_to(next: *mut c_void) {
    ARRAYS.store(next, Ordering::Relaxed);
}

/// `reallocarray`
#[inline(always)]
pub unsafe fn reallocarray<H: Host>(address: *mut u8, count: usize, size: usize, entry: Entry) -> *mut u8 {
    let next = ARRAYS.load(Ordering::Relaxed);
    if !next.is_null() {
        type Reallocarray = unsafe extern "C" fn(*mut u8, usize, usize) -> *mut u8;
        // SAFETY: the symbol of that name has this type; as the host calls it.
        return unsafe { core::mem::transmute::<*mut c_void, Reallocarray>(next)(address, count, size) };
    }
    let Some(bytes) = count.checked_mul(size) else {
        if ready::<H>() {
            allocated(Function::Reallocarray, core::ptr::null_mut(), 0, || entry.caller());
        }
        return fail(ENOMEM);
    };
    // SAFETY: as the host calls it; the next allocator's own function would come back here through its realloc.
    unsafe { reallocate::<H>(Function::Reallocarray, address, bytes, entry) }
}

unsafe fn reallocate<H: Host>(function: Function, address: *mut u8, size: usize, entry: Entry) -> *mut u8 {
    if !ready::<H>() || bootstrap::contains(address) {
        // SAFETY: the block is the host's, as large as it was made.
        return unsafe { move_out_of_bootstrap::<H>(address, size, entry) };
    }
    let old = before_realloc(function, address, 0);
    // SAFETY: as the host calls it.
    let Some(new) = (unsafe { next::realloc(address, size) }) else { return fail(ENOMEM) };
    // Null for a size of zero means that the old block was freed; for another size that it was kept.
    after_realloc(function, &old, !new.is_null() || size == 0);
    allocated(function, new, size, || entry.caller());
    new
}

#[cold]
unsafe fn move_out_of_bootstrap<H: Host>(address: *mut u8, size: usize, entry: Entry) -> *mut u8 {
    // SAFETY: as the host calls it.
    let new = unsafe { malloc::<H>(size, entry) };
    if !new.is_null() && bootstrap::contains(address) {
        // SAFETY: both blocks have at least this many bytes and do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(address, new, size.min(bootstrap::size_of(address))) };
        bootstrap::release(address);
    }
    new
}

/// `free`
#[inline(always)]
pub unsafe fn free<H: Host>(address: *mut u8) {
    if !ready::<H>() || bootstrap::contains(address) {
        return bootstrap::release(address);
    }
    // At its end, what a thread has not got.
    if address.is_null() && thread::is_own() {
        return;
    }
    freed(Function::Free, address, 0);
    // SAFETY: as the host calls it.
    unsafe { next::free(address) };
}

/// `posix_memalign`
#[inline(always)]
pub unsafe fn posix_memalign<H: Host>(to: *mut *mut u8, alignment: usize, size: usize, entry: Entry) -> c_int {
    if !ready::<H>() {
        return ENOMEM;
    }
    // SAFETY: as the host calls it.
    let Some(result) = (unsafe { next::posix_memalign(to, alignment, size) }) else { return EINVAL };
    // SAFETY: on success the pointer was written.
    let address = if result == 0 { unsafe { *to } } else { core::ptr::null_mut() };
    allocated(Function::PosixMemalign, address, size, || entry.caller());
    result
}

/// `aligned_alloc`
#[inline(always)]
pub unsafe fn aligned_alloc<H: Host>(alignment: usize, size: usize, entry: Entry) -> *mut u8 {
    if !ready::<H>() {
        return bootstrap::allocate(size, alignment);
    }
    // SAFETY: as the host calls it.
    let Some(address) = (unsafe { next::aligned_alloc(alignment, size) }) else { return fail(ENOMEM) };
    allocated(Function::AlignedAlloc, address, size, || entry.caller());
    address
}

/// `memalign`
#[inline(always)]
pub unsafe fn memalign<H: Host>(alignment: usize, size: usize, entry: Entry) -> *mut u8 {
    if !ready::<H>() {
        return bootstrap::allocate(size, alignment);
    }
    // SAFETY: as the host calls it.
    let Some(address) = (unsafe { next::memalign(alignment, size) }) else { return fail(ENOMEM) };
    allocated(Function::Memalign, address, size, || entry.caller());
    address
}

/// `valloc`
#[inline(always)]
pub unsafe fn valloc<H: Host>(size: usize, entry: Entry) -> *mut u8 {
    if !ready::<H>() {
        return bootstrap::allocate(size, 4096);
    }
    // SAFETY: as the host calls it.
    let Some(address) = (unsafe { next::valloc(size) }) else { return fail(ENOMEM) };
    allocated(Function::Valloc, address, size, || entry.caller());
    address
}

/// `pvalloc`
#[inline(always)]
pub unsafe fn pvalloc<H: Host>(size: usize, entry: Entry) -> *mut u8 {
    if !ready::<H>() {
        return bootstrap::allocate(size, 4096);
    }
    // SAFETY: as the host calls it.
    let Some(address) = (unsafe { next::pvalloc(size) }) else { return fail(ENOMEM) };
    allocated(Function::Pvalloc, address, size, || entry.caller());
    address
}

/// `malloc_usable_size`
#[inline(always)]
pub unsafe fn malloc_usable_size<H: Host>(address: *mut u8) -> usize {
    if bootstrap::contains(address) {
        return bootstrap::size_of(address);
    }
    if !ready::<H>() {
        return 0;
    }
    // SAFETY: as the host calls it.
    unsafe { next::malloc_usable_size(address) }.unwrap_or(0)
}
