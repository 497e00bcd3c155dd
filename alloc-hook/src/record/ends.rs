//! What is counted of an allocation at its end.

use super::{FOLLOW_FREES, accounts, cells, enter, update};
use crate::live::{self, Allocation, Wait};
use crate::sampling::Weight;
use capture::live as live_bytes;
use capture::region;
use capture::thread::{self, Current, Inside, Mark, NONE_BETWEEN, ThreadState};
use core::sync::atomic::Ordering;
use layout::{AllocValues, Live, RecordId};

/// A free of a block that may live.
#[inline(never)]
pub(super) fn release(thread: &ThreadState, address: u64) {
    let mark = Mark::new();
    let inside = enter(thread, &mark);
    let taken = live::remove(address, wait(&inside));
    finish(thread, &inside, address, taken);
}

/// A signal handler of the host, above the recorder, does not wait: the lock may be held further up this very stack.
#[inline(always)]
fn wait(inside: &Option<Inside<'_>>) -> Wait {
    if inside.is_some() { Wait::ForAWhile } else { Wait::Never }
}

/// Takes such a block out, before a reallocation.
#[inline(never)]
pub(super) fn take(thread: &ThreadState, address: u64) -> Option<Allocation> {
    let mark = Mark::new();
    let inside = enter(thread, &mark);
    live::remove(address, wait(&inside))
}

/// The block was not given back after all.
#[cold]
pub(super) fn put_back(allocation: Allocation) {
    let mark = Mark::new();
    let inserted = if let Current::Known(thread) = thread::current() {
        let inside = enter(thread, &mark);
        live::insert(allocation, wait(&inside))
    } else {
        live::insert(allocation, Wait::ForAWhile)
    };
    if inserted.is_err() {
        count_freed(None, &allocation);
    }
}

#[inline(never)]
pub(super) fn finish_free(thread: &ThreadState, address: u64, taken: Option<Allocation>) {
    if taken.is_some() || FOLLOW_FREES.load(Ordering::Relaxed) {
        finish(thread, &enter(thread, &Mark::new()), address, taken);
    } else if thread.last_address.load(Ordering::Relaxed) == address {
        // Where frees are not followed, the thread's own last allocation is.
        freed_last(thread);
    }
}

/// The block at `address` is given back, and was taken out of those that live if it was among them.
#[inline(always)]
fn finish(thread: &ThreadState, inside: &Option<Inside<'_>>, address: u64, taken: Option<Allocation>) {
    let last = thread.last_address.load(Ordering::Relaxed) == address;
    if last {
        thread.last_address.store(1, Ordering::Relaxed);
    }
    if let Some(allocation) = taken {
        // The block that the thread allocated last can have been freed by another thread, and allocated there: then its site is another's.
        let temporary =
            last && allocation.values.0 == thread.last_values.load(Ordering::Relaxed) && none_between(thread);
        count_freed_on(thread, inside, &allocation, temporary);
    }
}

/// Whether the thread has allocated nothing since its last allocation was recorded.
#[inline(always)]
fn none_between(thread: &ThreadState) -> bool {
    let calls = thread.last_calls.load(Ordering::Relaxed);
    calls == NONE_BETWEEN || calls == thread.counted_allocations()
}

/// The thread frees its last allocation that was recorded, and frees are not followed.
#[inline]
pub(super) fn freed_last(thread: &ThreadState) {
    thread.last_address.store(1, Ordering::Relaxed);
    if none_between(thread)
        && let Some(_inside) = enter(thread, &Mark::new())
    {
        let cells = cells(RecordId(thread.last_values.load(Ordering::Relaxed)));
        let objects_q16 = thread.last_objects_q16.load(Ordering::Relaxed);
        update(cells, || region::add_own(&cells.temporary_objects_q16, objects_q16));
    }
}

/// The end of an allocation that is not seen where it was made.
#[cold]
pub(super) fn count_freed(thread: Option<&ThreadState>, allocation: &Allocation) {
    if let Some(thread) = thread {
        // Perhaps it is inside, and this is its own call.
        count_freed_on(thread, &thread.enter(&Mark::new()), allocation, false);
        return;
    }
    let Weight { objects_q16, bytes } = allocation.weight();
    if accounts(Live::Requested) {
        live_bytes::change_unregistered(-(bytes as i64));
    }
    count_freed_elsewhere(cells(allocation.values), objects_q16, bytes);
}

fn count_freed_elsewhere(cells: &AllocValues, objects_q16: u64, bytes: u64) {
    region::add_pair(&cells.freed_elsewhere_objects_q16, &cells.freed_elsewhere_bytes, [objects_q16, bytes]);
}

#[inline(always)]
fn count_freed_on(thread: &ThreadState, inside: &Option<Inside<'_>>, allocation: &Allocation, temporary: bool) {
    let Weight { objects_q16, bytes } = allocation.weight();
    if accounts(Live::Requested) {
        match thread.thread_record() {
            Some(account) => live_bytes::shrink(account, bytes),
            None => live_bytes::change_unregistered(-(bytes as i64)),
        }
    }
    let cells = cells(allocation.values);
    // Only the owner, and only under its guard, writes the owner's part.
    if inside.is_none() || thread.record_id().0 != cells.owner.load(Ordering::Relaxed) {
        count_freed_elsewhere(cells, objects_q16, bytes);
        return;
    }
    update(cells, || {
        region::add_own(&cells.freed_objects_q16, objects_q16);
        region::add_own(&cells.freed_bytes, bytes);
        if temporary {
            region::add_own(&cells.temporary_objects_q16, objects_q16);
        }
    });
}
