//! A lock for what is seldom done where the application's own calls arrive: refreshing the module list, building a table, changing a signal's action.
//!
//! Never taken in a signal handler (or with all signals blocked wherever it is taken), and never held across a call into the host. It spins, then yields; a waiter gives up after a while. Of a lock that is
//! held in a process that forks, the child knows that its holder is not there: what was taken before the fork is free.

use crate::{clock, region, syscall};
use core::sync::atomic::{AtomicU32, Ordering};

/// Nanoseconds after which a thread that waits gives up.
const A_WHILE_NS: u64 = 1_000_000_000;
/// Rounds that a wait begins with, without a system call.
const SPINS: u32 = 100;
/// Rounds after which it gives up where a filter of system calls keeps the clock away.
const ROUNDS: u32 = 200_000;

/// Waits until something is so, for about a second at most; whether it is. Lets other threads run meanwhile: beside busy processes each time takes milliseconds, so that rounds tell nothing of time.
pub fn wait_until(is_so: impl FnMut() -> bool) -> bool {
    wait_at_most(A_WHILE_NS, is_so)
}

/// The same with another limit, in nanoseconds.
pub fn wait_at_most(limit_ns: u64, mut is_so: impl FnMut() -> bool) -> bool {
    let (mut begun_ns, mut rounds) = (0, 0_u32);
    while !is_so() {
        rounds = rounds.saturating_add(1);
        if rounds < SPINS {
            core::hint::spin_loop();
            continue;
        }
        let is_over = match clock::monotonic_ns() {
            0 => rounds >= ROUNDS,
            now_ns if begun_ns == 0 => {
                begun_ns = now_ns;
                false
            }
            now_ns => now_ns.saturating_sub(begun_ns) >= limit_ns,
        };
        if is_over {
            return is_so();
        }
        syscall::yield_now();
    }
    true
}

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
    extern crate std;
    use super::*;
    use core::sync::atomic::AtomicBool;

    #[test]
    fn a_lock_is_held_once_until_it_is_dropped() {
        let lock = Spin::new();
        let held = lock.lock();
        assert!(held.is_some() && lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_wait_ends_when_it_is_so_and_after_its_time_where_it_never_is() {
        let begun = std::time::Instant::now();
        assert!(!wait_at_most(20_000_000, || false));
        assert!(begun.elapsed().as_nanos() >= 20_000_000);
        let is_so = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                is_so.store(true, Ordering::Release);
            });
            assert!(wait_at_most(600 * A_WHILE_NS, || is_so.load(Ordering::Acquire)));
        });
    }
}
