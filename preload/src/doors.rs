//! Fronts that import slots are pointed at where the exported functions are not what the host calls (`alloc_hook::doors` tells when).
//!
//! Each calls the real function from a frame of plain assembly with unwind information: an exception of `operator new`, or of a handler that it calls, passes through it.

use core::arch::{asm, naked_asm};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use layout::Function;
use profile_recorder::preload::doors::{self, Door, FRAME, Kind};

/// Where the exported `malloc` lies. (Its address, taken in Rust, would be that of the one in front of it.)
pub(crate) fn own_malloc() -> u64 {
    let address: u64;
    // SAFETY: computes an address.
    unsafe {
        asm!("lea {}, [rip + profrec_own_malloc]", out(reg) address, options(nomem, nostack, preserves_flags));
    }
    address
}

/// A front with a frame: keeps the arguments, then `$before`, the real function, `$after`.
macro_rules! front {
    ($front:ident, $real:ident, $before:expr, $after:expr) => {
        static $real: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

        #[unsafe(naked)]
        unsafe extern "C" fn $front() {
            naked_asm!(
                ".cfi_startproc",
                "sub rsp, {frame}",
                ".cfi_def_cfa_offset {frame} + 8",
                "mov qword ptr [rsp], rdi",
                "mov qword ptr [rsp + 8], rsi",
                "mov qword ptr [rsp + 16], rdx",
                "mov qword ptr [rsp + 24], rcx",
                "mov rdi, rsp",
                "call {before}",
                "mov rdi, qword ptr [rsp]",
                "mov rsi, qword ptr [rsp + 8]",
                "mov rdx, qword ptr [rsp + 16]",
                "mov rcx, qword ptr [rsp + 24]",
                "call qword ptr [rip + {real}]",
                "mov qword ptr [rsp + 32], rax",
                "mov rdi, rsp",
                "lea rsi, [rsp + {frame}]",
                "mov rdx, rbp",
                "call {after}",
                "mov rax, qword ptr [rsp + 32]",
                "add rsp, {frame}",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                frame = const FRAME,
                before = sym $before,
                real = sym $real,
                after = sym $after,
            )
        }
    };
}

/// Defines the fronts of functions that allocate, then of those that release.
macro_rules! fronts {
    (allocate { $($front:ident / $real:ident: $function:ident;)* }
     release { $($freeing:ident / $freed:ident: $release:ident;)* }) => {
        $(front!(
            $front,
            $real,
            doors::allocating::<{ Function::$function as u8 }>,
            doors::allocated::<{ Function::$function as u8 }>
        );)*
        $(front!($freeing, $freed, doors::releasing, doors::released::<{ Function::$release as u8 }>);)*
    };
}

fronts! {
    allocate {
        malloc / MALLOC: Malloc;
        calloc / CALLOC: Calloc;
        realloc / REALLOC: Realloc;
        reallocarray / REALLOCARRAY: Reallocarray;
        posix_memalign / POSIX_MEMALIGN: PosixMemalign;
        aligned_alloc / ALIGNED_ALLOC: AlignedAlloc;
        memalign / MEMALIGN: Memalign;
        valloc / VALLOC: Valloc;
        pvalloc / PVALLOC: Pvalloc;
        new / NEW: OperatorNew;
        new_array / NEW_ARRAY: OperatorNew;
        new_nothrow / NEW_NOTHROW: OperatorNew;
        new_array_nothrow / NEW_ARRAY_NOTHROW: OperatorNew;
        new_aligned / NEW_ALIGNED: OperatorNew;
        new_array_aligned / NEW_ARRAY_ALIGNED: OperatorNew;
        new_aligned_nothrow / NEW_ALIGNED_NOTHROW: OperatorNew;
        new_array_aligned_nothrow / NEW_ARRAY_ALIGNED_NOTHROW: OperatorNew;
        mallocx / MALLOCX: Mallocx;
        rallocx / RALLOCX: Rallocx;
        xallocx / XALLOCX: Xallocx;
    }
    release {
        free / FREE: Free;
        delete / DELETE: OperatorDelete;
        delete_array / DELETE_ARRAY: OperatorDelete;
        delete_sized / DELETE_SIZED: OperatorDelete;
        delete_array_sized / DELETE_ARRAY_SIZED: OperatorDelete;
        delete_nothrow / DELETE_NOTHROW: OperatorDelete;
        delete_array_nothrow / DELETE_ARRAY_NOTHROW: OperatorDelete;
        delete_aligned / DELETE_ALIGNED: OperatorDelete;
        delete_array_aligned / DELETE_ARRAY_ALIGNED: OperatorDelete;
        delete_sized_aligned / DELETE_SIZED_ALIGNED: OperatorDelete;
        delete_array_sized_aligned / DELETE_ARRAY_SIZED_ALIGNED: OperatorDelete;
        delete_aligned_nothrow / DELETE_ALIGNED_NOTHROW: OperatorDelete;
        delete_array_aligned_nothrow / DELETE_ARRAY_ALIGNED_NOTHROW: OperatorDelete;
        dallocx / DALLOCX: Dallocx;
        sdallocx / SDALLOCX: Dallocx;
        free_sized / FREE_SIZED: Free;
        free_aligned_sized / FREE_ALIGNED_SIZED: Free;
    }
}

static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Notes the call. The function looks for its caller at the return address, so it is jumped to.
#[unsafe(naked)]
unsafe extern "C" fn dlopen() {
    naked_asm!(
        ".cfi_startproc",
        "mov qword ptr [rip + {since}], 0",
        "test esi, {deep_flag}",
        "jz 2f",
        "mov byte ptr [rip + {deep}], 1",
        "2:",
        "jmp qword ptr [rip + {real}]",
        ".cfi_endproc",
        since = sym doors::SINCE,
        deep_flag = const libc::RTLD_DEEPBIND,
        deep = sym doors::DEEP,
        real = sym DLOPEN,
    )
}

/// Who opened an object asks for its functions before it calls them.
#[unsafe(naked)]
unsafe extern "C" fn dlsym() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_def_cfa_offset 16",
        "push rsi",
        ".cfi_def_cfa_offset 24",
        "sub rsp, 8",
        ".cfi_def_cfa_offset 32",
        "call {look}",
        "add rsp, 8",
        ".cfi_def_cfa_offset 24",
        "pop rsi",
        ".cfi_def_cfa_offset 16",
        "pop rdi",
        ".cfi_def_cfa_offset 8",
        "jmp qword ptr [rip + {real}]",
        ".cfi_endproc",
        look = sym doors::before_dlsym,
        real = sym DLSYM,
    )
}

macro_rules! door {
    ($kind:ident, $name:literal, $real:ident, $front:ident) => {
        Door { name: $name, real: &$real, front: $front, kind: Kind::$kind }
    };
}

/// Every front, by the name of what it stands in front of.
pub(crate) static DOORS: [Door; 39] = [
    door!(Family, c"malloc", MALLOC, malloc),
    door!(Family, c"calloc", CALLOC, calloc),
    door!(Family, c"realloc", REALLOC, realloc),
    door!(Family, c"reallocarray", REALLOCARRAY, reallocarray),
    door!(Family, c"posix_memalign", POSIX_MEMALIGN, posix_memalign),
    door!(Family, c"aligned_alloc", ALIGNED_ALLOC, aligned_alloc),
    door!(Family, c"memalign", MEMALIGN, memalign),
    door!(Family, c"valloc", VALLOC, valloc),
    door!(Family, c"pvalloc", PVALLOC, pvalloc),
    door!(Family, c"free", FREE, free),
    door!(Extra, c"_Znwm", NEW, new),
    door!(Extra, c"_Znam", NEW_ARRAY, new_array),
    door!(Extra, c"_ZnwmRKSt9nothrow_t", NEW_NOTHROW, new_nothrow),
    door!(Extra, c"_ZnamRKSt9nothrow_t", NEW_ARRAY_NOTHROW, new_array_nothrow),
    door!(Extra, c"_ZnwmSt11align_val_t", NEW_ALIGNED, new_aligned),
    door!(Extra, c"_ZnamSt11align_val_t", NEW_ARRAY_ALIGNED, new_array_aligned),
    door!(Extra, c"_ZnwmSt11align_val_tRKSt9nothrow_t", NEW_ALIGNED_NOTHROW, new_aligned_nothrow),
    door!(Extra, c"_ZnamSt11align_val_tRKSt9nothrow_t", NEW_ARRAY_ALIGNED_NOTHROW, new_array_aligned_nothrow),
    door!(Extra, c"_ZdlPv", DELETE, delete),
    door!(Extra, c"_ZdaPv", DELETE_ARRAY, delete_array),
    door!(Extra, c"_ZdlPvm", DELETE_SIZED, delete_sized),
    door!(Extra, c"_ZdaPvm", DELETE_ARRAY_SIZED, delete_array_sized),
    door!(Extra, c"_ZdlPvRKSt9nothrow_t", DELETE_NOTHROW, delete_nothrow),
    door!(Extra, c"_ZdaPvRKSt9nothrow_t", DELETE_ARRAY_NOTHROW, delete_array_nothrow),
    door!(Extra, c"_ZdlPvSt11align_val_t", DELETE_ALIGNED, delete_aligned),
    door!(Extra, c"_ZdaPvSt11align_val_t", DELETE_ARRAY_ALIGNED, delete_array_aligned),
    door!(Extra, c"_ZdlPvmSt11align_val_t", DELETE_SIZED_ALIGNED, delete_sized_aligned),
    door!(Extra, c"_ZdaPvmSt11align_val_t", DELETE_ARRAY_SIZED_ALIGNED, delete_array_sized_aligned),
    door!(Extra, c"_ZdlPvSt11align_val_tRKSt9nothrow_t", DELETE_ALIGNED_NOTHROW, delete_aligned_nothrow),
    door!(Extra, c"_ZdaPvSt11align_val_tRKSt9nothrow_t", DELETE_ARRAY_ALIGNED_NOTHROW, delete_array_aligned_nothrow),
    door!(Extra, c"mallocx", MALLOCX, mallocx),
    door!(Extra, c"rallocx", RALLOCX, rallocx),
    door!(Extra, c"xallocx", XALLOCX, xallocx),
    door!(Extra, c"dallocx", DALLOCX, dallocx),
    door!(Extra, c"sdallocx", SDALLOCX, sdallocx),
    door!(Extra, c"free_sized", FREE_SIZED, free_sized),
    door!(Extra, c"free_aligned_sized", FREE_ALIGNED_SIZED, free_aligned_sized),
    door!(Linker, c"dlopen", DLOPEN, dlopen),
    door!(Linker, c"dlsym", DLSYM, dlsym),
];
