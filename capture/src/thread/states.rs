//! Where the states of threads and their records come from, and where they go.
//!
//! Called from: hooks and handlers of a thread that is registered or ends; the recorder's threads. May: map memory, write the store. May not: allocate, lock.
//!
//! # Orderings
//!
//! Take a state: `status` compare-exchange (Acquire). Retire it: its number is taken back, then `status.store(Release)`.
#![allow(unsafe_code)]

use super::{FREE, LIVE, RETIRED, ThreadState};
use crate::kept;
use crate::region::{self, LogCursor, SharedCursor};
use crate::syscall::{self, map, mm};
use crate::tree::Tree;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use layout::{ChunkKind, Lost, RecordId, Thread};

/// Threads alive at a time.
const MAX_THREADS: usize = 8192;
/// Threads that get a record of their own; later ones take over the record of an ended thread that began with the same name: most are given another by their own first lines.
const OWN_RECORDS: u32 = 1024;

static STATES: AtomicPtr<AtomicPtr<ThreadState>> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static RECORDS: SharedCursor = SharedCursor::new();
static RECORD_COUNT: AtomicU32 = AtomicU32::new(0);

pub(super) fn states() -> &'static [AtomicPtr<ThreadState>] {
    let base = STATES.load(Ordering::Acquire);
    if base.is_null() {
        return &[];
    }
    // SAFETY: the array has MAX_THREADS zeroed pointers and is never unmapped.
    unsafe { core::slice::from_raw_parts(base, COUNT.load(Ordering::Acquire).min(MAX_THREADS)) }
}

pub(super) fn take_state(name: &[u8; 16]) -> Option<&'static ThreadState> {
    let own_record = RECORD_COUNT.load(Ordering::Relaxed) < OWN_RECORDS;
    let mut candidate = None;
    for slot in states() {
        // SAFETY: published states are never unmapped.
        let Some(state) = (unsafe { slot.load(Ordering::Acquire).as_ref() }) else { continue };
        let status = state.status.load(Ordering::Relaxed);
        if status == LIVE {
            continue;
        }
        let adopt = status == RETIRED && !own_record && state.began_as(name);
        if adopt && state.status.compare_exchange(RETIRED, LIVE, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            let record = state.record.load(Ordering::Relaxed);
            // SAFETY: a retired state keeps its record.
            if let Some(record) = unsafe { record.as_ref() } {
                record.tid.store(0, Ordering::Relaxed);
                record.alive.store(1, Ordering::Relaxed);
                region::add_own_u32(&record.adopted, 1);
                return Some(state);
            }
        }
        candidate = candidate.or(Some((state, status)));
    }
    let state = match candidate {
        Some((state, status))
            if state.status.compare_exchange(status, LIVE, Ordering::Acquire, Ordering::Relaxed).is_ok() =>
        {
            for recording in [&state.hook, &state.handler] {
                // SAFETY: the state was taken by this thread, so both cells are its own. A free state was wiped by a fork; a retired one still
                // has the index of its tree.
                unsafe {
                    let tree = &raw mut (*recording.get()).tree;
                    if status == RETIRED {
                        core::ptr::drop_in_place(tree);
                    }
                    core::ptr::write(tree, Tree::new());
                    (*recording.get()).log = LogCursor::new();
                }
            }
            // SAFETY: as above.
            unsafe {
                (*state.sites.get()).clear();
                (*state.handler_kept.get()).clear();
            }
            state
        }
        _ => new_state()?,
    };
    state.set_first_name(name);
    let Some(id) = new_record(name) else {
        state.status.store(FREE, Ordering::Release);
        region::lose(Lost::NoThread, 1, 0);
        return None;
    };
    state.record_id.store(id.0, Ordering::Relaxed);
    // SAFETY: just allocated for a thread.
    state.record.store(core::ptr::from_ref(unsafe { region::record::<Thread>(id) }).cast_mut(), Ordering::Release);
    Some(state)
}

pub(super) fn new_record(name: &[u8; 16]) -> Option<RecordId> {
    let id = RECORDS.allocate(ChunkKind::Threads, size_of::<Thread>())?;
    RECORD_COUNT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: just allocated for a thread.
    let record: &Thread = unsafe { region::record(id) };
    record.tid.store(syscall::gettid(), Ordering::Relaxed);
    region::store_bytes(&record.name, name);
    record.alive.store(1, Ordering::Relaxed);
    record.used.store(1, Ordering::Release);
    Some(id)
}

fn new_state() -> Option<&'static ThreadState> {
    let mut base = STATES.load(Ordering::Acquire);
    if base.is_null() {
        let new = map(MAX_THREADS * size_of::<*mut ()>(), mm::READ_WRITE, mm::ANONYMOUS, None).ok()?;
        // Two threads may come here at once: the loser's array stays behind, a few untouched pages of address space.
        let _ = STATES.compare_exchange(core::ptr::null_mut(), new.cast(), Ordering::AcqRel, Ordering::Acquire);
        base = STATES.load(Ordering::Acquire);
    }
    let full = || {
        region::lose(Lost::NoThread, 1, 0);
        None
    };
    if COUNT.load(Ordering::Relaxed) >= MAX_THREADS {
        return full();
    }
    let length = size_of::<ThreadState>().next_multiple_of(4096);
    let memory = map(length, mm::READ_WRITE, mm::ANONYMOUS, None).ok()?;
    // Without this advice (kernels before 4.14) the fork handler alone tells a child.
    // SAFETY: freshly mapped, nothing in it is needed by a child.
    let _ = unsafe { syscall::advise(memory, length, mm::WIPE_ON_FORK) };
    // SAFETY: zeroed memory is a valid state but for its trees: null pointers, zero counters.
    let state = unsafe {
        let state = memory.cast::<ThreadState>();
        core::ptr::write(&raw mut (*(*state).hook.get()).tree, Tree::new());
        core::ptr::write(&raw mut (*(*state).handler.get()).tree, Tree::new());
        &*state
    };
    state.status.store(LIVE, Ordering::Relaxed);
    let index = COUNT.fetch_add(1, Ordering::AcqRel);
    if index >= MAX_THREADS {
        COUNT.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: nobody knows of it.
        unsafe { syscall::unmap(memory, length) };
        return full();
    }
    // SAFETY: below the array's length.
    unsafe { (*base.add(index)).store(memory.cast(), Ordering::Release) };
    Some(state)
}

/// Calls `visit` for every state, whether a thread has it or not.
pub(super) fn each_state(mut visit: impl FnMut(&'static ThreadState)) {
    for slot in states() {
        // SAFETY: published states are never unmapped.
        if let Some(state) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
            visit(state);
        }
    }
}

/// The thread of a state ended: its record stays, the state can be taken by another thread.
pub(super) fn retire(state: &ThreadState) {
    if let Some(record) = state.thread_record() {
        record.alive.store(0, Ordering::Relaxed);
        state.tid.store(0, Ordering::Relaxed);
        state.status.store(RETIRED, Ordering::Release);
    }
}

/// In a child after fork: there are no states, and no records.
pub(super) fn reset() {
    // Their threads do not exist here.
    each_state(|state| {
        state.disarm();
        state.record.store(core::ptr::null_mut(), Ordering::Relaxed);
        state.tid.store(0, Ordering::Relaxed);
        state.status.store(FREE, Ordering::Relaxed);
    });
    kept::reset();
    RECORDS.reset();
    RECORD_COUNT.store(0, Ordering::Relaxed);
}
