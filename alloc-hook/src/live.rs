//! Recorded allocations that are still live: address to allocation site.
//!
//! Called from: hooks; never from a handler. Tables in mappings of their own, by parts of the host's memory (*shards*). A shard is locked for a few loads and stores, never
//! across a call into the host, and a waiter gives up after a bound. What a hook left locked that will not come back, its thread mends and gives back ([`recover`]). When memory runs out: the allocation is counted in `Lost::LiveTableFull` and is missing from `inuse_*`, because it
//! counts as freed.
#![allow(unsafe_code)]

mod entry;
mod lock;
mod pages;
mod table;

use crate::near::NEAR;
use crate::sampling::{self, Weight};
use capture::mapping::Mapping;
use capture::region;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use layout::{Lost, RecordId};

use entry::Entry;
pub(crate) use lock::Wait;
use table::{Locked, Shard};

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

/// Other intervals than 1, and how many live allocations were sampled by each.
static INTERVALS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
static LIVE_OF: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

impl Interval {
    /// Every allocation.
    pub(crate) const EVERY: Self = Self(0);
    /// More intervals than can be told apart: what is sampled is weighed by the last of these, and not followed.
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
        let unknown = || ((&INTERVALS[15], &LIVE_OF[15]), Self::UNKNOWN.0);
        let ((interval, _), number) = known.or_else(free).unwrap_or_else(unknown);
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

/// Parts of the memory.
pub const SHARDS: usize = 64;
/// Cells of the filter that belong to a shard.
const CELLS: usize = 1024;

static TABLE: [Shard; SHARDS] = [const { Shard::new() }; SHARDS];
/// How many live allocations have a place (`place` has it; the entry points compute it too; saturating, then sticky): a free whose place has none is not in the table. Written under the lock of the shard.
pub static COUNTS: [[AtomicU8; CELLS]; SHARDS] = [const { [const { AtomicU8::new(0) }; CELLS] }; SHARDS];

/// Neighbouring cells that have a bit of [`NEAR`]'s `occupied` in common. All of those are half a KiB, and stay in the processor's first cache, which all of [`COUNTS`] would fill.
const TOGETHER: usize = CELLS / u64::BITS as usize;

/// Where an address belongs.
#[derive(Clone, Copy)]
struct Place {
    shard: &'static Shard,
    /// Its cell of the filter.
    cell: &'static AtomicU8,
    /// The cell and its neighbours, and the bit that tells whether any is in use.
    occupied: &'static AtomicU64,
    bit: u64,
    neighbours: &'static [AtomicU8],
}

impl Place {
    #[inline(always)]
    fn of(address: u64) -> Option<Self> {
        let (shard, cell) = place(address);
        let (cells, together) = (COUNTS.get(shard)?, cell / TOGETHER);
        Some(Self {
            shard: TABLE.get(shard)?,
            cell: cells.get(cell)?,
            occupied: NEAR.occupied.get(shard)?,
            bit: 1 << together,
            neighbours: cells.get(together * TOGETHER..)?.get(..TOGETHER)?,
        })
    }

    /// An allocation was entered. The shard is locked.
    #[inline(always)]
    fn enter(self) {
        // Other shards' words lie in the same line of the cache: where every allocation is recorded, all bits are set before long, and threads would take the line from each other.
        if !self.is_occupied() {
            self.occupied.store(self.occupied.load(Ordering::Relaxed) | self.bit, Ordering::Relaxed);
        }
        self.adjust(1);
    }

    /// Whether the cell or one of its neighbours is in use, perhaps.
    #[inline(always)]
    fn is_occupied(self) -> bool {
        self.occupied.load(Ordering::Relaxed) & self.bit != 0
    }

    /// An allocation was taken out that was sampled at this interval. The shard is locked.
    #[inline(always)]
    fn leave(self, interval: Interval) {
        self.adjust(-1);
        // Where every allocation is recorded, nobody asks.
        if interval != Interval::EVERY && self.neighbours.iter().all(|cell| cell.load(Ordering::Relaxed) == 0) {
            self.occupied.store(self.occupied.load(Ordering::Relaxed) & !self.bit, Ordering::Relaxed);
        }
    }

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

/// An address times this has, from [`PLACE_SHIFT`] on, the sum of the bits that tell neighbouring blocks apart and of those 4 KiB further up.
pub const PLACE: u64 = 1 << 12 | 1;
/// See [`PLACE`]: 12, and the bits that are zero in all blocks' addresses.
pub const PLACE_SHIFT: u32 = 12 + 4;
/// The same for the bit of `occupied`, of which the lowest six bits of what is left tell the place in its word.
pub const OCCUPIED_SHIFT: u32 = PLACE_SHIFT + TOGETHER.trailing_zeros();

/// Shard of an address, and its cell of the filter: one number, so that it takes a few instructions wherever it is computed.
///
/// 16 KiB lie in one shard, the next in another, and so do the same places of glibc's arenas, which are 64 MiB apart: threads that do the same would wait for each other.
#[inline(always)]
fn place(address: u64) -> (usize, usize) {
    let number = (address.wrapping_mul(PLACE) >> PLACE_SHIFT) as usize % (SHARDS * CELLS);
    (number / CELLS, number % CELLS)
}

/// Whether the address can be in the table.
#[inline]
pub(crate) fn may_contain(address: u64) -> bool {
    Place::of(address).is_some_and(|place| place.cell.load(Ordering::Relaxed) != 0)
}

/// Whether any of its neighbours may be in the table, or itself.
#[inline(always)]
pub(crate) fn is_beside_others(address: u64) -> bool {
    Place::of(address).is_some_and(Place::is_occupied)
}

/// An allocation could not be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Lets the processor fetch the place of an allocation from memory.
#[inline(always)]
pub(crate) fn announce(address: u64) {
    if let Some(shard) = TABLE.get(place(address).0) {
        shard.announce(address);
    }
}

/// Enters a new allocation. Returns what was there at the same address: freed without our seeing it.
#[inline(always)]
pub(crate) fn insert(allocation: Allocation, wait: Wait) -> Result<Option<Allocation>, Full> {
    // A jump out of here may leave the interval with a number for ever, and never one too soon without.
    allocation.interval.count(1);
    let Some(replaced) = entered(&allocation, wait) else {
        allocation.interval.count(u64::MAX);
        return Err(full(allocation.size));
    };
    if let Some(replaced) = replaced {
        replaced.interval.count(u64::MAX);
    }
    Ok(replaced)
}

#[cold]
fn full(bytes: u64) -> Full {
    region::lose(Lost::LiveTableFull, 1, bytes);
    Full
}

/// What was there.
#[inline(always)]
fn entered(allocation: &Allocation, wait: Wait) -> Option<Option<Allocation>> {
    let entry = Entry::new(allocation)?;
    let place = Place::of(allocation.address)?;
    let mut locked = place.shard.lock(wait)?;
    locked.make_room()?;
    let replaced = locked.insert(entry);
    if replaced.is_none() {
        place.enter();
    }
    Some(replaced)
}

/// Takes an allocation out, before its memory is released.
#[inline(always)]
pub(crate) fn remove(address: u64, wait: Wait) -> Option<Allocation> {
    let place = Place::of(address)?;
    let Some(mut locked) = place.shard.lock(wait) else {
        full(0);
        return None;
    };
    let removed = locked.remove(address)?;
    place.leave(removed.interval);
    drop(locked);
    removed.interval.count(u64::MAX);
    Some(removed)
}

/// After a hook of the calling thread that will not come back: mends what it was about to change. With all signals blocked.
#[cold]
pub(crate) fn recover() {
    for (shard, table) in TABLE.iter().enumerate() {
        if let Some(mut locked) = table.take_over() {
            locked.mend();
            count_anew(shard, &locked);
        }
    }
}

/// Sets the filter of a shard to what is in its table. A place of something that lives is at no time that of nothing.
fn count_anew(shard: usize, locked: &Locked<'_>) {
    let (Some(cells), Some(occupied)) = (COUNTS.get(shard), NEAR.occupied.get(shard)) else { return };
    let Some(mut counted) = Mapping::new(CELLS) else { return };
    let counted = counted.bytes_mut();
    locked.each(|address| {
        if let Some(count) = counted.get_mut(place(address).1) {
            *count = count.saturating_add(1);
        }
    });
    for (cell, count) in cells.iter().zip(&*counted) {
        cell.store(*count, Ordering::Relaxed);
    }
    let in_use = counted.chunks(TOGETHER).zip(0..).filter(|(counted, _)| counted.iter().any(|count| *count != 0));
    occupied.store(in_use.fold(0, |bits, (_, bit)| bits | 1 << bit), Ordering::Relaxed);
}

/// In a child after fork: what the parent has live is not the child's recording.
pub(crate) fn clear() {
    for shard in &TABLE {
        shard.clear();
    }
    COUNTS.as_flattened().iter().for_each(|c| c.store(0, Ordering::Relaxed));
    NEAR.occupied.iter().for_each(|c| c.store(0, Ordering::Relaxed));
    LIVE_OF.iter().for_each(|c| c.store(0, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use capture::tls;

    fn allocation(address: u64, size: u64) -> Allocation {
        Allocation { address, size, values: RecordId(7), interval: Interval::EVERY }
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
        assert_eq!(remove(0x5550_0010, Wait::Never), None);
    }

    #[test]
    fn neighbours_of_what_lives_are_told_and_those_of_nothing_no_longer() {
        // Sixteen neighbouring cells, each of a block, and a block that shares the first one's cell.
        let start = 0x7770_0100_u64;
        let mut blocks: std::vec::Vec<u64> = (0..16).map(|i| start + i * 16).collect();
        blocks.push(start + (1 << 36));
        let occupied = |address| Place::of(address).unwrap().is_occupied();
        assert!(blocks.iter().all(|block| place(*block).1 / TOGETHER == place(start).1 / TOGETHER));
        assert_eq!(place(start + (1 << 36)), place(start));
        let mut random = 1_u64;
        for interval in [Interval::number(4096), Interval::EVERY, Interval::number(4096)] {
            let mut lives = std::vec::Vec::new();
            for _ in 0..5000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let block = blocks[(random >> 33) as usize % blocks.len()];
                if let Some(at) = lives.iter().position(|lived| *lived == block) {
                    lives.swap_remove(at);
                    assert!(remove(block, Wait::Never).is_some());
                } else {
                    lives.push(block);
                    assert_eq!(insert(Allocation { interval, ..allocation(block, 8) }, Wait::Never), Ok(None));
                }
                assert!(lives.iter().all(|block| occupied(*block) && may_contain(*block)));
                if interval != Interval::EVERY {
                    assert_eq!(occupied(start), !lives.is_empty());
                }
            }
            lives.iter().for_each(|block| assert!(remove(*block, Wait::Never).is_some()));
        }
        assert!(!occupied(start));
    }

    #[test]
    fn a_shard_whose_lock_was_left_is_mended_by_its_thread_and_tells_again_what_it_contains() {
        let start = 0x4440_4000_u64;
        let before = tls::get();
        tls::set(0x7f00_0000_2000);
        // More in one cell than it counts.
        let blocks: std::vec::Vec<u64> = (0..300).map(|i| start + ((i % 3) << 4) + (i << 36)).collect();
        for block in &blocks {
            assert_eq!(insert(allocation(*block, 8), Wait::Never), Ok(None));
        }
        let of = |address| Place::of(address).unwrap();
        // A removal and an insertion that came as far as the table.
        assert!(of(blocks[0]).shard.lock(Wait::Never).unwrap().remove(blocks[0]).is_some());
        let mut locked = of(blocks[0]).shard.lock(Wait::Never).unwrap();
        let new = start + 0x100;
        locked.make_room().unwrap();
        assert!(locked.insert(Entry::new(&allocation(new, 8)).unwrap()).is_none());
        assert!(!may_contain(new));
        core::mem::forget(locked);
        assert_eq!(insert(allocation(start, 8), Wait::Never), Err(Full), "the lock is held");
        recover();
        assert!(may_contain(new) && of(new).is_occupied());
        assert_eq!(of(blocks[0]).cell.load(Ordering::Relaxed), 99);
        for block in blocks[1..].iter().chain([&new]) {
            assert_eq!(remove(*block, Wait::Never).map(|removed| removed.address), Some(*block));
        }
        assert!([start, new].iter().all(|block| !may_contain(*block)));
        tls::set(before);
    }

    #[test]
    fn an_interval_keeps_its_number_while_allocations_sampled_by_it_live() {
        let kept = Interval::number(4096);
        let sampled = Allocation { interval: kept, ..allocation(0x6660_0010, 100) };
        assert_eq!(insert(sampled, Wait::Never), Ok(None));
        let others: std::vec::Vec<_> = (0..100).map(|i| Interval::number(10_000 + i)).collect();
        assert!(others.iter().all(|other| *other != kept && *other != Interval::EVERY && *other != Interval::UNKNOWN));
        // As many as can be told apart, each with a block that lives; the next one is weighed all the same.
        let block = |i: u64, interval| Allocation { interval, ..allocation(0x6660_1000 + i * 16, 100) };
        let followed = (0..13).filter(|i| insert(block(*i, Interval::number(20_000 + i)), Wait::Never) == Ok(None));
        let followed: std::vec::Vec<_> = followed.collect();
        assert_eq!(followed.len(), 13);
        let unknown = Interval::number(30_000);
        assert_eq!(unknown, Interval::UNKNOWN);
        assert_eq!(block(13, unknown).weight(), sampling::weigh(100, 30_000));
        assert_eq!(insert(block(13, unknown), Wait::Never), Err(Full));
        assert!(followed.iter().all(|i| remove(0x6660_1000 + i * 16, Wait::Never).is_some()));
        let removed = remove(0x6660_0010, Wait::Never).unwrap();
        assert_eq!(removed.weight(), sampling::weigh(100, 4096));
        assert_eq!(Interval::number(1), Interval::EVERY);
    }
}
