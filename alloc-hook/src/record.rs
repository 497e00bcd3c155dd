//! The core that both doors share: count, decide, capture, enter.
#![allow(unsafe_code)]

use crate::live::{self, Allocation};
use crate::sampling;
use capture::rules::InHook;
use capture::thread::{self, Current, Inside, ThreadState};
use capture::{modules, region};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use layout::{AllocValues, ChunkKind, Frame, Function, Lost, OBJECTS_FRACTION_BITS, Pseudo, Root};
use unwind::FrameAddress;
use unwind::arch::Registers;

/// Mean bytes between recorded allocations; 1: every one; 0: none.
static INTERVAL: AtomicU64 = AtomicU64::new(0);
/// Whether frees of recorded allocations are followed.
static FOLLOW_FREES: AtomicBool = AtomicBool::new(false);

/// Records allocations from now on: one in `interval_bytes` bytes on average, 1 for every one, 0 for none.
pub fn set_interval(interval_bytes: u64) {
    INTERVAL.store(interval_bytes, Ordering::Relaxed);
}

/// The interval in force.
pub fn interval() -> u64 {
    INTERVAL.load(Ordering::Relaxed)
}

/// Follows frees of allocations that are recorded from now on.
pub fn follow_frees(follow: bool) {
    FOLLOW_FREES.store(follow, Ordering::Relaxed);
}

/// Whether frees are followed.
pub fn follows_frees() -> bool {
    FOLLOW_FREES.load(Ordering::Relaxed)
}

/// In a child after fork: forgets the parent's live allocations.
pub fn reset_in_child() {
    live::clear();
}

/// Records an allocation that was obtained.
#[inline(always)]
pub(crate) fn allocated(
    function: Function,
    address: *mut u8,
    size: usize,
    from: impl FnOnce() -> (FrameAddress, Registers),
) {
    match thread::current() {
        Current::Known(thread) => {
            if is_own(thread, function) {
                return;
            }
            thread.count(function, size as u64);
            if modules::is_refresh_requested() {
                refresh(thread);
            }
            let interval = INTERVAL.load(Ordering::Relaxed);
            if interval != 0 && !address.is_null() {
                let (at, registers) = from();
                decide(thread, function, address as u64, size as u64, interval, at, registers);
            }
        }
        Current::Ignored => {}
        Current::Unregistered => unregistered(function, size as u64),
    }
}

/// Whether the call is the recorder's own: what it allocates inside a hook comes back through the Rust door, where it has no heap of its own. (Behind the malloc
/// family it has one, and a call inside a hook is that of a signal handler of the host.)
#[inline(always)]
fn is_own(thread: &ThreadState, function: Function) -> bool {
    function.is_rust() && thread.is_inside()
}

/// A tick came upon code that was loaded since: a hook may do what its handler may not.
#[cold]
fn refresh(thread: &ThreadState) {
    if let Some(_inside) = thread.enter() {
        modules::refresh_on_request();
    }
}

#[cold]
fn unregistered(function: Function, bytes: u64) {
    thread::count_unregistered(function, bytes);
    if INTERVAL.load(Ordering::Relaxed) != 0 && !function.releases() {
        region::lose(Lost::NoThread, 1, bytes);
    }
}

#[inline]
fn decide(
    thread: &'static ThreadState,
    function: Function,
    address: u64,
    size: u64,
    interval: u64,
    at: FrameAddress,
    registers: Registers,
) {
    thread.allocations.store(thread.allocations.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    if let Some(weight) = sampling::decide(thread, size, interval) {
        record(thread, function, address, weight, at, registers);
    }
}

#[inline(never)]
fn record(
    thread: &'static ThreadState,
    function: Function,
    address: u64,
    weight: sampling::Weight,
    at: FrameAddress,
    registers: Registers,
) {
    let Some(mut inside) = thread.enter() else {
        region::lose(Lost::Reentered, weight.objects_q16 >> OBJECTS_FRACTION_BITS, weight.bytes);
        return;
    };
    let Some(values) = values_of(&mut inside, function, at, registers) else {
        region::lose(Lost::StoreFull, weight.objects_q16 >> OBJECTS_FRACTION_BITS, weight.bytes);
        return;
    };
    // SAFETY: `values_of` returns ids of allocation values.
    let cells: &AllocValues = unsafe { region::record(values) };
    region::add_own(&cells.objects_q16, weight.objects_q16);
    region::add_own(&cells.bytes, weight.bytes);
    if FOLLOW_FREES.load(Ordering::Relaxed) {
        let replaced = live::insert(Allocation {
            address,
            objects_q16: weight.objects_q16,
            bytes: weight.bytes,
            values,
            thread: thread.record_id(),
            sequence: thread.allocations.load(Ordering::Relaxed),
        });
        if let Some(replaced) = replaced {
            count_freed(&replaced, false);
        }
    }
}

fn values_of(
    inside: &mut Inside<'_>,
    function: Function,
    at: FrameAddress,
    registers: Registers,
) -> Option<layout::RecordId> {
    let (stack, thread) = (inside.state().stack(), inside.state().record_id());
    let (recording, kept) = inside.recording();
    let leaf = Some(Frame::pseudo(Pseudo::Function(function)));
    let leaf = kept.capture::<InHook>(recording, (stack, thread, Root::Allocs), (at, registers, None), leaf)?;
    #[cfg(feature = "oracle")]
    crate::oracle::compare(recording, stack, at, registers);
    recording.tree.values(leaf, ChunkKind::AllocValues, size_of::<AllocValues>())
}

/// A free that was counted and taken out of the table, in case it has to be undone.
#[derive(Debug)]
pub(crate) struct Freed(Option<Allocation>);

/// Records a free, before the memory is released.
#[inline(always)]
pub(crate) fn freed(function: Function, address: *mut u8) {
    match thread::current() {
        Current::Known(thread) => {
            if is_own(thread, function) {
                return;
            }
            thread.count(function, 0);
            if FOLLOW_FREES.load(Ordering::Relaxed) && live::may_contain(address as u64) {
                let freed = take(thread, address as u64);
                finish_free(thread, &freed);
            }
        }
        Current::Ignored => {
            // Memory that the host allocated and a thread of the recorder frees is still the host's.
            if FOLLOW_FREES.load(Ordering::Relaxed)
                && live::may_contain(address as u64)
                && let Some(allocation) = live::remove(address as u64)
            {
                count_freed(&allocation, false);
            }
        }
        Current::Unregistered => {
            unregistered(function, 0);
            if FOLLOW_FREES.load(Ordering::Relaxed)
                && live::may_contain(address as u64)
                && let Some(allocation) = live::remove(address as u64)
            {
                count_freed(&allocation, false);
            }
        }
    }
}

/// First half of a reallocation: the old memory may be released by the call that follows.
#[inline(always)]
pub(crate) fn before_realloc(address: *mut u8) -> Freed {
    if address.is_null() || !FOLLOW_FREES.load(Ordering::Relaxed) || !live::may_contain(address as u64) {
        return Freed(None);
    }
    match thread::current() {
        Current::Known(thread) => take(thread, address as u64),
        _ => Freed(live::remove(address as u64)),
    }
}

/// Second half: it succeeded, so the old allocation is gone; or it failed, and the old one is still there.
#[inline(always)]
pub(crate) fn after_realloc(freed: &Freed, released: bool) {
    let Freed(Some(allocation)) = freed else { return };
    if released {
        match thread::current() {
            Current::Known(thread) => finish_free(thread, freed),
            _ => count_freed(allocation, false),
        }
    } else {
        live::insert(*allocation);
    }
}

#[cold]
fn take(thread: &ThreadState, address: u64) -> Freed {
    let Some(_inside) = thread.enter() else { return Freed(None) };
    Freed(live::remove(address))
}

#[inline]
fn finish_free(thread: &ThreadState, freed: &Freed) {
    if let Freed(Some(allocation)) = freed {
        let temporary = allocation.thread == thread.record_id()
            && allocation.sequence == thread.allocations.load(Ordering::Relaxed);
        count_freed(allocation, temporary);
    }
}

fn count_freed(allocation: &Allocation, temporary: bool) {
    // SAFETY: the id is that of allocation values, and the store stays mapped; a child after fork clears the table first.
    let cells: &AllocValues = unsafe { region::record(allocation.values) };
    // Frees come from any thread, so these are real atomic additions.
    cells.freed_objects_q16.fetch_add(allocation.objects_q16, Ordering::Relaxed);
    cells.freed_bytes.fetch_add(allocation.bytes, Ordering::Relaxed);
    if temporary {
        cells.temporary_objects_q16.fetch_add(allocation.objects_q16, Ordering::Relaxed);
    }
}
