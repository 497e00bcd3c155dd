//! The locks of the control plane: never taken below an allocation or in a handler.
//!
//! A child after fork finds them as the threads of its parent left them, and none of those threads exists there. So a lock is one word that the kernel waits at (the mutex of "Futexes Are Tricky", Ulrich Drepper,
//! 2011, section 5), and can be begun anew. One with a queue cannot: to free it may be to hand it over to the thread that waits longest, which is not there to take it. The standard library's is one word
//! too, but asks a thread-local whether a panic is under way, and the fork hook may not reach for one.
//!
//! # Safety
//!
//! The content is used by whoever changed the word from free to held, until it is free again; in a child, before there is a second thread, by the fork hook.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may wait for it.
const AWAITED: u32 = 2;

/// A mutex that does not mind that its holder panicked.
#[derive(Debug, Default)]
pub(crate) struct Lock<T> {
    state: AtomicU32,
    content: UnsafeCell<T>,
}

// SAFETY: one thread at a time uses the content, and may take it away.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The content, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(content: T) -> Self {
        Self { state: AtomicU32::new(FREE), content: UnsafeCell::new(content) }
    }

    pub(crate) fn lock(&self) -> Held<'_, T> {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
                self.futex(libc::FUTEX_WAIT, AWAITED);
            }
        }
        Held(self)
    }

    #[cfg(any(test, feature = "server"))]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        let taken = self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Held(self))
    }

    /// Begins the lock anew in a child after fork, with this content; the old one, or `None` if a thread of the parent was at it and it may be half written. Whoever gets it forgets it: a fork hook
    /// gives no memory back.
    ///
    /// # Safety
    /// The process has one thread, which does not hold the lock.
    pub(crate) unsafe fn begin_anew(&self, content: T) -> Option<T> {
        // SAFETY: nobody else is here.
        let old = unsafe { self.content.get().replace(content) };
        if self.state.swap(FREE, Ordering::Relaxed) == FREE {
            return Some(old);
        }
        std::mem::forget(old);
        None
    }

    /// The same with an empty content.
    ///
    /// # Safety
    /// As [`Self::begin_anew`].
    #[cfg(any(test, feature = "server"))]
    pub(crate) unsafe fn take_in_child(&self) -> Option<T>
    where
        T: Default,
    {
        // SAFETY: the function's own contract.
        unsafe { self.begin_anew(T::default()) }
    }

    fn futex(&self, operation: i32, value: u32) {
        // SAFETY: the word lives through the call; whatever the kernel answers, the word is looked at again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                &raw const self.state,
                operation | libc::FUTEX_PRIVATE_FLAG,
                value,
                std::ptr::null::<libc::timespec>(),
            );
        }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if self.0.state.swap(FREE, Ordering::Release) == AWAITED {
            self.0.futex(libc::FUTEX_WAKE, 1);
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.content.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard is used by one at a time.
        unsafe { &mut *self.0.content.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_child::in_child;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn a_lock_is_free_in_the_child_whoever_held_it_or_waited_for_it() {
        // Not given back: threads that the test leaves behind use it.
        let lock: &'static Lock<u32> = Box::leak(Box::new(Lock::new(1)));
        // SAFETY: nobody else has the lock yet.
        assert_eq!(unsafe { lock.take_in_child() }, Some(1));
        assert_eq!(*lock.lock(), 0);
        let (held, is_held) = channel();
        std::thread::spawn(move || {
            let _content = lock.lock();
            held.send(()).unwrap();
            loop {
                std::thread::park();
            }
        });
        is_held.recv().unwrap();
        for _ in 0..3 {
            std::thread::spawn(|| drop(lock.lock()));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(lock.try_lock().is_none());
        assert!(in_child(|| {
            // SAFETY: in the child there is this thread alone.
            let content = unsafe { lock.take_in_child() };
            *lock.lock() = 7;
            content.is_none() && lock.try_lock().is_some_and(|content| *content == 7)
        }));
    }

    #[test]
    fn a_panic_does_not_close_it() {
        let lock = Arc::new(Lock::new(3));
        let other = Arc::clone(&lock);
        let ended = std::thread::spawn(move || {
            let _content = other.lock();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(ended.join().is_err());
        assert_eq!(*lock.lock(), 3);
        assert_eq!(lock.try_lock().map(|content| *content), Some(3));
    }

    #[test]
    fn one_thread_at_a_time_holds_it() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut content = lock.lock();
                        let before = std::hint::black_box(*content);
                        *content = before + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }
}
