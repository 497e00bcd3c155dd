//! The preload library: exported symbols, a constructor and a destructor. Everything they do is in `profile_recorder`.
//!
//! Each exported function is a few instructions that hand the caller's stack and frame pointer on as additional arguments, so that the walk begins in the
//! caller itself, whatever the compiler does to the functions behind.
//!
//! # Safety
//! Every function has the name and the contract of the C function that it stands in front of. Arguments are passed in the registers of the
//! System V ABI; the assembly uses only registers that hold no argument of the function at hand, and jumps with the stack as it found it.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use profile_recorder::preload::family::{self, Entry, Host};
use profile_recorder::preload::{self, OwnHeap};

#[global_allocator]
static HEAP: OwnHeap = OwnHeap::new();

struct Preload;

impl Host for Preload {
    fn start() {
        preload::start(&HEAP, &doors::DOORS, doors::own_malloc());
    }
}

/// Defines an exported function that passes the caller's registers on behind its own arguments.
macro_rules! export {
    ($name:ident($($arg:ident: $type:ty),*) -> $ret:ty, $sp:literal, $fp:literal) => {
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $ret {
            extern "C" fn body($($arg: $type,)* sp: u64, fp: u64) -> $ret {
                // SAFETY: called as the host calls the function.
                unsafe { family::$name::<Preload>($($arg,)* Entry { sp, fp }) }
            }
            naked_asm!(
                ".cfi_startproc",
                // The name under which this library finds its own function, whatever is in front of it.
                concat!(".hidden profrec_own_", stringify!($name)),
                concat!(".globl profrec_own_", stringify!($name)),
                concat!("profrec_own_", stringify!($name), ":"),
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $fp, ", rbp"),
                "jmp {body}",
                ".cfi_endproc",
                body = sym body,
            )
        }
    };
}

export!(reallocarray(address: *mut u8, count: usize, size: usize) -> *mut u8, "rcx", "r8");
export!(posix_memalign(to: *mut *mut u8, alignment: usize, size: usize) -> c_int, "rcx", "r8");
export!(aligned_alloc(alignment: usize, size: usize) -> *mut u8, "rdx", "rcx");
export!(memalign(alignment: usize, size: usize) -> *mut u8, "rdx", "rcx");
export!(valloc(size: usize) -> *mut u8, "rsi", "rdx");
export!(pvalloc(size: usize) -> *mut u8, "rsi", "rdx");

/// `dlclose` of the C library: what was known of the object may be wrong from now on.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let closing = preload::doors::closing();
    // SAFETY: as the host calls it.
    let result = unsafe { thread::next_dlclose(handle) };
    drop(closing);
    preload::object_closed();
    result
}

/// `munmap` of the C library: code that was generated there is no more.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    let result = match others::MUNMAP.get() {
        // SAFETY: as the host calls it.
        Some(other) => unsafe { other(address, length) },
        // SAFETY: as the host calls it; the C library's own does no more than this.
        None => (unsafe { filter::kernel(libc::SYS_munmap, address as u64, length as u64, 0, 0, 0, 0) }) as c_int,
    };
    let start = address as u64;
    preload::memory_unmapped(start, start.wrapping_add(length as u64));
    result
}

mod clone;
mod counted;
mod credentials;
mod doors;
mod execute;
mod filter;
mod heap;
mod label;
mod mask;
mod namespaces;
mod others;
mod signal;
mod thread;
// The oracle compares with the unwinder.
#[cfg(all(panic = "abort", not(feature = "oracle")))]
mod unwinder;
pub use clone::clone;
pub use counted::{calloc, free, malloc, malloc_usable_size, realloc};
pub use credentials::{capset, initgroups, setegid, seteuid, setgid, setgroups, setregid, setresgid};
pub use credentials::{setresuid, setreuid, setuid};
pub use execute::{daemon, execl, execle, execlp, execv, execve, execveat, execvp, execvpe, fexecve, fork, forkpty};
pub use execute::{popen, posix_spawn, posix_spawnp, system};
pub use filter::{prctl, syscall};
pub use label::{profile_recorder_label_enter_v1, profile_recorder_label_leave_v1};
pub use mask::{pthread_sigmask, signalfd, sigprocmask, sigtimedwait, sigwait, sigwaitinfo};
pub use namespaces::{setns, unshare};
pub use signal::{__sigaction, __sysv_signal, bsd_signal, sigaction, sigaltstack, sigignore, siginterrupt, signal};
pub use signal::{sigset, ssignal, sysv_signal};
pub use thread::pthread_create;

/// `_exit` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(code: c_int) -> ! {
    end(0, code)
}

#[inline(always)]
fn end(name: usize, code: c_int) -> ! {
    preload::exits();
    if let Some(other) = others::EXIT.get(name).and_then(others::Other::get) {
        // SAFETY: as the host calls it.
        unsafe { other(code) };
    }
    loop {
        // SAFETY: no memory is involved.
        unsafe { filter::kernel(libc::SYS_exit_group, code as u64, 0, 0, 0, 0, 0) };
    }
}

/// `_Exit` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(code: c_int) -> ! {
    end(1, code)
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        // The first allocation may not have come yet.
        family::ensure_started::<Preload>();
        others::set_up();
        execute::set_up();
        credentials::set_up();
        preload::constructor(signal::behind());
    }
    construct
};

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destruct() {
        preload::destructor();
    }
    destruct
};
