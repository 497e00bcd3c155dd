//! Recorded allocations that are still live: address to allocation site.
//!
//! Called from: hooks, under the guard; never from a handler. Sharded open addressing with backward-shift deletion, in mappings of its own. A shard is locked for a
//! few loads and stores, never across a call into the host, and a waiter gives up after a bound. When memory runs out: the allocation is counted in
//! `Lost::LiveTableFull` and is missing from `inuse_*`.
#![allow(unsafe_code)]

use capture::mapping::Mapping;
use capture::region;
use capture::syscall::yield_now;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use layout::{Lost, RecordId};

/// A live allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) objects_q16: u64,
    pub(crate) bytes: u64,
    /// The site's values in the store.
    pub(crate) values: RecordId,
    /// Thread that allocated, and how many allocations it had made then.
    pub(crate) thread: RecordId,
    pub(crate) sequence: u64,
}

const SHARDS: usize = 64;
const FIRST_SLOTS: usize = 128;
const FILTER: usize = 1 << 16;

struct Table {
    slots: Option<Mapping>,
    mask: usize,
    used: usize,
}

struct Shard {
    locked: AtomicBool,
    table: UnsafeCell<Table>,
}

// SAFETY: the table is used under `locked` alone.
unsafe impl Sync for Shard {}

static TABLE: [Shard; SHARDS] = [const {
    Shard { locked: AtomicBool::new(false), table: UnsafeCell::new(Table { slots: None, mask: 0, used: 0 }) }
}; SHARDS];
/// How many live allocations have a hash (saturating, then sticky): a free whose hash has none is not in the table.
static COUNTS: [AtomicU8; FILTER] = [const { AtomicU8::new(0) }; FILTER];

fn hash(address: u64) -> u64 {
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn hash_of_page(address: u64) -> u64 {
    (address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether the address can be in the table: one load.
#[inline]
pub(crate) fn may_contain(address: u64) -> bool {
    COUNTS.get((hash(address) >> 48) as usize).is_some_and(|c| c.load(Ordering::Relaxed) != 0)
}

struct Locked<'a>(&'a Shard);

impl Locked<'_> {
    fn table(&mut self) -> &mut Table {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.table.get() }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

fn lock(address: u64) -> Option<Locked<'static>> {
    let shard = TABLE.get((hash_of_page(address) >> 32) as usize % SHARDS)?;
    for round in 0..100_000_u32 {
        if shard.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Some(Locked(shard));
        }
        if round < 100 { core::hint::spin_loop() } else { yield_now() }
    }
    None
}

/// Enters a new allocation. Returns what was there at the same address: freed without our seeing it.
pub(crate) fn insert(allocation: Allocation) -> Option<Allocation> {
    let Some(mut locked) = lock(allocation.address) else {
        region::lose(Lost::LiveTableFull, 1, allocation.bytes);
        return None;
    };
    match locked.table().insert(allocation) {
        Ok(None) => {
            adjust(allocation.address, 1);
            None
        }
        Ok(replaced) => replaced,
        Err(()) => {
            region::lose(Lost::LiveTableFull, 1, allocation.bytes);
            None
        }
    }
}

/// Takes an allocation out, before its memory is released.
pub(crate) fn remove(address: u64) -> Option<Allocation> {
    let removed = lock(address)?.table().remove(address)?;
    adjust(address, -1);
    Some(removed)
}

/// In a child after fork: what the parent has live is not the child's recording.
pub(crate) fn clear() {
    for shard in &TABLE {
        // SAFETY: the child has one thread, and it is here.
        let table = unsafe { &mut *shard.table.get() };
        *table = Table { slots: None, mask: 0, used: 0 };
        shard.locked.store(false, Ordering::Release);
    }
    COUNTS.iter().for_each(|c| c.store(0, Ordering::Relaxed));
}

fn adjust(address: u64, by: i8) {
    if let Some(count) = COUNTS.get((hash(address) >> 48) as usize) {
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |c| {
            if c == u8::MAX { None } else { c.checked_add_signed(by) }
        });
    }
}

impl Table {
    fn slot(&mut self, index: usize) -> Option<&mut Allocation> {
        let base = self.slots.as_ref()?.address().cast::<Allocation>();
        // SAFETY: the mapping has `mask + 1` zeroed slots, and any bits are a valid allocation.
        Some(unsafe { &mut *base.add(index & self.mask) })
    }

    /// Blocks of one page are neighbours here too: what is allocated together is mostly freed together.
    fn home(&self, address: u64) -> usize {
        ((hash_of_page(address) >> 12) as usize).wrapping_add((address >> 4) as usize & 0xff) & self.mask
    }

    fn insert(&mut self, allocation: Allocation) -> Result<Option<Allocation>, ()> {
        if self.slots.is_none() || self.used * 3 > self.mask * 2 {
            self.grow()?;
        }
        let mut at = self.home(allocation.address);
        loop {
            let slot = self.slot(at).ok_or(())?;
            if slot.address == 0 {
                *slot = allocation;
                self.used += 1;
                return Ok(None);
            }
            if slot.address == allocation.address {
                return Ok(Some(core::mem::replace(slot, allocation)));
            }
            at = at.wrapping_add(1);
        }
    }

    fn remove(&mut self, address: u64) -> Option<Allocation> {
        let mut at = self.home(address);
        let removed = loop {
            let slot = self.slot(at)?;
            if slot.address == 0 {
                return None;
            }
            if slot.address == address {
                break *slot;
            }
            at = at.wrapping_add(1);
        };
        // Backward shift: the run after the hole moves up, so that no tombstone is left.
        let mut hole = at & self.mask;
        let mut next = hole;
        loop {
            next = next.wrapping_add(1) & self.mask;
            let candidate = *self.slot(next)?;
            if candidate.address == 0 {
                break;
            }
            let home = self.home(candidate.address);
            // The candidate may fill the hole unless its home lies behind the hole.
            if next.wrapping_sub(home) & self.mask >= next.wrapping_sub(hole) & self.mask {
                *self.slot(hole)? = candidate;
                hole = next;
            }
        }
        *self.slot(hole)? = Allocation::default();
        self.used -= 1;
        Some(removed)
    }

    fn grow(&mut self) -> Result<(), ()> {
        let count = if self.slots.is_none() { FIRST_SLOTS } else { (self.mask + 1) * 2 };
        let new = Mapping::new(count * size_of::<Allocation>()).ok_or(())?;
        let old_count = self.mask + 1;
        let old = self.slots.replace(new);
        self.mask = count - 1;
        self.used = 0;
        if let Some(old) = old {
            let base = old.address().cast::<Allocation>();
            for index in 0..old_count {
                // SAFETY: below the old mapping's number of slots.
                let allocation = unsafe { *base.add(index) };
                if allocation.address != 0 {
                    self.insert(allocation)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::HashMap;

    fn allocation(address: u64, bytes: u64) -> Allocation {
        Allocation { address, bytes, ..Allocation::default() }
    }

    #[test]
    fn the_table_agrees_with_a_map_over_random_inserts_and_removes() {
        let mut table = Table { slots: None, mask: 0, used: 0 };
        let mut model = HashMap::new();
        let mut random = 1_u64;
        for step in 0..200_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let address = ((random >> 40) % 3000 + 1) * 16;
            if random >> 63 == 0 {
                let replaced = table.insert(allocation(address, step)).ok().flatten().map(|a| a.bytes);
                assert_eq!(replaced, model.insert(address, step));
            } else {
                assert_eq!(table.remove(address).map(|a| a.bytes), model.remove(&address));
            }
            assert_eq!(table.used, model.len());
        }
    }

    #[test]
    fn what_was_removed_can_no_longer_be_contained() {
        assert!(!may_contain(0x5550_0010));
        assert_eq!(insert(allocation(0x5550_0010, 5)), None);
        assert!(may_contain(0x5550_0010));
        assert_eq!(remove(0x5550_0010).map(|a| a.bytes), Some(5));
        assert!(!may_contain(0x5550_0010));
        assert_eq!(remove(0x5550_0010), None);
    }
}
