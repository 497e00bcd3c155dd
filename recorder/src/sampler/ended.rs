//! Threads that ended during a wall-clock session, each as its end found it: the sampler looks from time to time, and on a busy machine late.
//!
//! Called from: threads that end; the wall-clock sampler takes. May, at a thread's end: read clocks by raw system calls, write its place here. May not: allocate, lock.
//!
//! # Safety
//!
//! A place belongs to one thread at a time, by its status.
//!
//! # Orderings
//!
//! A place is filled by the thread that took it (`status` compare-exchange, Acquire; then store, Release) and emptied by the one taker (Acquire, Release). `NOTED` is counted behind that (Release): who reads it (Acquire)
//! finds as many places full, or has emptied them. `TURNS` is counted before a thread looks whether there is a session, and read after the session's end (both with a SeqCst fence between): so either the thread
//! is waited for, or it sees that there is none.
#![allow(unsafe_code)]

use super::{account, asking, handler};
use capture::thread::ThreadState;
use capture::{clock, region, syscall};
use layout::{Lost, RecordId};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

/// Ends between two looks.
const PLACES: usize = 2048;

const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const FULL: u32 = 2;

struct Place {
    status: AtomicU32,
    end: UnsafeCell<MaybeUninit<End>>,
}

// SAFETY: the end is written by the one thread that made the place `WRITING`, and read by the one taker, while it is `FULL`.
unsafe impl Sync for Place {}

static ENDS: [Place; PLACES] =
    [const { Place { status: AtomicU32::new(EMPTY), end: UnsafeCell::new(MaybeUninit::uninit()) } }; PLACES];
/// Number of threads that came to note their ends, and of those that did.
static TURNS: AtomicUsize = AtomicUsize::new(0);
static NOTED: AtomicUsize = AtomicUsize::new(0);

/// A thread that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) tid: u32,
    pub(super) record: RecordId,
    /// When it was registered, and when it ended, by CLOCK_MONOTONIC.
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// Its CPU clock at the end.
    pub(super) cpu_ns: u64,
    /// Elapsed time for which it was asked, and did not come to answer: on a processor, and waiting for one.
    pub(super) asked_ns: (u64, u64),
}

impl End {
    /// The calling thread's end.
    fn of(thread: &ThreadState, asked_ns: (u64, u64)) -> Self {
        Self {
            tid: thread.tid(),
            record: thread.record_id(),
            began_ns: thread.registered_ns.load(Ordering::Relaxed),
            ended_ns: clock::monotonic_ns(),
            cpu_ns: clock::thread_cpu_ns(),
            asked_ns,
        }
    }
}

/// Notes the end of the calling thread, if it is of a session. Its signals are blocked.
pub(super) fn note(thread: &ThreadState) {
    let turn = TURNS.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let asked_ns = account::close(thread);
    if handler::is_wall_armed() || asked_ns != (0, 0) {
        // It may have another than when it was registered.
        thread.rename(&syscall::thread_name());
        fill(turn, End::of(thread, asked_ns));
    }
    NOTED.fetch_add(1, Ordering::Release);
}

fn fill(turn: usize, end: End) {
    let place = ENDS
        .get(turn % PLACES)
        .filter(|place| place.status.compare_exchange(EMPTY, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok());
    let Some(place) = place else {
        return region::lose(Lost::TimeStoreFull, 1, end.asked_ns.0 + end.asked_ns.1);
    };
    // SAFETY: the place is this thread's from `WRITING` on, until it says `FULL`.
    unsafe { (*place.end.get()).write(end) };
    place.status.store(FULL, Ordering::Release);
}

/// Takes what was noted, for one sampler at a time.
pub(super) struct Taker {
    /// Ends up to which everything was taken.
    taken: usize,
}

impl Taker {
    /// Takes what is noted from now on: what is there is of an earlier session.
    pub(super) fn new() -> Self {
        let mut taker = Self { taken: usize::MAX };
        taker.take();
        taker
    }

    /// Waits for threads that were about to end when the session did: they may wait for a processor.
    pub(super) fn wait(&self) {
        fence(Ordering::SeqCst);
        // In this order: as many as had come were done before.
        let are_done = || NOTED.load(Ordering::Acquire) == TURNS.load(Ordering::Relaxed);
        asking::wait_until(asking::PROCESSORS_TAKE, are_done);
    }

    /// The ends since the last call, in any order.
    pub(super) fn take(&mut self) -> Vec<End> {
        let noted = NOTED.load(Ordering::Acquire);
        if noted == std::mem::replace(&mut self.taken, noted) {
            return Vec::new();
        }
        let full = ENDS.iter().filter(|place| place.status.load(Ordering::Acquire) == FULL);
        let ends = full.map(|place| {
            // SAFETY: who made it `FULL` wrote it before and is done with it; there is one taker.
            let end = unsafe { (*place.end.get()).assume_init() };
            place.status.store(EMPTY, Ordering::Release);
            end
        });
        ends.collect()
    }
}

/// In a child after fork: the threads that were about to end are not here, and do not fill the places that they took.
pub(super) fn reset_in_child() {
    let noted = NOTED.load(Ordering::Relaxed);
    if TURNS.swap(noted, Ordering::Relaxed) == noted {
        return;
    }
    for place in &ENDS {
        let _ = place.status.compare_exchange(WRITING, EMPTY, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_child::in_child;

    #[test]
    fn a_child_has_the_places_of_threads_that_were_about_to_end() {
        let is_so = in_child(|| {
            // Two of its parent's threads had come, one has a place, and the fork is here.
            let turn = TURNS.fetch_add(2, Ordering::Relaxed);
            let Some(place) = ENDS.get(turn % PLACES) else { return false };
            place.status.store(WRITING, Ordering::Relaxed);
            reset_in_child();
            let is_nobody_awaited = NOTED.load(Ordering::Relaxed) == TURNS.load(Ordering::Relaxed);
            is_nobody_awaited && ENDS.iter().all(|place| place.status.load(Ordering::Relaxed) != WRITING)
        });
        assert!(is_so);
    }
}
