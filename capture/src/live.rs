//! Live bytes of the process and their peak.
//!
//! Called from: allocation hooks. May: add to counters. Each thread adds to a counter of its own, and brings it into the process's when it has changed by [`GRAIN`]: so threads
//! do not fight over a cache line. Its most is looked at when something is given back, which is as early as it can have been passed. The peak of a process with one thread is exact; each further thread can hide at most twice [`GRAIN`] of it.

use crate::clock;
use crate::region;
use core::sync::atomic::{AtomicU64, Ordering};
use layout::{Live, Thread};

/// Bytes by which a thread's live memory changes before the process's is brought up to date.
pub const GRAIN: i64 = layout::LIVE_GRAIN;

/// Says what the live bytes of this process are.
pub fn set_kind(kind: Live) {
    if let Some(header) = region::header() {
        header.live.store(kind as u32, Ordering::Relaxed);
    }
}

/// What the live bytes of this process are.
pub fn kind() -> Live {
    region::header().map_or(Live::Unknown, |header| Live::from_number(header.live.load(Ordering::Relaxed)))
}

/// The calling thread, whose record this is, has so many bytes more.
#[inline(always)]
pub fn grow(record: &Thread, bytes: u64) {
    region::add_own(&record.live_bytes_below_max, bytes.wrapping_neg());
    if (record.live_bytes_below_max.load(Ordering::Relaxed) as i64) < 0 {
        bring_in(record);
    }
}

/// The calling thread, whose record this is, gave so many bytes back.
#[inline(always)]
pub fn shrink(record: &Thread, bytes: u64) {
    // What a signal handler adds in between stays, and is more or less than the new most in its turn.
    let above_most = GRAIN.wrapping_sub(record.live_bytes_below_max.load(Ordering::Relaxed) as i64);
    if above_most > 0 {
        region::add_own(&record.live_bytes_max, above_most as u64);
        region::add_own(&record.live_bytes_below_max, above_most as u64);
    }
    region::add_own(&record.live_bytes_below_max, bytes);
    let far = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed) as i64 >= 2 * GRAIN;
    if far(&record.live_bytes_below_max) || above_most > 0 && far(&record.live_bytes_max) {
        bring_in(record);
    }
}

fn live_bytes(record: &Thread) -> i64 {
    let below = record.live_bytes_below_max.load(Ordering::Relaxed);
    record.live_bytes_max.load(Ordering::Relaxed).wrapping_sub(below) as i64
}

/// The same for a thread without a record.
#[cold]
pub fn change_unregistered(bytes: i64) {
    if let Some(header) = region::header() {
        let before = header.live_bytes.fetch_add(bytes as u64, Ordering::Relaxed) as i64;
        raise(before.wrapping_add(bytes));
    }
}

/// Brings what the calling thread has into the process's.
#[cold]
pub fn bring_in(record: &Thread) {
    let Some(header) = region::header() else { return };
    let most = record.live_bytes_max.load(Ordering::Relaxed);
    let below = record.live_bytes_below_max.load(Ordering::Relaxed);
    // What a signal handler that allocates in between adds is left.
    region::add_own(&record.live_bytes_max, (GRAIN as u64).wrapping_sub(most));
    region::add_own(&record.live_bytes_below_max, (GRAIN as u64).wrapping_sub(below));
    let before = header.live_bytes.fetch_add(most.wrapping_sub(below), Ordering::Relaxed);
    raise(before.wrapping_add(layout::most_live_bytes(most, below) as u64) as i64);
}

fn raise(live: i64) {
    let Some(header) = region::header() else { return };
    let mut peak = header.peak_live_bytes.load(Ordering::Relaxed);
    // Bounded: each round that fails means that another thread raised it.
    while live > peak as i64 {
        match header.peak_live_bytes.compare_exchange_weak(peak, live as u64, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                header.peak_monotonic_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
                return;
            }
            Err(now) => peak = now,
        }
    }
}

/// Live bytes of the process now: what all threads have brought in, and what they have not.
pub fn bytes() -> i64 {
    let Some(header) = region::header() else { return 0 };
    let mut live = header.live_bytes.load(Ordering::Relaxed);
    region::each_thread_record(|record| live = live.wrapping_add(live_bytes(record) as u64));
    live as i64
}

/// In a child after fork, which has all that its parent had.
pub fn begin_with(bytes: i64) {
    if let Some(header) = region::header() {
        header.live_bytes.store(bytes as u64, Ordering::Relaxed);
        header.peak_live_bytes.store(bytes as u64, Ordering::Relaxed);
        header.peak_monotonic_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
    }
}
