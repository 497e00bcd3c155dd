//! `sigaction` and what else changes the action for a signal: an application that handles a signal of the recorder's too keeps its handler, and the recorder its own. And `sigaltstack`.
//!
//! The C library's other functions call its own `sigaction`, past ours. So each is here, and does for a signal of ours what the C library's does, by ours; for all others the next function of its
//! name is called.

use crate::filter::kernel;
use crate::mask;
use crate::thread::next;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
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
    if preload::is_own_signal(signal) {
        // SAFETY: as the host calls it.
        return unsafe { preload::sigaction(signal, new, old, &behind, false) };
    }
    // SAFETY: as the host calls it.
    let new = unsafe { new.as_ref() }.map(|new| {
        let mut new = *new;
        mask::mean(&mut new.sa_mask);
        new
    });
    let pointer = new.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: as the host calls it.
    let result = unsafe { preload::sigaction(signal, pointer, old, &behind, false) };
    // SAFETY: as the host calls it.
    if let Some(old) = unsafe { old.as_mut() }.filter(|_| result == 0) {
        let bits = (&raw mut old.sa_mask).cast::<u64>();
        // SAFETY: a set begins with the kernel's, and is written as it was read.
        unsafe { bits.write(mask::told(bits.read())) };
    }
    result
}

/// Another name of [`sigaction`].
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: as the host calls it.
    unsafe { sigaction(signal, new, old) }
}

/// What `sigset` takes and returns for a signal that is blocked.
const SIG_HOLD: libc::sighandler_t = 2;

/// Signals that break calls off, by `siginterrupt`: one bit each.
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn fail(error: c_int) {
    // SAFETY: the address of the calling thread's errno.
    unsafe { *libc::__errno_location() = error };
}

fn refuse() -> libc::sighandler_t {
    fail(libc::EINVAL);
    libc::SIG_ERR
}

/// Sets the action for a signal of ours; the handler that was there, or SIG_ERR.
fn set(signal: c_int, handler: libc::sighandler_t, mask: u64, flags: c_int) -> libc::sighandler_t {
    // SAFETY: zeroed is a valid `sigaction`, whose set begins with the kernel's; both live through the call.
    unsafe {
        let mut new: libc::sigaction = core::mem::zeroed();
        let mut old: libc::sigaction = core::mem::zeroed();
        (new.sa_sigaction, new.sa_flags) = (handler, flags);
        (&raw mut new.sa_mask).cast::<u64>().write(mask);
        if sigaction(signal, &new, &mut old) == 0 { old.sa_sigaction } else { libc::SIG_ERR }
    }
}

/// As `signal` means it: the handler stays, and calls are restarted, unless `siginterrupt` said otherwise.
fn set_as_bsd(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    if handler == libc::SIG_ERR {
        return refuse();
    }
    let interrupts = INTERRUPTS.load(Ordering::Relaxed) & bit(signal) != 0;
    set(signal, handler, bit(signal), if interrupts { 0 } else { libc::SA_RESTART })
}

/// As System V means it: for one signal, which is not blocked meanwhile.
fn set_as_sysv(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    if handler == libc::SIG_ERR {
        return refuse();
    }
    set(signal, handler, 0, libc::SA_RESETHAND | libc::SA_NODEFER)
}

/// As `sigset` means it: blocked where the handler is SIG_HOLD, else not blocked any more.
fn set_and_unblock(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    let (wanted, mut before) = (bit(signal), 0_u64);
    let mut change = |how| {
        let (set, old) = ((&raw const wanted).cast(), (&raw mut before).cast());
        // SAFETY: the kernel reads one set of eight bytes and writes another.
        unsafe { mask::change(how, set, old) == 0 && before & wanted != 0 }
    };
    if handler == SIG_HOLD {
        return if change(libc::SIG_BLOCK) { SIG_HOLD } else { handler_of(signal) };
    }
    let old = set(signal, handler, 0, 0);
    if old != libc::SIG_ERR && change(libc::SIG_UNBLOCK) { SIG_HOLD } else { old }
}

fn handler_of(signal: c_int) -> libc::sighandler_t {
    // SAFETY: zeroed is a valid `sigaction`, which lives through the call.
    unsafe {
        let mut old: libc::sigaction = core::mem::zeroed();
        if sigaction(signal, core::ptr::null(), &mut old) == 0 { old.sa_sigaction } else { libc::SIG_ERR }
    }
}

/// Defines a function that takes a signal and a handler, and returns the handler that was there.
macro_rules! setter {
    ($name:ident, $text:literal, $of_ours:ident) => {
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
            type Function = unsafe extern "C" fn(c_int, libc::sighandler_t) -> libc::sighandler_t;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            if preload::is_own_signal(signal) {
                return $of_ours(signal, handler);
            }
            let function = next(&NEXT, $text);
            if function.is_null() {
                fail(libc::ENOSYS);
                return libc::SIG_ERR;
            }
            // SAFETY: the symbol of that name has this type; as the host calls it.
            unsafe { core::mem::transmute::<*mut c_void, Function>(function)(signal, handler) }
        }
    };
}

setter!(signal, c"signal", set_as_bsd);
setter!(bsd_signal, c"bsd_signal", set_as_bsd);
setter!(ssignal, c"ssignal", set_as_bsd);
setter!(sysv_signal, c"sysv_signal", set_as_sysv);
setter!(__sysv_signal, c"__sysv_signal", set_as_sysv);
setter!(sigset, c"sigset", set_and_unblock);

/// `sigignore` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(signal: c_int) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    if preload::is_own_signal(signal) {
        return if set(signal, libc::SIG_IGN, 0, 0) == libc::SIG_ERR { -1 } else { 0 };
    }
    let function = next(&NEXT, c"sigignore");
    if function.is_null() {
        fail(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the symbol of that name has this type; as the host calls it.
    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> c_int>(function)(signal) }
}

/// `siginterrupt` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, c_int) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    if (1..=64).contains(&signal) {
        // Of others too, which may be ours by the time of the next `signal`.
        match interrupt {
            0 => INTERRUPTS.fetch_and(!bit(signal), Ordering::Relaxed),
            _ => INTERRUPTS.fetch_or(bit(signal), Ordering::Relaxed),
        };
    }
    if preload::is_own_signal(signal) {
        // SAFETY: zeroed is a valid `sigaction`, which lives through the calls.
        return unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if sigaction(signal, core::ptr::null(), &mut action) != 0 {
                return -1;
            }
            action.sa_flags = action.sa_flags & !libc::SA_RESTART | if interrupt == 0 { libc::SA_RESTART } else { 0 };
            sigaction(signal, &action, core::ptr::null_mut())
        };
    }
    let function = next(&NEXT, c"siginterrupt");
    if function.is_null() {
        fail(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the symbol of that name has this type; as the host calls it.
    unsafe { core::mem::transmute::<*mut c_void, Function>(function)(signal, interrupt) }
}

/// The kernel's own structure.
#[repr(C)]
struct Raw {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// `rt_sigaction`, by its number.
///
/// # Safety
/// As the system call.
pub(crate) unsafe extern "C" fn by_number(number: c_long, signal: u64, new: u64, old: u64, size: u64) -> c_long {
    // SAFETY: as the host calls it.
    let call = |signal: u64, new, old| unsafe { kernel(number, signal, new, old, size, 0, 0) };
    let signal_number = signal as c_int;
    if !preload::is_taken(signal_number) {
        let result = call(signal, new, old);
        // SAFETY: the kernel has just read it.
        if let Some(new) = unsafe { (new as *const Raw).as_ref() }.filter(|_| result == 0) {
            preload::note_action(signal_number, new.handler, new.flags as c_int);
        }
        // SAFETY: the kernel has just written it.
        if let Some(old) = unsafe { (old as *mut Raw).as_mut() }.filter(|_| result == 0) {
            old.mask = mask::told(old.mask);
        }
        return result;
    }
    let Some(behind) = behind() else { return call(signal, new, old) };
    let errno = error();
    // The kernel refuses what it cannot read before it refuses to handle this one; and what it cannot write when it is asked.
    if (new != 0 && call(libc::SIGKILL as u64, new, 0) == -1 && error() == libc::EFAULT) || call(signal, 0, old) == -1 {
        return -1;
    }
    // SAFETY: as the kernel just found; zeroed is a valid `sigaction`, whose set begins with the kernel's.
    unsafe {
        let mut wanted: libc::sigaction = core::mem::zeroed();
        let mut before: libc::sigaction = core::mem::zeroed();
        let new = (new as *const Raw).as_ref();
        if let Some(new) = new {
            (wanted.sa_sigaction, wanted.sa_flags) = (new.handler, new.flags as c_int);
            wanted.sa_restorer = core::mem::transmute::<usize, Option<extern "C" fn()>>(new.restorer);
            (&raw mut wanted.sa_mask).cast::<u64>().write(new.mask);
        }
        let wanted = new.map_or(core::ptr::null(), |_| &raw const wanted);
        if preload::sigaction(signal_number, wanted, &mut before, &behind, true) != 0 {
            return -1;
        }
        fail(errno);
        if old != 0 {
            let restorer = before.sa_restorer.map_or(0, |restorer| restorer as usize);
            let mask = (&raw const before.sa_mask).cast::<u64>().read();
            let flags = u64::from(before.sa_flags.cast_unsigned());
            (old as *mut Raw).write(Raw { handler: before.sa_sigaction, flags, restorer, mask });
        }
    }
    0
}

/// `sigaltstack` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // SAFETY: as the host calls it.
    (unsafe { stack_by_number(libc::SYS_sigaltstack, new, old) }) as c_int
}

/// The same, by its number.
///
/// # Safety
/// As the system call.
pub(crate) unsafe extern "C" fn stack_by_number(
    number: c_long,
    new: *const libc::stack_t,
    old: *mut libc::stack_t,
) -> c_long {
    // SAFETY: as the host calls it.
    let call = |new, old| unsafe { kernel(number, new as u64, old as u64, 0, 0, 0, 0) as c_int };
    // SAFETY: as the host calls it.
    c_long::from(unsafe { preload::sigaltstack(new, old, call) })
}

fn error() -> c_int {
    // SAFETY: the address of the calling thread's errno.
    unsafe { *libc::__errno_location() }
}
