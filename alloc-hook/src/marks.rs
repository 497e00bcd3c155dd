//! Every allocation of one thread for a while, by stack, whatever is recorded otherwise.
//!
//! Called from: ordinary code of the host (`during`), its hooks under their guard (`note`, `decide`). A thread that is marked records each of its allocations
//! with the weight one; the table of its marks says which of them came since. It costs other threads nothing unless nothing else is recorded; then, while a
//! thread is marked, a comparison.
//! When a table is full: the allocation is missing in it, and the thread's exact counters tell how many are.
//!
//! # Ownership    `ThreadState::marks` and the tables behind it belong to the thread. A hook uses them only while the code that made them is below it on the stack.
#![allow(unsafe_code)]

use crate::record;
use capture::mapping::Mapping;
use capture::region;
use capture::thread::{self, Current, ThreadState};
use core::sync::atomic::Ordering;
use layout::RecordId;

/// What a marked thread holds for its interval: no interval that anybody sets.
const EVERY: u64 = u64::MAX;
/// Stacks of one table.
const SLOTS: usize = 1024;

/// The allocations of one stack while a thread was marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Marked {
    /// The stack's values in the store.
    pub values: RecordId,
    reserved: u32,
    /// Allocations.
    pub objects: u64,
    /// Bytes asked for them.
    pub bytes: u64,
}

#[repr(C)]
struct Table {
    slots: [Marked; SLOTS],
    /// The marks that were there before: an allocation belongs to those too.
    outer: *mut Table,
    /// The thread's interval before.
    interval: u64,
}

/// What a marked thread allocated.
#[derive(Debug)]
pub struct Marks(Mapping);

impl Marks {
    /// Each stack that allocated.
    pub fn stacks(&self) -> impl Iterator<Item = &Marked> {
        // SAFETY: zeroed memory is a table, and no hook writes it any more.
        let slots = unsafe { &(*self.table()).slots };
        slots.iter().filter(|slot| !slot.values.is_none())
    }

    fn table(&self) -> *mut Table {
        self.0.address().cast()
    }
}

/// Runs the closure while the calling thread is marked; what it allocated. `None` if the thread is not registered, or there is no memory for a table.
pub fn during<R>(f: impl FnOnce() -> R) -> (R, Option<Marks>) {
    let marks = Mapping::new(size_of::<Table>()).map(Marks);
    let marking = marks.as_ref().and_then(Marking::new);
    let is_marked = marking.is_some();
    let result = f();
    drop(marking);
    (result, marks.filter(|_| is_marked))
}

/// Ends the marking when it is dropped, by a panic too.
struct Marking<'a> {
    thread: &'static ThreadState,
    marks: &'a Marks,
    epoch: u32,
}

impl<'a> Marking<'a> {
    fn new(marks: &'a Marks) -> Option<Self> {
        let Some(Current::Known(thread)) = region::header().map(|_| thread::current()) else { return None };
        let table = marks.table();
        // SAFETY: the mapping is zeroed, which is an empty table, and nobody else has it yet.
        unsafe {
            (*table).outer = thread.marks.load(Ordering::Relaxed).cast();
            (*table).interval = thread.interval.load(Ordering::Relaxed);
        }
        thread.marks.store(table.cast(), Ordering::Relaxed);
        // From here on no arrangement is in force by which a signal handler's call would set another interval.
        record::add_marked_thread();
        thread.interval.store(EVERY, Ordering::Relaxed);
        Some(Self { thread, marks, epoch: region::epoch() })
    }
}

impl Drop for Marking<'_> {
    fn drop(&mut self) {
        // In a child after fork no thread is marked.
        if self.epoch != region::epoch() {
            return;
        }
        let table = self.marks.table();
        // SAFETY: the table is borrowed, hence mapped.
        let (outer, interval) = unsafe { ((*table).outer, (*table).interval) };
        self.thread.marks.store(outer.cast(), Ordering::Relaxed);
        self.thread.interval.store(interval, Ordering::Relaxed);
        record::remove_marked_thread();
    }
}

/// Whether an allocation is recorded, where marks decide that.
#[cold]
pub(crate) fn decide(thread: &ThreadState, interval: u64) -> Option<bool> {
    let is_marked = thread.interval.load(Ordering::Relaxed) == EVERY;
    (is_marked || interval == 0).then_some(is_marked)
}

/// Notes an allocation that was recorded, if its thread is marked.
#[inline]
pub(crate) fn note(thread: &ThreadState, values: RecordId, bytes: u64) {
    let table: *mut Table = thread.marks.load(Ordering::Relaxed).cast();
    if !table.is_null() {
        note_slow(table, values, bytes);
    }
}

#[cold]
fn note_slow(mut table: *mut Table, values: RecordId, bytes: u64) {
    // SAFETY: the thread's own tables: mapped while they are linked, and written by its hook alone.
    while let Some(marks) = unsafe { table.as_mut() } {
        let start = values.0.wrapping_mul(0x9e37_79b9) as usize >> 8;
        let mut probes = (0..SLOTS).map(|i| (start + i) % SLOTS);
        let at =
            probes.find(|at| marks.slots.get(*at).is_some_and(|slot| slot.values.is_none() || slot.values == values));
        // A full table: what is not listed is told from the exact counts.
        if let Some(slot) = at.and_then(|at| marks.slots.get_mut(at)) {
            slot.values = values;
            slot.objects += 1;
            slot.bytes += bytes;
        }
        table = marks.outer;
    }
}
