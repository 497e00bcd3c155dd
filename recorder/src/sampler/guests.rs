//! Threads that the application makes by `clone`: they tell neither that they begin nor that they end, but the preload library sees the function that they run.
//!
//! Called from: such a thread, before and after its function. May not: touch thread-local storage, which may be another thread's, or touch errno; nor take much of a stack that may be small.
#![allow(unsafe_code)]

use super::{action, timers};
use capture::blocked::Blocked;
use capture::stacks::{self, Work};
use capture::thread::{self, Current};

/// The calling thread begins.
pub(crate) fn begins() {
    drop(done(&Beginning));
}

/// The calling thread ends: it has nothing left to do but to tell the kernel. Its signals stay blocked: nothing tells it from a new thread any more, and a tick of a timer that was started from outside
/// would find one that has no sample yet, and give it all of its CPU time a second time.
pub(crate) fn ends() {
    core::mem::forget(done(&End));
}

/// Does it, with all signals blocked from then on, if there is a handler.
fn done<W: Work>(work: &W) -> Option<Blocked> {
    action::is_installed().then(|| {
        let blocked = Blocked::new();
        // SAFETY: all signals are blocked, as in the handler.
        unsafe { stacks::done(work) };
        blocked
    })
}

struct Beginning;

impl Work for Beginning {
    unsafe fn work(&self, _: bool) {
        let _ = thread::current_in_handler();
    }
}

struct End;

impl Work for End {
    unsafe fn work(&self, _: bool) {
        let Current::Known(thread) = thread::current_in_handler() else { return };
        timers::leave(thread);
        if thread.is_guest() {
            thread::retire_guest(thread);
        } else {
            thread::retire_current();
        }
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::super::cpu::Timers;
    use super::*;
    use capture::clock;
    use capture::syscall;
    use std::sync::atomic::{AtomicU32, Ordering};

    const PERIOD_NS: u64 = 1_000_000;

    static TID: AtomicU32 = AtomicU32::new(0);
    /// What the thread may do, and what it has done.
    static ALLOWED: AtomicU32 = AtomicU32::new(0);
    static DONE: AtomicU32 = AtomicU32::new(0);

    fn burn() {
        let begun = clock::thread_cpu_ns();
        while clock::thread_cpu_ns() - begun < 40 * PERIOD_NS {}
    }

    fn wait_for(what: &AtomicU32, number: u32) {
        while what.load(Ordering::Acquire) < number {
            core::hint::spin_loop();
        }
    }

    /// May not touch thread-local storage, which is its creator's.
    extern "C" fn runs(_: *mut libc::c_void) -> libc::c_int {
        TID.store(syscall::gettid(), Ordering::Release);
        begins();
        DONE.store(1, Ordering::Release);
        wait_for(&ALLOWED, 1);
        burn();
        DONE.store(2, Ordering::Release);
        wait_for(&ALLOWED, 2);
        ends();
        burn();
        DONE.store(3, Ordering::Release);
        wait_for(&ALLOWED, 3);
        0
    }

    fn state() -> Option<&'static thread::ThreadState> {
        let mut found = None;
        thread::each(|state| found = found.or((state.tid() == TID.load(Ordering::Acquire)).then_some(state)));
        found
    }

    // musl's `clone` makes no threads.
    #[cfg(not(target_env = "musl"))]
    #[test]
    fn a_tick_after_the_end_makes_no_new_thread() {
        assert!(crate::start::in_library(0) && action::install());
        let mut stack = vec![0_u128; 64 << 10];
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        // SAFETY: the stack is this thread's alone, and stays: it is not given back.
        assert_ne!(unsafe { libc::clone(runs, stack.as_mut_ptr_range().end.cast(), flags, std::ptr::null_mut()) }, -1);
        std::mem::forget(stack);
        wait_for(&DONE, 1);
        assert!(state().is_some_and(thread::ThreadState::is_guest));
        let timers = Timers::start(PERIOD_NS).expect("it starts");
        ALLOWED.store(1, Ordering::Release);
        wait_for(&DONE, 2);
        assert!(state().is_some_and(|state| state.sampled_cpu_ns.load(Ordering::Relaxed) != 0), "ticks come");
        ALLOWED.store(2, Ordering::Release);
        wait_for(&DONE, 3);
        assert!(state().is_none(), "it is there again");
        ALLOWED.store(3, Ordering::Release);
        timers.stop(&mut capture::tree::Tree::new());
    }
}
