//! Functions under our names that other libraries have, behind ours and before the C library: the host would call those without us, and so do we. Some do what the C library's does and more (a sandbox
//! keeps a signal unblocked, another library wants to know of what is unmapped); one of graphviz has a `clone` that copies graphs.
//!
//! Called from: the constructor finds them; after that anywhere, a child after fork and handlers included.

use crate::thread::next;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use libc::sigset_t;
use profile_recorder::preload;

/// Another library's function, if there is one.
pub(crate) struct Other<F> {
    name: &'static CStr,
    function: AtomicPtr<c_void>,
    of: core::marker::PhantomData<fn(F)>,
}

impl<F: Copy> Other<F> {
    const fn new(name: &'static CStr) -> Self {
        Self { name, function: AtomicPtr::new(core::ptr::null_mut()), of: core::marker::PhantomData }
    }

    /// It, where it is not the C library's.
    #[inline]
    pub(crate) fn get(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a pointer to a function") };
        let function = self.function.load(Ordering::Relaxed);
        // SAFETY: functions of that name have that type, or one that the same registers pass.
        (!function.is_null()).then(|| unsafe { core::mem::transmute_copy::<*mut c_void, F>(&function) })
    }

    fn find(&self) {
        let found = next(&AtomicPtr::new(core::ptr::null_mut()), self.name);
        if !found.is_null() && !preload::is_in_libc(found as u64) {
            self.function.store(found, Ordering::Relaxed);
        }
    }
}

pub(crate) type Mask = unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int;
type Word = u64;

pub(crate) static CLONE: Other<unsafe extern "C" fn(Word, Word, Word, Word, Word, Word, Word) -> isize> =
    Other::new(c"clone");
pub(crate) static MUNMAP: Other<unsafe extern "C" fn(*mut c_void, usize) -> c_int> = Other::new(c"munmap");
pub(crate) static PTHREAD_SIGMASK: Other<Mask> = Other::new(c"pthread_sigmask");
pub(crate) static SIGPROCMASK: Other<Mask> = Other::new(c"sigprocmask");
pub(crate) static SETNS: Other<unsafe extern "C" fn(c_int, c_int) -> c_int> = Other::new(c"setns");
pub(crate) static UNSHARE: Other<unsafe extern "C" fn(c_int) -> c_int> = Other::new(c"unshare");
pub(crate) static CAPSET: Other<unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int> = Other::new(c"capset");
pub(crate) static EXIT: [Other<unsafe extern "C" fn(c_int)>; 2] = [Other::new(c"_exit"), Other::new(c"_Exit")];

/// Finds them. In the constructor.
pub(crate) fn set_up() {
    CLONE.find();
    MUNMAP.find();
    PTHREAD_SIGMASK.find();
    SIGPROCMASK.find();
    SETNS.find();
    UNSHARE.find();
    CAPSET.find();
    EXIT.iter().for_each(Other::find);
}
