//! The lock of a shard.

use capture::thread::offsets::NO_STATE;
use capture::{tls, wait};
use core::sync::atomic::{AtomicUsize, Ordering};

/// How long a lock is waited for: a thread that is inside the recorder already, below a signal handler of the host, may be the one that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    ForAWhile,
    Never,
}

#[derive(Debug)]
pub(super) struct Lock(
    /// 0 if it is free, else [`holder`], and [`IN_VAIN`] if it was waited for as long as anybody waits.
    AtomicUsize,
);

/// Nobody waits again for whoever has it: a thread that left it by a jump, and does nothing, or one that a debugger stopped.
const IN_VAIN: usize = 1 << 2;

/// Set in every holder: a thread's word can be zero.
const TAKEN: usize = 1;

/// The calling thread's word, as that of one that holds a lock. Threads without a state cannot be told apart by it.
#[inline(always)]
fn holder() -> usize {
    tls::get() | TAKEN
}

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
        Self(AtomicUsize::new(0))
    }

    /// Nobody holds it.
    #[inline(always)]
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn try_lock(&self) -> Option<Held<'_>> {
        self.0.compare_exchange(0, holder(), Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| Held(self))
    }

    /// Takes it over from a hook of the calling thread that will not come back; `None` if no such hook held it.
    pub(super) fn take_over(&self) -> Option<Held<'_>> {
        let holder = self.0.load(Ordering::Relaxed) & !IN_VAIN;
        (holder > NO_STATE | TAKEN && holder == self::holder()).then(|| Held(self))
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
        let is_decided = wait::wait_until(|| {
            held = self.try_lock();
            held.is_some() || self.0.load(Ordering::Relaxed) & IN_VAIN != 0
        });
        let holder = self.0.load(Ordering::Relaxed);
        if !is_decided && holder != 0 {
            let _ = self.0.compare_exchange(holder, holder | IN_VAIN, Ordering::Relaxed, Ordering::Relaxed);
        }
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
        assert_ne!(lock.0.load(Ordering::Relaxed) & IN_VAIN, 0);
        drop(held);
        assert!(lock.lock(Wait::ForAWhile).is_some());
        assert_eq!(lock.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_a_hook_left_locked_is_its_threads_to_take_over() {
        let (lock, state) = (Lock::new(), 0x7f00_0000_1000);
        let before = tls::get();
        let as_thread = |word| tls::set(word);
        as_thread(state);
        core::mem::forget(lock.lock(Wait::Never));
        as_thread(state + 0x1000);
        assert!(lock.take_over().is_none() && lock.lock(Wait::Never).is_none());
        as_thread(state);
        lock.0.fetch_or(IN_VAIN, Ordering::Relaxed);
        drop(lock.take_over().unwrap());
        assert!(lock.take_over().is_none());
        // Threads without a state cannot be told apart.
        for word in 0..3 {
            as_thread(word);
            core::mem::forget(lock.lock(Wait::Never));
            assert!(lock.take_over().is_none());
            lock.reset();
        }
        as_thread(before);
    }
}
