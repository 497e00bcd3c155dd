//! A lock for the slow paths of allocation hooks: refreshing the module list, building a table.
//!
//! Never taken in a signal handler, and never held across a call into the host. It spins, then yields; a waiter gives up after a bound, so that
//! a fork in an unlucky moment (the holder does not exist in the child) costs a pause and a stack, not a hang.

use crate::syscall::yield_now;
use core::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Spin(AtomicBool);

pub(crate) struct Held<'a>(&'a Spin);

impl Spin {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes the lock, waiting for at most about a second.
    pub(crate) fn lock(&self) -> Option<Held<'_>> {
        for round in 0..200_000_u32 {
            if self.0.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(Held(self));
            }
            if round < 100 { core::hint::spin_loop() } else { yield_now() }
        }
        None
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<Held<'_>> {
        let taken = self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(Held(self))
    }

    /// In a child after fork: whoever held it is not here.
    pub(crate) fn reset(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}
