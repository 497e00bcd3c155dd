//! `sigaction` and `signal`: an application that handles a signal of the recorder's too keeps its handler, and the recorder its own.

use crate::thread::next;
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicPtr;
use profile_recorder::preload::{self, Sigaction, Sigactions};

/// What is behind our `sigaction`. Found once, by the constructor if no other calls it before: a handler and a child after fork may call it, and not look for names.
///
/// A sanitizer's is not set up yet when this library begins, and does not do what it says; and the thread sanitizer's puts signals off.
pub(crate) fn behind() -> Option<Sigactions> {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let find = |slot, name| {
        let function = next(slot, name);
        // SAFETY: the symbols of these names have this type.
        (!function.is_null()).then(|| unsafe { core::mem::transmute::<*mut c_void, Sigaction>(function) })
    };
    let following = find(&NEXT, c"sigaction")?;
    // glibc's other name for its own, which nobody stands in front of.
    Some(Sigactions { real: find(&REAL, c"__sigaction").unwrap_or(following), following })
}

/// `sigaction` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(behind) = behind() else { return -1 };
    // SAFETY: as the host calls it.
    unsafe { preload::sigaction(signal, new, old, &behind) }
}

/// `signal` of the C library, in its BSD meaning: the handler stays, and calls are restarted.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    type Signal = unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    if !preload::is_own_signal(signal) {
        let function = next(&NEXT, c"signal");
        if function.is_null() {
            return libc::SIG_ERR;
        }
        // SAFETY: the symbol of that name has this type; as the host calls it.
        return unsafe { core::mem::transmute::<*mut c_void, Signal>(function)(signal, handler) };
    }
    // SAFETY: zeroed is a valid `sigaction`; both live through the call.
    unsafe {
        let mut new: libc::sigaction = core::mem::zeroed();
        let mut old: libc::sigaction = core::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        if sigaction(signal, &new, &mut old) == 0 { old.sa_sigaction } else { libc::SIG_ERR }
    }
}
