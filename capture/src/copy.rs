//! A copy of the region while its threads go on: each record of allocations as it was at one moment.
//!
//! Called from: the recorder's own threads. May: wait for a thread that is about to finish an update, a second at most.
//!
//! # Orderings
//!
//! The owner's updates lie between two steps of `sequence`: a copy is good if that is even, and the same before and after. What other threads free is written in one
//! piece and only grows: a copy is good if its first half is the same before and after the second. It is read first, because what was freed was allocated before.

use crate::region::{kind_of, used_bytes, words};
use crate::wait::wait_at_most;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use layout::{AllocValues, CHUNK, ChunkKind};

/// Nanoseconds that a copy waits for threads in the middle of an update: they wait for a processor. One that a debugger stopped, or that left by a jump, may stay there.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Words of a record, and places in it.
const VALUES: usize = size_of::<AllocValues>() / 8;
const ELSEWHERE: usize = offset_of!(AllocValues, freed_elsewhere_objects_q16) / 8;
const SEQUENCE: usize = offset_of!(AllocValues, sequence) / 8;

/// Copies the first bytes of the region. Returns their number, a multiple of eight.
pub fn copy(to: &mut [u8]) -> usize {
    copy_of(to, |_| true)
}

/// The same, of the head and of chunks of the kinds that are wanted; others stay as they are in `to`.
pub fn copy_of(to: &mut [u8], is_wanted: impl Fn(ChunkKind) -> bool) -> usize {
    let length = used_bytes().min(to.len()) / 8 * 8;
    let mut patience_ns = PATIENCE_NS;
    for (chunk, to) in to.chunks_mut(CHUNK).enumerate().take(length.div_ceil(CHUNK)) {
        let Some(from) = words(chunk) else { break };
        let kind = kind_of(chunk);
        if !kind.is_none_or(&is_wanted) {
            continue;
        }
        if kind == Some(ChunkKind::AllocValues) {
            for (from, to) in from.chunks_exact(VALUES).zip(to.chunks_exact_mut(VALUES * 8)) {
                copy_values(from, to, &mut patience_ns);
            }
        } else {
            copy_words(from, to);
        }
    }
    length
}

fn copy_words(from: &[AtomicU64], to: &mut [u8]) {
    for (from, to) in from.iter().zip(to.chunks_exact_mut(8)) {
        to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
    }
}

fn copy_values(from: &[AtomicU64], to: &mut [u8], patience_ns: &mut u64) {
    if !wait_at_most(*patience_ns, || copy_whole(from, to)) {
        // Its last allocation is in the copy in part, perhaps.
        copy_words(from, to);
        *patience_ns = 0;
    }
}

/// Whether nobody wrote meanwhile.
fn copy_whole(from: &[AtomicU64], to: &mut [u8]) -> bool {
    let read = |place: usize| from.get(place).map_or(0, |word| word.load(Ordering::Acquire));
    let pair = [read(ELSEWHERE), read(ELSEWHERE + 1)];
    let sequence = read(SEQUENCE) as u32;
    if read(ELSEWHERE) != pair[0] || sequence & 1 != 0 {
        return false;
    }
    copy_words(from, to);
    fence(Ordering::Acquire);
    if let Some(to) = to.get_mut(ELSEWHERE * 8..ELSEWHERE * 8 + 16) {
        to.copy_from_slice(pair.map(u64::to_ne_bytes).as_flattened());
    }
    read(SEQUENCE) as u32 == sequence
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_thread_that_waits_for_a_processor_in_the_middle_of_an_update_is_waited_for() {
        const BYTES: usize = offset_of!(AllocValues, bytes) / 8;
        let from = [const { AtomicU64::new(0) }; VALUES];
        from[0].store(1 << layout::OBJECTS_FRACTION_BITS, Ordering::Relaxed);
        from[SEQUENCE].store(1, Ordering::Relaxed);
        let mut to = [0; VALUES * 8];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                from[BYTES].store(100, Ordering::Relaxed);
                from[SEQUENCE].store(2, Ordering::Release);
            });
            let mut patience_ns = PATIENCE_NS;
            copy_values(&from, &mut to, &mut patience_ns);
            assert_eq!(patience_ns, PATIENCE_NS);
        });
        assert_eq!(to[BYTES * 8..BYTES * 8 + 8], 100_u64.to_ne_bytes());
    }
}
