//! States by the number that the kernel gives a thread: a handler's way to its thread.
//!
//! Thread-local storage does not tell a handler where it is. A thread that was made by `clone` without CLONE_SETTLS has that of its creator, and one that was made with it may have
//! storage that the C library did not lay out, where nothing can be read.
//!
//! Called from: handlers, hooks, registration. May: read and write its own table. May not: allocate, lock, touch thread-local storage.
//!
//! # Orderings
//!
//! A state is published by its number (Release), which is taken back before the state can be another thread's; who finds it (Acquire) is that thread.
#![allow(unsafe_code)]

use super::states::states;
use super::{LIVE, ThreadState};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Threads with the same remainder share a row. Numbers are given one after another, so most rows hold one.
const ROWS: usize = 2048;
const PLACES: usize = 4;

/// Where states are likely to be found. What is not here is looked for among all.
static TABLE: [[AtomicPtr<ThreadState>; PLACES]; ROWS] =
    [const { [const { AtomicPtr::new(core::ptr::null_mut()) }; PLACES] }; ROWS];

/// The state of the thread with this number, if it is registered. On that thread.
pub(super) fn find(tid: u32) -> Option<&'static ThreadState> {
    let row = TABLE.get(tid as usize % ROWS)?;
    // SAFETY: states are never unmapped.
    let noted = row.iter().filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
    let mut noted = noted.filter(|state| is_of(state, tid));
    noted.next().or_else(|| search(tid))
}

#[cold]
fn search(tid: u32) -> Option<&'static ThreadState> {
    // SAFETY: as above.
    let all = states().iter().filter_map(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() });
    let found = all.into_iter().find(|state| is_of(state, tid))?;
    note(found);
    Some(found)
}

fn is_of(state: &ThreadState, tid: u32) -> bool {
    state.tid.load(Ordering::Acquire) == tid
        && state.status.load(Ordering::Relaxed) == LIVE
        && state.thread_record().is_some()
}

/// Makes a state the first to be found, in the place of one that has another thread by now, or of any.
pub(super) fn note(state: &'static ThreadState) {
    let tid = state.tid();
    let Some(row) = TABLE.get(tid as usize % ROWS) else { return };
    let is_free = |place: &&AtomicPtr<ThreadState>| {
        // SAFETY: as above.
        let noted = unsafe { place.load(Ordering::Acquire).as_ref() };
        noted.is_none_or(|noted| {
            noted.status.load(Ordering::Relaxed) != LIVE || noted.tid() as usize % ROWS != tid as usize % ROWS
        })
    };
    let any = tid as usize / ROWS % PLACES;
    if let Some(place) = row.iter().find(is_free).or_else(|| row.get(any)) {
        place.store(core::ptr::from_ref(state).cast_mut(), Ordering::Release);
    }
}
