//! Masks of signals. A program that blocks everything, to wait for signals in one place, does not mean the tick: it would find ticks among the signals that it
//! waits for, and none of its threads could be sampled. So a set of everything does not hold the tick here. A set that names it among few others is left alone.
//!
//! # Safety
//! Each function does what the C library's function of its name does. The kernel's sets are the first 64 bits of the C library's.

use crate::filter::{errno, kernel, set_errno};
use crate::others;
use crate::thread::next;
use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::AtomicPtr;
use libc::{sigset_t, timespec};
use profile_recorder::preload;

/// Bytes of the kernel's sets.
const SET_BYTES: u64 = 8;
/// Signals that the C library uses itself, and lets nobody block.
const OF_THE_LIBRARY: u64 = bit(32) | bit(33);
/// A set with so many signals was meant to have all but a few.
const EVERYTHING: u32 = 32;

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The bits of a set, the tick not among them if everything is.
///
/// # Safety
/// The set is valid.
unsafe fn meant(set: *const sigset_t) -> u64 {
    // SAFETY: as the caller promises; a set begins with the kernel's.
    let bits = unsafe { set.cast::<u64>().read() };
    if bits.count_ones() >= EVERYTHING { bits & !preload::own_signals() } else { bits }
}

/// Leaves the tick out of what a handler blocks, if that is everything. A tick that came meanwhile would reach the thread when the handler returns: behind a call that the handler's signal had
/// broken off, and nothing would tell that the tick had not.
pub(crate) fn mean(set: &mut sigset_t) {
    // SAFETY: a set begins with the kernel's, and is written as it was read.
    unsafe { (&raw mut *set).cast::<u64>().write(meant(set)) };
}

/// What [`mean`] left out of the bits is told all the same.
pub(crate) fn told(bits: u64) -> u64 {
    if bits.count_ones() >= EVERYTHING { bits | preload::own_signals() } else { bits }
}

/// Changes the calling thread's mask, by sets of the kernel's; 0, or -1 and errno.
///
/// # Safety
/// The pointers are null or valid.
pub(crate) unsafe fn change(how: c_int, set: *const u64, old: *mut u64) -> c_long {
    // SAFETY: as the caller promises.
    unsafe { kernel(libc::SYS_rt_sigprocmask, how as u64, set as u64, old as u64, SET_BYTES, 0, 0) }
}

/// A set as it was meant; nothing is hidden from what shall pass.
unsafe fn meant_for(how: c_int, set: *const sigset_t) -> Option<sigset_t> {
    // SAFETY: as the host calls it.
    unsafe { set.as_ref() }.map(|set| {
        let mut set = *set;
        if how != libc::SIG_UNBLOCK {
            mean(&mut set);
        }
        set
    })
}

/// `pthread_sigmask` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: as the host calls it.
    unsafe {
        let set = meant_for(how, set);
        match others::PTHREAD_SIGMASK.get() {
            Some(other) => other(how, set.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), old),
            None => change_or_error(how, set.as_ref(), old),
        }
    }
}

/// `sigprocmask` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: as the host calls it.
    let error = unsafe {
        let set = meant_for(how, set);
        if let Some(other) = others::SIGPROCMASK.get() {
            return other(how, set.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), old);
        }
        change_or_error(how, set.as_ref(), old)
    };
    if error == 0 {
        return 0;
    }
    set_errno(error);
    -1
}

/// Changes the calling thread's mask; the number of the error, which `errno` does not get.
unsafe fn change_or_error(how: c_int, set: Option<&sigset_t>, old: *mut sigset_t) -> c_int {
    // SAFETY: a set begins with the kernel's.
    let bits = set.map(|set| unsafe { core::ptr::from_ref(set).cast::<u64>().read() } & !OF_THE_LIBRARY);
    let before = errno();
    // SAFETY: as the host calls it.
    let result = unsafe { change(how, bits.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), old.cast()) };
    if result == 0 {
        return 0;
    }
    let error = errno();
    set_errno(before);
    error
}

/// `signalfd` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signalfd(fd: c_int, set: *const sigset_t, flags: c_int) -> c_int {
    // SAFETY: as the host calls it.
    let bits = unsafe { meant(set) };
    let bits = (&raw const bits) as u64;
    // SAFETY: the kernel reads one set.
    (unsafe { kernel(libc::SYS_signalfd4, fd as u64, bits, SET_BYTES, flags as u64, 0, 0) }) as c_int
}

/// Calls the C library's own function, which is a place of cancellation, with the set as it was meant.
///
/// Threads are unwound through it when they are cancelled. Rust that is compiled to abort on panic would end the process there, so it is assembly with plain unwind
/// information.
macro_rules! wait {
    ($name:ident($($arg:ident: $type:ty),*), $text:literal, $failed:expr) => {
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(set: *const sigset_t, $($arg: $type),*) -> c_int {
            extern "C" fn prepare(set: *const sigset_t, to: *mut sigset_t) -> *mut c_void {
                static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                // SAFETY: as the host calls it; `to` is room for a set in the caller's frame, and begins with the kernel's set.
                unsafe {
                    to.write(set.read());
                    to.cast::<u64>().write(meant(set));
                }
                next(&NEXT, $text)
            }
            naked_asm!(
                ".cfi_startproc",
                "sub rsp, 152",
                ".cfi_def_cfa_offset 160",
                "mov qword ptr [rsp + 128], rsi",
                "mov qword ptr [rsp + 136], rdx",
                "mov rsi, rsp",
                "call {prepare}",
                "mov r11, rax",
                "mov eax, {failed}",
                "test r11, r11",
                "jz 2f",
                "mov rdi, rsp",
                "mov rsi, qword ptr [rsp + 128]",
                "mov rdx, qword ptr [rsp + 136]",
                "call r11",
                "2:",
                "add rsp, 152",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                prepare = sym prepare,
                failed = const $failed,
            )
        }
    };
}

wait!(sigwait(signal: *mut c_int), c"sigwait", libc::EINVAL);
wait!(sigwaitinfo(info: *mut libc::siginfo_t), c"sigwaitinfo", -1);
wait!(sigtimedwait(info: *mut libc::siginfo_t, timeout: *const timespec), c"sigtimedwait", -1);
