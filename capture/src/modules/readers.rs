//! Who looks at tables right now, so that those of a closed object can be unmapped.
//!
//! Called from: `reading` anywhere, `retire` and `reclaim` under the refresh lock. A reader counts itself in one of several counters, by its stack, before it loads a
//! pointer to a table, and out when it is done with it. What was unlinked is unmapped once every counter has been zero since. Only lookups that the rule cache cannot
//! answer come here.
//! If a reader is preempted: what was unlinked stays until a later refresh.
//!
//! # Orderings
//!
//! `count.fetch_add(SeqCst)` then load of the pointer, against store of the pointer then `count.load(SeqCst)`: either the reader finds the pointer
//! gone, or the reclaimer finds the reader.
#![allow(unsafe_code)]

use crate::syscall::unmap;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

const STRIPES: usize = 64;

#[repr(align(64))]
struct Stripe(AtomicU32);

static READERS: [Stripe; STRIPES] = [const { Stripe(AtomicU32::new(0)) }; STRIPES];

/// While it lives, no table is unmapped.
pub(super) struct Reading(&'static AtomicU32);

pub(super) fn reading() -> Reading {
    // Stacks of neighbours are at least a page apart.
    let here = 0_u8;
    let index = (&raw const here as u64 >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    let count = READERS.get(index as usize).map_or(&READERS[0].0, |stripe| &stripe.0);
    count.fetch_add(1, Ordering::SeqCst);
    Reading(count)
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// The head of memory that can be retired.
#[repr(C)]
pub(super) struct Head {
    /// Bytes of the mapping that begins here.
    pub(super) length: usize,
    next: AtomicPtr<Head>,
}

impl Head {
    pub(super) const fn new(length: usize) -> Self {
        Self { length, next: AtomicPtr::new(core::ptr::null_mut()) }
    }
}

/// What was unlinked and may still be looked at.
static RETIRED: AtomicPtr<Head> = AtomicPtr::new(core::ptr::null_mut());
/// Stripes that were not yet found empty since the last one was retired.
static AWAITED: AtomicU64 = AtomicU64::new(0);

/// Takes over memory that no new reader can reach.
///
/// # Safety
/// `head` begins a mapping of its own, which was unlinked before and is given here once.
pub(super) unsafe fn retire(head: *mut Head) {
    // SAFETY: the caller hands the mapping over; readers do not use the head.
    unsafe { (*head).next.store(RETIRED.load(Ordering::Relaxed), Ordering::Relaxed) };
    RETIRED.store(head, Ordering::Relaxed);
    AWAITED.store(u64::MAX, Ordering::Relaxed);
}

/// Unmaps what was retired, if all who could look at it are seen to be done.
pub(super) fn reclaim() {
    let mut head = RETIRED.load(Ordering::Relaxed);
    if head.is_null() {
        return;
    }
    let mut awaited = AWAITED.load(Ordering::Relaxed);
    for _ in 0..100 {
        for (bit, stripe) in READERS.iter().enumerate() {
            if stripe.0.load(Ordering::SeqCst) == 0 {
                awaited &= !(1 << bit);
            }
        }
        if awaited == 0 {
            break;
        }
        core::hint::spin_loop();
    }
    AWAITED.store(awaited, Ordering::Relaxed);
    if awaited != 0 {
        return;
    }
    RETIRED.store(core::ptr::null_mut(), Ordering::Relaxed);
    while !head.is_null() {
        // SAFETY: a mapping that was handed over by `retire`; nobody looks at it any more.
        unsafe {
            let next = (*head).next.load(Ordering::Relaxed);
            unmap(head.cast(), (*head).length);
            head = next;
        }
    }
}

/// In a child after fork: whoever was reading is not here.
pub(super) fn reset_in_child() {
    READERS.iter().for_each(|stripe| stripe.0.store(0, Ordering::Relaxed));
}
