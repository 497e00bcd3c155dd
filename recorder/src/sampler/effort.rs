//! How much CPU time the tick handlers take: what the recorder costs the threads that it samples.
//!
//! One handler in a few is measured, by the CPU clock of its thread, and stands for the others: to measure all of them would cost a good part of what they cost.

use capture::clock;
use core::sync::atomic::{AtomicU64, Ordering};

/// One in so many is measured.
const EVERY: u64 = 16;

static ALL: Effort = Effort { handlers: AtomicU64::new(0), nanos: AtomicU64::new(0) };

/// Handlers that there were, and the CPU time that they took.
struct Effort {
    handlers: AtomicU64,
    nanos: AtomicU64,
}

impl Effort {
    #[inline]
    fn of(&self, work: impl FnOnce()) {
        let is_measured = self.handlers.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY);
        let begun = if is_measured { clock::thread_cpu_ns() } else { 0 };
        work();
        if is_measured {
            let took = clock::thread_cpu_ns().saturating_sub(begun);
            self.nanos.fetch_add(took.saturating_mul(EVERY), Ordering::Relaxed);
        }
    }
}

/// Runs a handler's work.
#[inline]
pub(super) fn of(work: impl FnOnce()) {
    ALL.of(work);
}

/// CPU time of all handlers since the start of the process, in nanoseconds.
#[cfg(feature = "server")]
pub(crate) fn nanos() -> u64 {
    ALL.nanos.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_handler_in_a_few_stands_for_all() {
        let effort = Effort { handlers: AtomicU64::new(0), nanos: AtomicU64::new(0) };
        for _ in 0..EVERY * 10 {
            effort.of(|| {
                let end = clock::thread_cpu_ns() + 100_000;
                while clock::thread_cpu_ns() < end {}
            });
        }
        let all = effort.nanos.into_inner();
        assert!(all >= 100_000 * EVERY * 10, "{all} ns");
    }
}
