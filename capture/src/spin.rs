//! A lock for what is seldom done where the application's own calls arrive: refreshing the module list, building a table, changing a signal's action.
//!
//! Never taken in a signal handler (or with all signals blocked wherever it is taken), and never held across a call into the host. It spins, then yields; a waiter gives up after a bound, so that
//! a fork in an unlucky moment (the holder does not exist in the child) costs a pause and a stack, not a hang.

use crate::syscall::yield_now;
use core::sync::atomic::{AtomicBool, Ordering};

/// A lock without a content.
#[derive(Debug)]
pub struct Spin(AtomicBool);

impl Default for Spin {
    fn default() -> Self {
        Self::new()
    }
}

/// The right to go on, until this is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a Spin);

impl Spin {
    /// A free one.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes the lock, waiting for at most about a second; `None` after that.
    pub fn lock(&self) -> Option<Held<'_>> {
        for round in 0..200_000_u32 {
            if self.0.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(Held(self));
            }
            if round < 100 { core::hint::spin_loop() } else { yield_now() }
        }
        None
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Held<'_>> {
        let taken = self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(Held(self))
    }

    /// In a child after fork: whoever held it is not here.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}
