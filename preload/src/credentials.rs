//! `setuid` and its kin, and what gives one thread other rights than the rest.
//!
//! The kernel knows credentials of threads only. The C library makes these calls on all of its threads, and aborts where one has another result than the rest. A program of one thread that takes
//! (or keeps) capabilities before has that thread alone; the recorder's would have another result. Nor should they have rights that the program gave up.
//!
//! # Safety
//! Each does what the C library's function of its name does, most by that function itself.

use crate::filter::{errno, kernel, set_errno};
use crate::{others, thread};
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::AtomicPtr;
use libc::{gid_t, size_t, uid_t};
use profile_recorder::preload::{self, Change};

/// A function of the C library.
struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    fn find(&self) -> *mut c_void {
        thread::next(&self.found, self.name)
    }
}

/// Defines an exported function that calls the next of its name.
macro_rules! change {
    ($name:ident, $next:ident, ($($arg:ident: $type:ty),*)) => {
        static $next: Next = {
            // SAFETY: the text ends with a zero, and has no other.
            Next::new(unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) })
        };

        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            let function = $next.find();
            if function.is_null() {
                set_errno(libc::ENOSYS);
                return -1;
            }
            // SAFETY: the symbol of that name has this type.
            let function = unsafe { core::mem::transmute::<*mut c_void, Function>(function) };
            change(|| {
                // SAFETY: as the host calls it.
                unsafe { function($($arg),*) }
            })
        }
    };
}

change!(setuid, SETUID, (user: uid_t));
change!(setgid, SETGID, (group: gid_t));
change!(seteuid, SETEUID, (effective: uid_t));
change!(setegid, SETEGID, (effective: gid_t));
change!(setreuid, SETREUID, (real: uid_t, effective: uid_t));
change!(setregid, SETREGID, (real: gid_t, effective: gid_t));
change!(setresuid, SETRESUID, (real: uid_t, effective: uid_t, saved: uid_t));
change!(setresgid, SETRESGID, (real: gid_t, effective: gid_t, saved: gid_t));
change!(setgroups, SETGROUPS, (count: size_t, groups: *const gid_t));
change!(initgroups, INITGROUPS, (user: *const c_char, group: gid_t));

fn change(call: impl FnOnce() -> c_int) -> c_int {
    let begun = errno();
    let (result, error) = preload::as_one(|| {
        set_errno(begun);
        (call(), errno())
    });
    set_errno(error);
    result
}

/// Finds the C library's functions: a program may call them where the dynamic linker cannot be asked any more, in a child after fork.
pub(crate) fn set_up() {
    for next in
        [&SETUID, &SETGID, &SETEUID, &SETEGID, &SETREUID, &SETREGID, &SETRESUID, &SETRESGID, &SETGROUPS, &INITGROUPS]
    {
        next.find();
    }
}

/// `capset` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capset(header: *mut c_void, capabilities: *const c_void) -> c_int {
    if let Some(other) = others::CAPSET.get() {
        // SAFETY: as the host calls it.
        let result = unsafe { other(header, capabilities) };
        if result == 0 {
            changed(None);
        }
        return result;
    }
    // SAFETY: as the host calls it.
    (unsafe { of_thread(libc::SYS_capset, header as u64, capabilities as u64, 0) }) as c_int
}

/// Makes a call that changes what the calling thread alone may do.
pub(crate) unsafe extern "C" fn of_thread(number: c_long, a: u64, b: u64, c: u64) -> c_long {
    // SAFETY: as the host calls it; none of these has a fourth argument.
    let result = unsafe { kernel(number, a, b, c, 0, 0, 0) };
    if result == 0 && number == libc::SYS_capset {
        // SAFETY: the kernel has just read both.
        changed(Some(unsafe { capabilities(a as *const u32, b as *const u32) }));
    } else if result == 0 {
        changed(Change::of_ids(number as usize, [a, b, c].map(|id| id as usize)));
    }
    result
}

/// What `capset` was given.
unsafe fn capabilities(header: *const u32, sets: *const u32) -> Change {
    /// Sets of 32 capabilities; later versions have twice as many.
    const VERSION_1: u32 = 0x1998_0330;
    // SAFETY: as the caller promises.
    let version = unsafe { header.read_unaligned() };
    let mut copied = [0; 6];
    for (number, set) in copied.iter_mut().enumerate().take(if version == VERSION_1 { 3 } else { 6 }) {
        // SAFETY: as the caller promises: so many there are.
        *set = unsafe { sets.add(number).read_unaligned() };
    }
    Change::of_capabilities(version, copied)
}

/// The calling thread has changed what it alone may do.
pub(crate) fn changed(change: Option<Change>) {
    let begun = errno();
    preload::rights_changed(change);
    set_errno(begun);
}
