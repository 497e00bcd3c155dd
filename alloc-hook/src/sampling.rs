//! Which allocations are recorded, and what one stands for.
//!
//! A geometric countdown in bytes: every byte is equally likely to be hit, with the interval as mean distance, so an allocation of `size` bytes is sampled with
//! probability `1 - exp(-size / interval)` and then stands for `1 / (1 - exp(-size / interval))` of its kind (tcmalloc, docs/sampling.md;
//! jemalloc, doc_internal/PROFILING_INTERNALS.md). With interval 1 every allocation is recorded and stands for itself.

use crate::marks;
use capture::thread::ThreadState;
use core::sync::atomic::Ordering;
use layout::OBJECTS_FRACTION_BITS;

/// What a recorded allocation stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) objects_q16: u64,
    pub(crate) bytes: u64,
}

impl Weight {
    /// Of an allocation that stands for itself.
    #[inline]
    pub(crate) const fn of_one(size: u64) -> Self {
        Self { objects_q16: 1 << OBJECTS_FRACTION_BITS, bytes: size }
    }
}

/// Decides on an allocation of the calling thread; `None`: not recorded.
#[inline]
pub(crate) fn decide(thread: &ThreadState, size: u64, interval: u64) -> Option<Weight> {
    if interval == 1 {
        return Some(Weight::of_one(size));
    }
    if thread.interval.load(Ordering::Relaxed) != interval || interval == 0 {
        if let Some(decided) = marks::decide(thread, interval) {
            return decided.then_some(Weight { objects_q16: 1 << OBJECTS_FRACTION_BITS, bytes: size });
        }
        // A countdown belongs to the interval it was drawn for; the geometric distribution has no memory, so a fresh draw is fair.
        thread.interval.store(interval, Ordering::Relaxed);
        thread.countdown.store(draw(thread, interval), Ordering::Relaxed);
    }
    let countdown = thread.countdown.load(Ordering::Relaxed);
    if size < countdown {
        thread.countdown.store(countdown - size, Ordering::Relaxed);
        return None;
    }
    thread.countdown.store(draw(thread, interval), Ordering::Relaxed);
    Some(weigh(size, interval))
}

/// What an allocation that was sampled stands for.
pub(crate) fn weigh(size: u64, interval: u64) -> Weight {
    let probability = -libm::expm1(-(size as f64) / interval as f64);
    if probability <= 0.0 {
        return Weight::of_one(size);
    }
    let objects = 1.0 / probability;
    Weight {
        objects_q16: libm::round(objects * (1_u64 << OBJECTS_FRACTION_BITS) as f64) as u64,
        bytes: libm::round(objects * size as f64) as u64,
    }
}

/// Bytes until the next sample: exponential with the interval as mean, at least one.
pub(crate) fn draw(thread: &ThreadState, interval: u64) -> u64 {
    // xorshift64*: enough for sampling, and nothing but the thread's own state.
    let mut x = thread.random.load(Ordering::Relaxed);
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    thread.random.store(x, Ordering::Relaxed);
    let random = x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
    distance((random + 1) as f64 / (1_u64 << 53) as f64, interval)
}

/// The distance for a uniform number in (0, 1].
fn distance(uniform: f64, interval: u64) -> u64 {
    let bytes = -libm::log(uniform) * interval as f64;
    libm::ceil(bytes).max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_allocation_stands_for_itself_and_a_small_one_for_many() {
        assert_eq!(weigh(1 << 30, 512 << 10), Weight { objects_q16: 1 << 16, bytes: 1 << 30 });
        let small = weigh(64, 512 << 10);
        assert_eq!(small.objects_q16 >> 16, 8192, "interval / size, and a half");
        assert!((small.bytes as i64 - (512 << 10)).abs() < 64);
    }

    #[test]
    fn distances_have_the_interval_as_their_mean() {
        let n = 100_000;
        let sum: u64 = (0..n).map(|i| distance((f64::from(i) + 0.5) / f64::from(n), 4096)).sum();
        let mean = sum as f64 / f64::from(n);
        assert!((mean - 4096.5).abs() < 5.0, "mean {mean}: the interval, and a half for rounding up");
    }
}
