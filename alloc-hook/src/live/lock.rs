//! The lock of a shard.

use capture::wait;
use core::sync::atomic::{AtomicBool, Ordering};

/// How long a lock is waited for: a thread that is inside the recorder already, below a signal handler of the host, may be the one that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    ForAWhile,
    Never,
}

#[derive(Debug)]
pub(super) struct Lock(AtomicBool);

/// The lock is held until this is dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a Lock);

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.reset();
    }
}

impl Lock {
    pub(super) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Nobody holds it.
    #[inline(always)]
    pub(super) fn reset(&self) {
        self.0.store(false, Ordering::Release);
    }

    #[inline(always)]
    fn try_lock(&self) -> Option<Held<'_>> {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| Held(self))
    }

    /// Takes it; `None` if another has it for too long.
    #[inline(always)]
    pub(super) fn lock(&self, wait: Wait) -> Option<Held<'_>> {
        self.try_lock().or_else(|| self.wait_for(wait))
    }

    #[cold]
    #[inline(never)]
    fn wait_for(&self, wait: Wait) -> Option<Held<'_>> {
        if wait == Wait::Never {
            return None;
        }
        let mut held = None;
        wait::wait_until(|| {
            held = self.try_lock();
            held.is_some()
        });
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_until_it_is_dropped() {
        let lock = Lock::new();
        let held = lock.lock(Wait::Never).unwrap();
        assert!(lock.lock(Wait::Never).is_none());
        assert!(lock.lock(Wait::ForAWhile).is_none());
        drop(held);
        assert!(lock.lock(Wait::Never).is_some());
    }
}
