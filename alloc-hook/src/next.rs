//! The allocator behind ours: the functions that the host would call without us.
//!
//! Looked up once, on the first call of the process (`dlsym` with `RTLD_NEXT`), whatever library they come from. A function that the next
//! allocator does not have is null.
#![allow(unsafe_code)]

use crate::{bootstrap, fast, linked};
use capture::images::{Image, Images};
use capture::region;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

/// State of the look-up.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const RESOLVING: u32 = 1;
const KNOWN: u32 = 2;
/// Thread that resolves, for as long as it does.
static RESOLVER: AtomicU32 = AtomicU32::new(0);

/// 1: nothing is recorded in this process, and nothing will be; `malloc`, `calloc`, `realloc` and `free` may go straight to the next allocator's.
pub static IDLE: AtomicU8 = AtomicU8::new(0);

/// Where `malloc_usable_size` may leave for: the next one, once it is known that no block is one of ours. Programs that count what they use ask it for every block.
pub static SIZES: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

macro_rules! functions {
    ($($name:ident / $slot:ident / $symbol:literal: fn($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        $(
            #[doc = concat!("Address of the next `", stringify!($name), "`.")]
            pub static $slot: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

            #[doc = concat!("The next `", stringify!($name), "`; `None` if there is none.")]
            ///
            /// # Safety
            /// As the function itself demands.
            #[inline(always)]
            pub unsafe fn $name($($arg: $type),*) -> Option<$ret> {
                let function = $slot.load(Ordering::Relaxed);
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
                $slot.store(found, Ordering::Relaxed);
            )*
        }
    };
}

functions! {
    malloc / MALLOC / c"malloc": fn(size: usize) -> *mut u8;
    calloc / CALLOC / c"calloc": fn(count: usize, size: usize) -> *mut u8;
    realloc / REALLOC / c"realloc": fn(address: *mut u8, size: usize) -> *mut u8;
    free / FREE / c"free": fn(address: *mut u8) -> ();
    posix_memalign / POSIX_MEMALIGN / c"posix_memalign": fn(to: *mut *mut u8, alignment: usize, size: usize) -> c_int;
    aligned_alloc / ALIGNED_ALLOC / c"aligned_alloc": fn(alignment: usize, size: usize) -> *mut u8;
    memalign / MEMALIGN / c"memalign": fn(alignment: usize, size: usize) -> *mut u8;
    valloc / VALLOC / c"valloc": fn(size: usize) -> *mut u8;
    pvalloc / PVALLOC / c"pvalloc": fn(size: usize) -> *mut u8;
    malloc_usable_size / USABLE_SIZE / c"malloc_usable_size": fn(address: *mut u8) -> usize;
}

/// Whether blocks may be asked for their size at any time. The allocator of a sanitizer ends the process if it is asked about one of the first blocks.
pub(crate) fn sizes_can_be_asked() -> bool {
    let tells = USABLE_SIZE.load(Ordering::Relaxed) as u64;
    let is_sanitizers = |all: Images| all.of(tells).is_some_and(|image| is_sanitizer(&image));
    tells != 0 && (linked::is_in_libc(tells) || Images::read().is_some_and(|all| !is_sanitizers(all)))
}

/// Whether an object is a sanitizer's. (To ask the dynamic linker for a name that there is not would leave an error for the host's `dlerror`.)
pub(crate) fn is_sanitizer(image: &Image<'_>) -> bool {
    image.defines(b"__sanitizer_get_allocated_size").is_some()
}

/// Whether blocks come from the C library's own allocator.
pub(crate) fn is_libc() -> bool {
    [&MALLOC, &USABLE_SIZE].iter().all(|next| linked::is_in_libc(next.load(Ordering::Relaxed) as u64))
}

/// Whether the allocator may be one for programs of a single thread.
static MAY_BE_SINGLE: AtomicBool = AtomicBool::new(false);

/// Looks what allocator it is. For the start of the process.
pub fn look_at_it() {
    /// What those define that serve threads: jemalloc, tcmalloc, mimalloc and Scudo, and another copy of this library.
    const SERVE_THREADS: [&[u8]; 5] =
        [b"mallctl", b"tc_malloc", b"mi_malloc", b"__scudo_print_stats", b"profile_recorder_label_enter_v1"];
    let malloc = MALLOC.load(Ordering::Relaxed) as u64;
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
        let known = [&MALLOC, &CALLOC, &REALLOC, &FREE].iter().all(|next| !next.load(Ordering::Relaxed).is_null());
        // A block that was made here must be recognised when it is given back.
        let all_are_theirs = bootstrap::is_unused();
        if all_are_theirs {
            SIZES.store(USABLE_SIZE.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let idle = known && region::header().is_none() && all_are_theirs;
        IDLE.store(u8::from(idle), Ordering::Release);
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
