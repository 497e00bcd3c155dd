//! Waits that end by the clock: for another thread that is about to be done, or is not there.
//!
//! Called from: hooks, and whoever may wait; never from a signal handler. May: read the clock and let other threads run, by raw system calls.

use crate::{clock, syscall};

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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::sync::atomic::{AtomicBool, Ordering};

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
