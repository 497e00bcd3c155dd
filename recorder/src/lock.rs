//! The locks of the control plane: never taken below an allocation or in a handler.
//!
//! A child after fork finds them as the threads of its parent left them, and none of those threads exists there. The standard library's mutex is one word without a list of who waits (on Linux), so it
//! can be begun anew. A lock with a queue cannot: to free it is to hand it over to the thread that waits longest, which is not there to take it.
//!
//! # Safety
//!
//! In the child a lock is written over; nobody holds it or waits for it there.
#![allow(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex that does not mind that its holder panicked.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(content: T) -> Self {
        Self(Mutex::new(content))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(content) => Some(content),
            Err(TryLockError::Poisoned(content)) => Some(content.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Begins the lock anew in a child after fork, and takes what it guarded; `None` if a thread of the parent was at it, and it may be half written. Whoever takes it forgets it: a fork hook
    /// gives no memory back.
    ///
    /// # Safety
    /// The process has one thread, which does not hold the lock.
    pub(crate) unsafe fn take_in_child(&self) -> Option<T>
    where
        T: Default,
    {
        let content = self.try_lock().map(|mut content| std::mem::take(&mut *content));
        let lock = (&raw const self.0).cast_mut();
        // SAFETY: no other thread exists, and this one has no guard any more. All of a mutex is inside cells, so a shared reference allows the write. What is written over is empty, or nobody's to drop.
        unsafe { lock.write(Mutex::new(T::default())) };
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn a_lock_is_free_in_the_child_whoever_held_it_or_waited_for_it() {
        // Not given back: threads that the test leaves behind use it.
        let lock: &'static Lock<Vec<u32>> = Box::leak(Box::new(Lock::new(vec![1])));
        // SAFETY: nobody else has the lock yet.
        assert_eq!(unsafe { lock.take_in_child() }, Some(vec![1]));
        assert!(lock.lock().is_empty());
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
        // SAFETY: forks; the child uses nothing but the lock, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: in the child there is this thread alone.
            let content = unsafe { lock.take_in_child() };
            lock.lock().push(7);
            let free = content.is_none() && lock.try_lock().is_some_and(|content| *content == [7]);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!free)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child that was made here.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
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
}
