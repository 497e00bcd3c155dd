//! The end of a thread, told by the destructor of a thread-specific value.
//!
//! # Safety
//! The value is a small number, never dereferenced; the destructor has the type that the C library calls. The executable's program headers are mapped as long as the
//! process lives.
#![allow(unsafe_code)]

use crate::record;
use capture::thread::{self, Current, ThreadState};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Key of the thread-specific value, plus one; 0: none.
static KEY: AtomicU32 = AtomicU32::new(0);
/// Function called at the end of a thread that is registered, instead of [`thread::retire_current`].
static ON_END: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the key. Once in a process; more calls do nothing.
pub fn set_up() {
    if KEY.load(Ordering::Acquire) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: the destructor has the type that the function asks for.
    let result = unsafe { libc::pthread_key_create(&mut key, Some(ends)) };
    // glibc keeps the first 32 values in the thread itself; for others setting one would allocate, possibly in a handler.
    if result == 0 && key < 32 {
        KEY.store(key + 1, Ordering::Release);
    } else if result == 0 {
        // SAFETY: it was just made, and no thread has a value.
        unsafe { libc::pthread_key_delete(key) };
    }
}

/// Whether the object that this code is in was said to stay.
static STAYS: AtomicBool = AtomicBool::new(false);

/// Says that the object that this code is in is there as long as the process.
pub fn stays() {
    STAYS.store(true, Ordering::Release);
}

/// Whether the object that this code is in may be closed while the process goes on: a plugin.
pub fn may_close() -> bool {
    !STAYS.load(Ordering::Acquire) && !is_in_executable(may_close as *const () as u64)
}

/// Whether the address lies in the executable, by the program headers that the kernel tells every process.
fn is_in_executable(address: u64) -> bool {
    // SAFETY: it reads what the kernel left on the first stack.
    let (headers, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    if headers == 0 {
        return false;
    }
    // SAFETY: that many headers lie there, mapped and never written.
    let segments = unsafe { core::slice::from_raw_parts(headers as *const libc::Elf64_Phdr, count as usize) };
    let bias = segments.iter().find(|s| s.p_type == libc::PT_PHDR).map_or(0, |s| headers.wrapping_sub(s.p_vaddr));
    let begins = |segment: &libc::Elf64_Phdr| bias.wrapping_add(segment.p_vaddr);
    segments.iter().any(|s| s.p_type == libc::PT_LOAD && address.wrapping_sub(begins(s)) < s.p_memsz)
}

/// A plugin is closed: threads that end later would call what is not there any more. Everything else goes with the process, when ends are still to be told.
#[used]
#[unsafe(link_section = ".fini_array")]
static FORGET: extern "C" fn() = {
    extern "C" fn forget() {
        if may_close()
            && let Some(key) = KEY.swap(0, Ordering::AcqRel).checked_sub(1)
        {
            // SAFETY: the key was made by `set_up`.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
    forget
};

/// Sets what is done when a registered thread ends, on that thread. It retires the thread.
pub fn set_on_end(function: fn(&'static ThreadState)) {
    ON_END.store(function as *mut (), Ordering::Release);
}

/// The calling thread's end shall be told.
pub fn watch(_: &'static ThreadState) {
    set(1);
}

fn set(value: usize) {
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: the key was made by `set_up`; a value below the first 32 is only stored.
        unsafe { libc::pthread_setspecific(key, value as *const libc::c_void) };
    }
}

/// Other destructors may still allocate after ours, so the end is taken in the last round that POSIX guarantees (`PTHREAD_DESTRUCTOR_ITERATIONS` is 4).
unsafe extern "C" fn ends(value: *mut libc::c_void) {
    const LAST_ROUND: usize = 4;
    let round = value as usize;
    if round < LAST_ROUND {
        set(round + 1);
        return;
    }
    let Current::Known(thread) = thread::current() else { return };
    record::thread_ends(thread);
    let function = ON_END.load(Ordering::Acquire);
    if function.is_null() {
        thread::retire_current();
    } else {
        // SAFETY: `set_on_end` stored a function of this type.
        unsafe { core::mem::transmute::<*mut (), fn(&'static ThreadState)>(function)(thread) };
    }
}
