//! Recorded allocations that are still live: address to allocation site.
//!
//! Called from: hooks; never from a handler. Sharded open addressing with backward-shift deletion, in mappings of its own. A shard is locked for a few loads and stores, never
//! across a call into the host, and a waiter gives up after a bound. When memory runs out: the allocation is counted in `Lost::LiveTableFull` and is missing from `inuse_*`, because it
//! counts as freed.
//!
//! An entry has 16 bytes, and tables grow by half when three quarters full: at most 32 bytes an allocation, once a table has outgrown its first page.
#![allow(unsafe_code)]

use crate::sampling::{self, Weight};
use capture::mapping::{Mapping, fetch_line};
use capture::region;
use capture::syscall::yield_now;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use layout::{Lost, RecordId};

/// A live allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    /// Bytes asked.
    pub(crate) size: u64,
    /// The site's values in the store.
    pub(crate) values: RecordId,
    /// Number of the interval at which it was sampled.
    pub(crate) interval: Interval,
}

/// Number of a sampling interval that is or was in force, as long as allocations that were sampled by it live. 0: every allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval(u8);

/// Other intervals than 1, and how many live allocations were sampled by each, in the lower half of `LIVE_OF`; in the upper half whether the interval is in force.
static INTERVALS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
static LIVE_OF: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

impl Interval {
    /// Every allocation.
    pub(crate) const EVERY: Self = Self(0);
    /// More intervals than can be told apart: what is sampled is not followed.
    pub(crate) const UNKNOWN: Self = Self(15);

    /// The number of an interval that comes into force. Not called by two threads at once.
    pub(crate) fn number(bytes: u64) -> Self {
        if bytes <= 1 {
            return Self::EVERY;
        }
        let places = || INTERVALS.iter().zip(&LIVE_OF).zip(0_u8..15).skip(1);
        let known = places().find(|((interval, _), _)| interval.load(Ordering::Relaxed) == bytes);
        // One that nobody uses any more. The interval that was in force before is spared: a hook may still be about to use it.
        let free = || {
            places().find(|((interval, live), number)| {
                let newest = NEWEST.load(Ordering::Relaxed) == *number;
                interval.load(Ordering::Relaxed) == 0 || (live.load(Ordering::Relaxed) == 0 && !newest)
            })
        };
        let Some(((interval, _), number)) = known.or_else(free) else { return Self::UNKNOWN };
        interval.store(bytes, Ordering::Relaxed);
        NEWEST.store(number, Ordering::Relaxed);
        Self(number)
    }

    /// The number, below 16.
    pub(crate) const fn get(self) -> u8 {
        self.0
    }

    /// The interval with this number.
    pub(crate) const fn from_number(number: u8) -> Self {
        Self(number & 15)
    }

    /// Mean bytes between sampled allocations.
    fn bytes(self) -> u64 {
        INTERVALS.get(usize::from(self.0)).map_or(1, |bytes| bytes.load(Ordering::Relaxed)).max(1)
    }

    #[inline]
    fn count(self, by: u64) {
        if self != Self::EVERY
            && let Some(live) = LIVE_OF.get(usize::from(self.0))
        {
            live.fetch_add(by, Ordering::Relaxed);
        }
    }
}

/// Number of the interval that came into force last.
static NEWEST: AtomicU8 = AtomicU8::new(0);

impl Allocation {
    /// What it stands for.
    #[inline]
    pub(crate) fn weight(&self) -> Weight {
        if self.interval == Interval::EVERY {
            Weight::of_one(self.size)
        } else {
            sampling::weigh(self.size, self.interval.bytes())
        }
    }
}

/// An entry: address in the upper 47 bits, whether it is [`DISPLACED`], number of the interval, upper 12 bits of the size; values and lower half of the size. Zero: free.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Entry {
    key: u64,
    rest: u64,
}

/// Sizes that an entry can hold, and addresses: all that programs have.
const SIZES: u64 = 1 << 44;
const ADDRESSES: u64 = 1 << 47;

/// Bit of a key: the entry is not in the slot where it is looked for first.
const DISPLACED: u64 = 1 << 16;

impl Entry {
    #[inline]
    fn new(allocation: &Allocation) -> Option<Self> {
        let Allocation { address, size, values, interval } = *allocation;
        (address < ADDRESSES && size < SIZES).then_some(Self {
            key: address << 17 | u64::from(interval.0) << 12 | size >> 32,
            rest: u64::from(values.0) << 32 | size & 0xffff_ffff,
        })
    }

    #[inline]
    fn address(self) -> u64 {
        self.key >> 17
    }

    #[inline]
    fn allocation(self) -> Allocation {
        Allocation {
            address: self.address(),
            size: (self.key & 0xfff) << 32 | self.rest & 0xffff_ffff,
            values: RecordId((self.rest >> 32) as u32),
            interval: Interval((self.key >> 12) as u8 & 15),
        }
    }
}

const SHARDS: usize = 64;
/// Slots of a page, with which a table begins.
const FIRST_SLOTS: usize = 4096 / size_of::<Entry>();
/// Cells of the filter that belong to a shard.
const CELLS: usize = 1024;

/// A table, and its lock. In cache lines of its own: threads that are at neighbouring shards do not wait for each other.
#[repr(align(128))]
struct Shard {
    locked: AtomicBool,
    /// The table's slots and their number: written under the lock, read without it by those who only ask for a cache line.
    first: AtomicPtr<Entry>,
    count: AtomicUsize,
    /// Slots in use.
    used: AtomicUsize,
    mapping: UnsafeCell<Option<Mapping>>,
}

// SAFETY: the mapping is used under `locked` alone.
unsafe impl Sync for Shard {}

static TABLE: [Shard; SHARDS] = [const { Shard::new() }; SHARDS];
/// How many live allocations have a place (`place` has it; the entry points compute it too; saturating, then sticky): a free whose place has none is not in the table. Written under the lock of the shard.
pub static COUNTS: [[AtomicU8; CELLS]; SHARDS] = [const { [const { AtomicU8::new(0) }; CELLS] }; SHARDS];

/// Where an address belongs.
#[derive(Clone, Copy)]
struct Place {
    shard: &'static Shard,
    /// Its cell of the filter.
    cell: &'static AtomicU8,
}

impl Place {
    #[inline(always)]
    fn of(address: u64) -> Option<Self> {
        let (shard, cell) = place(address);
        Some(Self { shard: TABLE.get(shard)?, cell: COUNTS.get(shard)?.get(cell)? })
    }

    /// The shard is locked.
    #[inline(always)]
    fn adjust(self, by: i8) {
        let before = self.cell.load(Ordering::Relaxed);
        if before != u8::MAX
            && let Some(after) = before.checked_add_signed(by)
        {
            self.cell.store(after, Ordering::Relaxed);
        }
    }
}

/// Shard of an address, and its cell of the filter: one number, of bits in which neighbouring blocks differ and of those further up, so that it takes a few instructions wherever it is computed.
///
/// 16 KiB lie in one shard, the next in another, and so do the same places of glibc's arenas, which are 64 MiB apart: threads that do the same would wait for each other.
#[inline(always)]
fn place(address: u64) -> (usize, usize) {
    let number = (address >> 4 ^ address >> 16) as usize % (SHARDS * CELLS);
    (number / CELLS, number % CELLS)
}

/// Whether the address can be in the table: one load.
#[inline]
pub(crate) fn may_contain(address: u64) -> bool {
    Place::of(address).is_some_and(|place| place.cell.load(Ordering::Relaxed) != 0)
}

struct Locked<'a>(&'a Shard);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

/// How long a lock is waited for: a thread that is inside the recorder already, below a signal handler of the host, may be the one that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    ForAWhile,
    Never,
}

#[inline(always)]
fn lock(shard: &'static Shard, wait: Wait) -> Option<Locked<'static>> {
    if shard.try_lock() { Some(Locked(shard)) } else { wait_for(shard, wait) }
}

#[cold]
#[inline(never)]
fn wait_for(shard: &'static Shard, wait: Wait) -> Option<Locked<'static>> {
    if wait == Wait::Never {
        return None;
    }
    for round in 0..100_000_u32 {
        if round < 100 {
            core::hint::spin_loop()
        } else {
            yield_now()
        }
        if shard.try_lock() {
            return Some(Locked(shard));
        }
    }
    None
}

impl Shard {
    const fn new() -> Self {
        Self {
            locked: AtomicBool::new(false),
            first: AtomicPtr::new(core::ptr::null_mut()),
            count: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            mapping: UnsafeCell::new(None),
        }
    }

    #[inline(always)]
    fn slots(&self) -> Slots {
        Slots { first: self.first.load(Ordering::Relaxed), count: self.count.load(Ordering::Relaxed) }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// An allocation could not be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Lets the processor fetch the place of an allocation from memory.
#[inline(always)]
pub(crate) fn announce(address: u64) {
    if let Some(shard) = TABLE.get(place(address).0) {
        let slots = shard.slots();
        fetch_line(slots.first.wrapping_add(slots.home(address)).cast());
    }
}

/// Enters a new allocation. Returns what was there at the same address: freed without our seeing it.
#[inline(always)]
pub(crate) fn insert(allocation: Allocation, wait: Wait) -> Result<Option<Allocation>, Full> {
    let Some(replaced) = entered(&allocation, wait) else {
        return Err(full(allocation.size));
    };
    allocation.interval.count(1);
    Ok(match replaced.key {
        0 => None,
        _ => {
            let replaced = replaced.allocation();
            replaced.interval.count(u64::MAX);
            Some(replaced)
        }
    })
}

#[cold]
fn full(bytes: u64) -> Full {
    region::lose(Lost::LiveTableFull, 1, bytes);
    Full
}

/// What was in its slot, which is free if it was new.
#[inline(always)]
fn entered(allocation: &Allocation, wait: Wait) -> Option<Entry> {
    if allocation.interval == Interval::UNKNOWN {
        return None;
    }
    let entry = Entry::new(allocation)?;
    let place = Place::of(allocation.address)?;
    let mut locked = lock(place.shard, wait)?;
    locked.make_room()?;
    let replaced = locked.insert(entry);
    if replaced.key == 0 {
        place.adjust(1);
    }
    Some(replaced)
}

/// Takes an allocation out, before its memory is released.
#[inline(always)]
pub(crate) fn remove(address: u64, wait: Wait) -> Option<Allocation> {
    let place = Place::of(address)?;
    let Some(mut locked) = lock(place.shard, wait) else {
        full(0);
        return None;
    };
    let removed = locked.remove(address)?;
    place.adjust(-1);
    drop(locked);
    let removed = removed.allocation();
    removed.interval.count(u64::MAX);
    Some(removed)
}

/// In a child after fork: what the parent has live is not the child's recording.
pub(crate) fn clear() {
    for shard in &TABLE {
        shard.first.store(core::ptr::null_mut(), Ordering::Relaxed);
        shard.count.store(0, Ordering::Relaxed);
        shard.used.store(0, Ordering::Relaxed);
        // SAFETY: the child has one thread, and it is here.
        unsafe { *shard.mapping.get() = None };
        shard.locked.store(false, Ordering::Release);
    }
    COUNTS.as_flattened().iter().for_each(|c| c.store(0, Ordering::Relaxed));
    LIVE_OF.iter().for_each(|c| c.store(0, Ordering::Relaxed));
}

/// The slots of a table.
#[derive(Clone, Copy)]
struct Slots {
    first: *mut Entry,
    count: usize,
}

impl Slots {
    /// Where an address is looked for first.
    ///
    /// Blocks of the same 256 bytes are neighbours here too: what is allocated together is mostly freed together. (With more than that, runs of occupied slots grow, and a
    /// removal looks at a run's every slot.)
    #[inline(always)]
    fn home(self, address: u64) -> usize {
        let block = (address >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = ((block * self.count as u64) >> 32) as usize;
        let at = first + (address >> 4) as usize % 16;
        if at >= self.count { at - self.count } else { at }
    }

    #[inline(always)]
    fn after(self, at: usize) -> usize {
        if at + 1 == self.count { 0 } else { at + 1 }
    }

    fn distance(self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.count - from }
    }

    /// # Safety
    /// There is a slot with this index, and its table is locked until the entry is no longer used.
    #[inline(always)]
    unsafe fn at<'a>(self, index: usize) -> &'a mut Entry {
        // SAFETY: the mapping has so many zeroed slots, and any bits are a valid entry.
        unsafe { &mut *self.first.add(index) }
    }
}

impl Locked<'_> {
    /// Makes sure that there is a free slot for another entry, and then one more.
    #[inline(always)]
    fn make_room(&mut self) -> Option<()> {
        let (used, count) = (self.0.used.load(Ordering::Relaxed), self.0.count.load(Ordering::Relaxed));
        if used * 4 >= count * 3 { self.grow() } else { Some(()) }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> Option<()> {
        let old = self.0.slots();
        let count = match old.count {
            0 => FIRST_SLOTS,
            count => (count + count / 2).next_multiple_of(FIRST_SLOTS),
        };
        let mapping = Mapping::new(count * size_of::<Entry>())?;
        self.0.first.store(mapping.address().cast(), Ordering::Relaxed);
        self.0.count.store(count, Ordering::Relaxed);
        self.0.used.store(0, Ordering::Relaxed);
        for index in 0..old.count {
            // SAFETY: below the old number of slots.
            let mut entry = *unsafe { old.at(index) };
            if entry.key != 0 {
                entry.key &= !DISPLACED;
                self.insert(entry);
            }
        }
        // SAFETY: locked. The old slots go.
        unsafe { *self.0.mapping.get() = Some(mapping) };
        Some(())
    }

    /// Puts an entry into a slot, of which one is free; what was there: the entry of the same address, or none.
    #[inline(always)]
    fn insert(&mut self, mut new: Entry) -> Entry {
        let slots = self.0.slots();
        let mut at = slots.home(new.address());
        loop {
            // SAFETY: `home` and `after` stay below the number of slots, which is not zero.
            let slot = unsafe { slots.at(at) };
            if slot.key == 0 || slot.address() == new.address() {
                let replaced = core::mem::replace(slot, new);
                if replaced.key == 0 {
                    self.count_used(1);
                }
                return replaced;
            }
            new.key |= DISPLACED;
            at = slots.after(at);
        }
    }

    #[inline(always)]
    fn remove(&mut self, address: u64) -> Option<Entry> {
        let slots = self.0.slots();
        if slots.count == 0 {
            return None;
        }
        let mut at = slots.home(address);
        let removed = loop {
            // SAFETY: as in `insert`. A quarter of the slots is free.
            let entry = *unsafe { slots.at(at) };
            if entry.key == 0 {
                return None;
            }
            if entry.address() == address {
                break entry;
            }
            at = slots.after(at);
        };
        // Backward shift: the run after the hole moves up, so that no tombstone is left.
        let (mut hole, mut next) = (at, at);
        loop {
            next = slots.after(next);
            // SAFETY: as above.
            let mut candidate = *unsafe { slots.at(next) };
            if candidate.key == 0 {
                break;
            }
            if candidate.key & DISPLACED == 0 {
                continue;
            }
            // The candidate may fill the hole unless its home lies behind the hole.
            let home = slots.home(candidate.address());
            if slots.distance(home, next) >= slots.distance(hole, next) {
                if home == hole {
                    candidate.key &= !DISPLACED;
                }
                // SAFETY: it was looked at.
                *unsafe { slots.at(hole) } = candidate;
                hole = next;
            }
        }
        // SAFETY: as above.
        *unsafe { slots.at(hole) } = Entry::default();
        self.count_used(-1);
        Some(removed)
    }

    #[inline(always)]
    fn count_used(&mut self, by: isize) {
        let used = self.0.used.load(Ordering::Relaxed);
        self.0.used.store(used.wrapping_add_signed(by), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::HashMap;

    fn allocation(address: u64, size: u64) -> Allocation {
        Allocation { address, size, values: RecordId(7), interval: Interval::EVERY }
    }

    fn entry(address: u64, size: u64) -> Entry {
        Entry::new(&allocation(address, size)).unwrap()
    }

    fn insert_with_room(table: &mut Locked<'_>, entry: Entry) -> Entry {
        table.make_room().unwrap();
        table.insert(entry)
    }

    #[test]
    fn the_table_agrees_with_a_map_over_random_inserts_and_removes() {
        let shard = Shard::new();
        let mut table = Locked(&shard);
        let mut model = HashMap::new();
        let mut random = 1_u64;
        for step in 0..200_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let address = ((random >> 40) % 3000 + 1) * 16;
            if random >> 63 == 0 {
                let replaced = insert_with_room(&mut table, entry(address, step));
                let replaced = (replaced.key != 0).then(|| replaced.allocation().size);
                assert_eq!(replaced, model.insert(address, step));
            } else {
                assert_eq!(table.remove(address).map(|e| e.allocation().size), model.remove(&address));
            }
            assert_eq!(shard.used.load(Ordering::Relaxed), model.len());
        }
    }

    #[test]
    fn an_entry_holds_every_address_and_size() {
        for (address, size) in [(1, 0), (0x7fff_ffff_fff8, SIZES - 1), (0x7fff_ffff_ffff, 0x1_2345_6789)] {
            let interval = Interval::from_number(14);
            let allocation = Allocation { address, size, values: RecordId(0xfedc_ba98), interval };
            assert_eq!(Entry::new(&allocation).unwrap().allocation(), allocation);
        }
        assert!(Entry::new(&allocation(ADDRESSES, 1)).is_none());
        assert!(Entry::new(&allocation(1, SIZES)).is_none());
    }

    #[test]
    fn blocks_that_are_no_words_apart_are_told_apart() {
        let shard = Shard::new();
        let mut table = Locked(&shard);
        for address in 0x1000..0x1400 {
            assert_eq!(insert_with_room(&mut table, entry(address, address)).key, 0);
        }
        let count = shard.slots().count;
        assert!(count * 16 <= 0x400 * 32, "{count} slots");
        for address in 0x1000..0x1400 {
            assert_eq!(table.remove(address).map(|e| e.allocation().size), Some(address));
        }
    }

    #[test]
    fn the_same_place_of_neighbouring_arenas_has_a_shard_of_its_own_in_each() {
        for arena in 0x7f12_3400_0000_u64 >> 26..(0x7f12_3400_0000_u64 >> 26) + 100 {
            let mut shards: std::vec::Vec<_> =
                (arena..arena + 16).map(|arena| place((arena << 26) + 0x8b0).0).collect();
            shards.sort_unstable();
            shards.dedup();
            assert_eq!(shards.len(), 16, "from {arena:#x}");
        }
    }

    #[test]
    fn what_was_removed_can_no_longer_be_contained() {
        assert!(!may_contain(0x5550_0010));
        assert_eq!(insert(allocation(0x5550_0010, 5), Wait::Never), Ok(None));
        assert!(may_contain(0x5550_0010));
        let replaced = insert(allocation(0x5550_0010, 6), Wait::Never).unwrap();
        assert_eq!(replaced.map(|a| a.size), Some(5), "freed without our seeing it");
        assert_eq!(remove(0x5550_0010, Wait::Never).map(|a| a.size), Some(6));
        assert!(!may_contain(0x5550_0010));
        assert_eq!(remove(0x5550_0010, Wait::ForAWhile), None);
    }

    #[test]
    fn an_interval_keeps_its_number_while_allocations_sampled_by_it_live() {
        let kept = Interval::number(4096);
        let sampled = Allocation { interval: kept, ..allocation(0x6660_0010, 100) };
        assert_eq!(insert(sampled, Wait::Never), Ok(None));
        let others: std::vec::Vec<_> = (0..100).map(|i| Interval::number(10_000 + i)).collect();
        assert!(others.iter().all(|other| *other != kept && *other != Interval::EVERY && *other != Interval::UNKNOWN));
        let removed = remove(0x6660_0010, Wait::ForAWhile).unwrap();
        assert_eq!(removed.weight(), sampling::weigh(100, 4096));
        assert_eq!(Interval::number(1), Interval::EVERY);
    }
}
