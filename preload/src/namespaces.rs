//! `unshare` and `setns`: the kernel changes some namespaces of a process with one thread alone, that of users among them. Such a program has one, and the recorder may have another there.
//!
//! # Safety
//! Both do what the C library's functions of their names do: a system call, and errno.

use crate::filter::{errno, kernel, set_errno};
use crate::others;
use core::ffi::{c_int, c_long};
use profile_recorder::preload;

/// Makes one of the two calls.
pub(crate) unsafe extern "C" fn change(number: c_long, a: u64, b: u64) -> c_long {
    // SAFETY: as the host calls it; neither call has a third argument.
    alone(|| unsafe { kernel(number, a, b, 0, 0, 0, 0) })
}

fn alone(call: impl Fn() -> c_long) -> c_long {
    let (begun, mut result) = (errno(), 0);
    preload::alone(|| {
        set_errno(begun);
        result = call();
        if result == -1 { errno() } else { 0 }
    });
    result
}

/// `unshare` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    if let Some(other) = others::UNSHARE.get() {
        // SAFETY: as the host calls it.
        return alone(|| c_long::from(unsafe { other(flags) })) as c_int;
    }
    // SAFETY: as the host calls it.
    (unsafe { change(libc::SYS_unshare, flags as u64, 0) }) as c_int
}

/// `setns` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(descriptor: c_int, kind: c_int) -> c_int {
    if let Some(other) = others::SETNS.get() {
        // SAFETY: as the host calls it.
        return alone(|| c_long::from(unsafe { other(descriptor, kind) })) as c_int;
    }
    // SAFETY: as the host calls it.
    (unsafe { change(libc::SYS_setns, descriptor as u64, kind as u64) }) as c_int
}
