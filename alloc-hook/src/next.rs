//! The allocator behind ours: the functions that the host would call without us.
//!
//! Looked up once, on the first call of the process (`dlsym` with `RTLD_NEXT`), whatever library they come from. A function that the next
//! allocator does not have is null.
#![allow(unsafe_code)]

use crate::near::NEAR;
use crate::{bootstrap, fast, linked};
use capture::images::{Image, Images};
use capture::region;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// State of the look-up.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const RESOLVING: u32 = 1;
const KNOWN: u32 = 2;
/// Thread that resolves, for as long as it does.
static RESOLVER: AtomicU32 = AtomicU32::new(0);

macro_rules! functions {
    ($($name:ident / $symbol:literal: fn($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        /// Addresses of the next allocator's functions.
        #[derive(Debug)]
        #[repr(C)]
        pub struct Next {
            $(#[doc = concat!("`", stringify!($name), "`.")] pub $name: AtomicPtr<c_void>,)*
        }

        impl Next {
            /// Of none yet.
            pub(crate) const fn new() -> Self {
                Self { $($name: AtomicPtr::new(core::ptr::null_mut()),)* }
            }
        }

        $(
            #[doc = concat!("The next `", stringify!($name), "`; `None` if there is none.")]
            ///
            /// # Safety
            /// As the function itself demands.
            #[inline(always)]
            pub unsafe fn $name($($arg: $type),*) -> Option<$ret> {
                let function = NEAR.next.$name.load(Ordering::Relaxed);
                if function.is_null() {
                    return None;
                }
                // SAFETY: the symbol of that name has this type.
                Some(unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $ret>(function)($($arg),*) })
            }
        )*

        fn look_up_all() {
            $(
                let symbol: &CStr = $symbol;
                // SAFETY: the name is zero-terminated.
                let found = unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) };
                NEAR.next.$name.store(found, Ordering::Relaxed);
            )*
        }
    };
}

functions! {
    malloc / c"malloc": fn(size: usize) -> *mut u8;
    calloc / c"calloc": fn(count: usize, size: usize) -> *mut u8;
    realloc / c"realloc": fn(address: *mut u8, size: usize) -> *mut u8;
    free / c"free": fn(address: *mut u8) -> ();
    posix_memalign / c"posix_memalign": fn(to: *mut *mut u8, alignment: usize, size: usize) -> c_int;
    aligned_alloc / c"aligned_alloc": fn(alignment: usize, size: usize) -> *mut u8;
    memalign / c"memalign": fn(alignment: usize, size: usize) -> *mut u8;
    valloc / c"valloc": fn(size: usize) -> *mut u8;
    pvalloc / c"pvalloc": fn(size: usize) -> *mut u8;
    malloc_usable_size / c"malloc_usable_size": fn(address: *mut u8) -> usize;
}

/// Whether blocks may be asked for their size at any time. The allocator of a sanitizer ends the process if it is asked about one of the first blocks.
pub(crate) fn sizes_can_be_asked() -> bool {
    let tells = NEAR.next.malloc_usable_size.load(Ordering::Relaxed) as u64;
    let is_sanitizers = |all: Images| all.of(tells).is_some_and(|image| is_sanitizer(&image));
    tells != 0 && (linked::is_in_libc(tells) || Images::read().is_some_and(|all| !is_sanitizers(all)))
}

/// Whether an object is a sanitizer's. (To ask the dynamic linker for a name that there is not would leave an error for the host's `dlerror`.)
pub(crate) fn is_sanitizer(image: &Image<'_>) -> bool {
    image.defines(b"__sanitizer_get_allocated_size").is_some()
}

/// Whether blocks come from the C library's own allocator.
pub(crate) fn is_libc() -> bool {
    [&NEAR.next.malloc, &NEAR.next.malloc_usable_size]
        .iter()
        .all(|next| linked::is_in_libc(next.load(Ordering::Relaxed) as u64))
}

/// Whether the allocator may be one for programs of a single thread.
static MAY_BE_SINGLE: AtomicBool = AtomicBool::new(false);

/// Looks what allocator it is. For the start of the process.
pub fn look_at_it() {
    /// What those define that serve threads: jemalloc, tcmalloc, mimalloc and Scudo, and another copy of this library.
    const SERVE_THREADS: [&[u8]; 5] =
        [b"mallctl", b"tc_malloc", b"mi_malloc", b"__scudo_print_stats", b"profile_recorder_label_enter_v1"];
    let malloc = NEAR.next.malloc.load(Ordering::Relaxed) as u64;
    let serves_threads =
        |image: Image<'_>| is_sanitizer(&image) || SERVE_THREADS.iter().any(|name| image.defines(name).is_some());
    let is_known = || {
        linked::is_in_libc(malloc) || Images::read().is_some_and(|images| images.of(malloc).is_some_and(serves_threads))
    };
    MAY_BE_SINGLE.store(malloc != 0 && !is_known(), Ordering::Relaxed);
}

/// Whether no thread but the program's may call it.
pub(crate) fn may_be_single() -> bool {
    MAY_BE_SINGLE.load(Ordering::Relaxed)
}

/// Whether there are those that the entry points leave for.
pub(crate) fn has_all_that_are_jumped_to() -> bool {
    let next = &NEAR.next;
    [&next.malloc, &next.calloc, &next.realloc, &next.free].iter().all(|next| !next.load(Ordering::Relaxed).is_null())
}

/// Whether the functions are known: one load.
#[inline(always)]
pub(crate) fn is_known() -> bool {
    STATE.load(Ordering::Acquire) == KNOWN
}

/// Looks the functions up, then calls `then` (once in the process). False if the calling thread is just doing so, further up its stack:
/// the caller must serve itself.
#[cold]
pub(crate) fn resolve(then: fn()) -> bool {
    let me = capture::syscall::gettid();
    if STATE.compare_exchange(UNKNOWN, RESOLVING, Ordering::Acquire, Ordering::Acquire).is_ok() {
        RESOLVER.store(me, Ordering::Relaxed);
        look_up_all();
        then();
        RESOLVER.store(0, Ordering::Relaxed);
        STATE.store(KNOWN, Ordering::Release);
        let known = has_all_that_are_jumped_to();
        // A block that was made here must be recognised when it is given back.
        let all_are_theirs = bootstrap::is_unused();
        if all_are_theirs {
            NEAR.sizes.store(NEAR.next.malloc_usable_size.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let idle = known && region::header().is_none() && all_are_theirs;
        NEAR.idle.store(u8::from(idle), Ordering::Release);
        fast::rearrange();
        return true;
    }
    while !is_known() {
        if RESOLVER.load(Ordering::Relaxed) == me {
            return false;
        }
        capture::syscall::yield_now();
    }
    true
}
