//! Threads that the application makes by `clone`: they tell neither that they begin nor that they end, but the preload library sees the function that they run.
//!
//! Called from: such a thread, before and after its function. May not: touch thread-local storage, which may be another thread's, or touch errno; nor take much of a stack that may be small.
#![allow(unsafe_code)]

use super::blocked::Blocked;
use super::stacks::{self, Work};
use super::{action, timers};
use capture::thread::{self, Current};

/// The calling thread begins.
pub(crate) fn begins() {
    done(&Beginning);
}

/// The calling thread ends.
pub(crate) fn ends() {
    done(&End);
}

fn done<W: Work>(work: &W) {
    if !action::is_installed() {
        return;
    }
    let _blocked = Blocked::new();
    // SAFETY: all signals are blocked, as in the handler.
    unsafe { stacks::done(work) };
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
