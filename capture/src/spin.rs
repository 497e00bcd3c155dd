//! A lock for what is seldom done where the application's own calls arrive: refreshing the module list, building a table, changing a signal's action.
//!
//! Never taken in a signal handler, and never held across a call into the host. All signals that can wait are blocked wherever it is taken ([`Blocked`](crate::blocked::Blocked)): a handler of the host that left by a jump
//! would leave it taken. It spins, then yields; a waiter gives up after a while. Of a lock that is held in a process that forks, the child knows that its holder is not there: what was taken before the fork is free.

use crate::region;
use crate::wait::wait_until;
use core::sync::atomic::{AtomicU32, Ordering};

/// A lock without a content.
#[derive(Debug)]
pub struct Spin(
    /// 0 if it is free, else the number of the region in which it was taken, plus one.
    AtomicU32,
);

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
        Self(AtomicU32::new(0))
    }

    /// Takes the lock, waiting for at most about a second; `None` after that.
    pub fn lock(&self) -> Option<Held<'_>> {
        wait_until(|| self.take()).then_some(Held(self))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Held<'_>> {
        self.take().then_some(Held(self))
    }

    /// Whether it was taken before the fork, by a thread of the parent: what that was doing is half done.
    pub fn is_left_behind(&self) -> bool {
        let holder = self.0.load(Ordering::Relaxed);
        holder != 0 && holder != region::epoch().wrapping_add(1)
    }

    fn take(&self) -> bool {
        let mine = region::epoch().wrapping_add(1);
        let before = self.0.load(Ordering::Relaxed);
        // Whoever took it before the fork is in the parent.
        before != mine && self.0.compare_exchange(before, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_until_it_is_dropped() {
        let lock = Spin::new();
        let held = lock.lock();
        assert!(held.is_some() && lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
