//! The tips that a thread remembers: a table in which each has one place.
//!
//! Called from: the allocation hook, under its guard. May: map memory. A few places lie in the thread's state. Where a program allocates in more ways than that, tips take each other's places, and have to
//! be walked again; then there are more places, in a mapping of their own, up to a bound for each thread and one for all.
//!
//! The place follows from the leaf and its caller. Of tips that have these in common, the first has that place, and tells where the others are: by the word that is found instead of one of its own.
#![allow(unsafe_code)]

use crate::blocked::Blocked;
use crate::mapping::{LARGE_PAGE, Mapping, fetch_line};
use crate::region;
use crate::syscall::{advise, mm, unmap};
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};
use layout::RecordId;

/// Words of a tip, those of the leaf left aside.
pub(super) const WORDS: usize = 8;

const FIRST_LOG2: u32 = 8;
/// So many times as many places at a time.
const GROWTH_LOG2: u32 = 2;
const MOST_LOG2: u32 = 14;
const FIRST: usize = 1 << FIRST_LOG2;
const MOST: usize = 1 << MOST_LOG2;
/// Memory of all threads' tables, those in their states left aside.
const MOST_BYTES: usize = 16 << 20;

/// How much that is. Threads that grow at the same time may forget one: nothing is locked for it.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// A tip that was walked. Two cache lines, in which memory of zeros is none: no code lies at address zero.
///
/// It begins with the leaf's caller, by a step that is always made: many callers share a leaf that allocates for them.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub(super) struct Tip {
    /// The leaf's address.
    pub(super) pc: u64,
    pub(super) callers_pc: u64,
    pub(super) callers_fp: u64,
    /// The lower half of the caller's stack pointer: words have numbers in so much of a stack.
    pub(super) callers_sp: u32,
    pub(super) function: u8,
    pub(super) fps: FramePointers,
    /// Index of the joint among the kept frames.
    pub(super) joint: u16,
    /// The joint's node: its address, and the ones root-ward.
    pub(super) node: RecordId,
    pub(super) values: RecordId,
    /// What was met behind it, the last time.
    pub(super) next: Next,
    pub(super) words: [u64; WORDS],
    /// How many words from the caller's stack pointer they lie. Where there are fewer, the first is there several times.
    pub(super) distances: [u16; WORDS],
}

const _: () = assert!(size_of::<Tip>() == 128);

impl Tip {
    /// The joint's frame pointer, if what lies root-ward depends on it.
    #[inline(always)]
    pub(super) fn joint_fp(&self) -> Option<u64> {
        match self.fps.0 & FramePointers::JOINTS {
            FramePointers::NOBODYS => None,
            FramePointers::CALLERS => Some(self.callers_fp),
            word => self.words.get(usize::from(word)).copied(),
        }
    }

    #[inline(always)]
    fn first_place(&self) -> Place {
        Place::first(self.pc, self.callers_pc, self.callers_sp)
    }
}

/// The frame pointers on which a tip depends: whether on that of the leaf's caller, and which of its words the joint's is.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePointers(u8);

impl FramePointers {
    const NEEDS_CALLERS: u8 = 1 << 7;
    const JOINTS: u8 = Self::NEEDS_CALLERS - 1;
    /// In place of a word's index: the caller's own.
    const CALLERS: u8 = WORDS as u8;
    /// Nothing root-ward of the joint depends on it.
    const NOBODYS: u8 = Self::CALLERS + 1;

    /// Of a tip with these words. `None` if the joint's, where it is needed, is not among what the tip depends on.
    pub(super) fn new(callers: Option<u64>, joints: Option<u64>, words: &[u64; WORDS]) -> Option<Self> {
        let needs = if callers.is_some() { Self::NEEDS_CALLERS } else { 0 };
        let joints = match joints {
            None => Self::NOBODYS,
            Some(fp) => match words.iter().position(|word| *word == fp) {
                Some(index) => index as u8,
                None if callers == Some(fp) => Self::CALLERS,
                None => return None,
            },
        };
        Some(Self(needs | joints))
    }

    /// Whether the caller's is one of them.
    #[inline(always)]
    pub(super) fn needs_callers(self) -> bool {
        self.0 & Self::NEEDS_CALLERS != 0
    }
}

/// Where a tip begins: an allocation by `function`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) caller: Caller,
    pub(super) function: u8,
}

/// The leaf's caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
}

/// A tip, by what has to be fetched from memory for it: the number of the place where its leaf's tips are looked for first, that of its own place, and from bit 32 on its values. Programs go the
/// same ways again: what was met behind a tip the last time is fetched as soon as that is met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Next(u64);

impl Next {
    #[inline(always)]
    fn new(first: Place, place: Place, values: RecordId) -> Self {
        Self(u64::from(first.number()) | u64::from(place.number()) << 16 | u64::from(values.0) << 32)
    }

    #[inline(always)]
    fn first(self) -> u16 {
        self.0 as u16
    }

    #[inline(always)]
    fn place(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[inline(always)]
    fn values(self) -> RecordId {
        RecordId((self.0 >> 32) as u32)
    }
}

/// The table. Memory of zeros is one without a tip.
#[derive(Debug)]
pub(super) struct Tips {
    /// Places in a mapping of their own, 2 to the power of `more_log2`; null: the first ones are all.
    more: *mut Tip,
    more_log2: u32,
    /// Tips of other leaves whose place was taken, since there were more places.
    displaced: u32,
    /// Number of the place of the last one that was met.
    last: u16,
    first: [Tip; FIRST],
    /// A bit for each place that has a tip.
    taken: [u64; MOST / 64],
}

impl Tips {
    /// The tip at a place: the one that was looked for, or another, or none.
    #[inline(always)]
    pub(super) fn at(&self, place: Place) -> Option<&Tip> {
        let all = self.all();
        all.get(place.index(all.len()))
    }

    /// Remembers a tip.
    #[inline(always)]
    pub(super) fn put(&mut self, place: Place, tip: &Tip) {
        let all = self.all();
        let index = place.index(all.len());
        let Some(at) = all.get(index) else { return };
        let is_anothers = at.pc != 0 && at.first_place() != tip.first_place();
        // Before the tip: one that is left halfway by a jump out of a handler is among those that are forgotten.
        if let Some(taken) = self.taken.get_mut(index / 64) {
            *taken |= 1 << (index % 64);
        }
        compiler_fence(Ordering::SeqCst);
        if let Some(at) = self.all_mut().get_mut(index) {
            *at = *tip;
        }
        if is_anothers {
            self.displaced += 1;
            if self.displaced as usize > self.all().len() / 4 {
                self.grow();
            }
        }
    }

    /// The tip at `place`, to which its leaf's `first` place led, was met.
    #[inline(always)]
    pub(super) fn met(&mut self, first: Place, place: Place, values: RecordId) {
        // The first places are near enough.
        if !self.more.is_null() {
            self.met_among_many(Next::new(first, place, values));
        }
    }

    #[inline(always)]
    fn met_among_many(&mut self, met: Next) {
        let last = core::mem::replace(&mut self.last, met.place());
        let all = self.all_mut();
        let mask = all.len().wrapping_sub(1);
        if let Some(last) = all.get_mut(usize::from(last) & mask)
            && last.next != met
        {
            last.next = met;
        }
        let Some(next) = all.get(usize::from(met.place()) & mask).map(|tip| tip.next) else { return };
        for number in [next.first(), next.place()] {
            if let Some(tip) = all.get(usize::from(number) & mask) {
                let lines = core::ptr::from_ref(tip).cast::<u8>();
                fetch_line(lines);
                fetch_line(lines.wrapping_add(64));
            }
        }
        region::fetch(next.values());
    }

    /// Forgets all.
    #[cold]
    pub(super) fn clear(&mut self) {
        // Those alone that there are: the others' memory was perhaps never touched.
        for (word, at) in (0..MOST).step_by(64).enumerate() {
            while let Some(taken) = self.taken.get_mut(word)
                && *taken != 0
            {
                let index = at + taken.trailing_zeros() as usize;
                *taken &= *taken - 1;
                if let Some(tip) = self.all_mut().get_mut(index) {
                    tip.pc = 0;
                }
            }
        }
    }

    #[inline(always)]
    fn all(&self) -> &[Tip] {
        if self.more.is_null() {
            return &self.first;
        }
        // SAFETY: a mapping of so many tips, which nobody else has.
        unsafe { core::slice::from_raw_parts(self.more, 1 << self.more_log2) }
    }

    #[inline(always)]
    fn all_mut(&mut self) -> &mut [Tip] {
        if self.more.is_null() {
            return &mut self.first;
        }
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.more, 1 << self.more_log2) }
    }

    /// Makes more places, and moves the tips there. Where there can be no more, these have to do.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.displaced = 0;
        let (old, before) = (self.more, self.all().len());
        let old_bytes = if old.is_null() { 0 } else { size_of_val(self.all()) };
        let after = before << GROWTH_LOG2;
        if after > MOST {
            return;
        }
        // Pointer and number belong together.
        let _blocked = Blocked::new();
        let Some(new) = map_tips(after, old_bytes) else { return };
        (self.more, self.more_log2) = (new, after.trailing_zeros());
        self.taken.fill(0);
        for at in 0..before {
            let tip = match self.first.get(at) {
                Some(tip) if old.is_null() => *tip,
                // SAFETY: below the number of places of the old mapping.
                _ => unsafe { old.add(at).read() },
            };
            self.moved(&tip, (at, before));
        }
        if !old.is_null() {
            // SAFETY: mapped by `map_tips`, and no longer known to anybody.
            unsafe { unmap(old.cast(), old_bytes) };
        }
    }

    /// Puts a tip that was one of so many at its new place. One that lay at a place beyond the first of its leaf's is walked again.
    fn moved(&mut self, tip: &Tip, (at, of): (usize, usize)) {
        let place = tip.first_place();
        if tip.pc != 0 && place.index(of) == at {
            self.put(place, tip);
        }
    }
}

/// A place in the table, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    /// Where a tip is looked for first, by its leaf.
    #[inline(always)]
    pub(super) fn first(pc: u64, callers_pc: u64, callers_sp: u32) -> Self {
        Self((pc.rotate_left(20) ^ callers_pc.rotate_left(40) ^ u64::from(callers_sp)).wrapping_mul(FACTOR))
    }

    /// Where next, if the tip that is there differs, and this is there where it does.
    #[inline]
    pub(super) fn beyond(self, word: u64) -> Self {
        Self((self.0.rotate_left(23) ^ word).wrapping_mul(FACTOR))
    }

    /// Among the most places.
    #[inline(always)]
    fn number(self) -> u16 {
        (self.0 >> (64 - MOST_LOG2)) as u16
    }

    /// Among a power of two of them.
    #[inline(always)]
    fn index(self, places: usize) -> usize {
        usize::from(self.number()) & places.wrapping_sub(1)
    }
}

/// Fibonacci hashing.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// In a child after fork, whose states are empty.
pub(crate) fn reset() {
    BYTES.store(0, Ordering::Relaxed);
}

/// Memory for so many tips, in the place of so many bytes.
fn map_tips(count: usize, instead_of: usize) -> Option<*mut Tip> {
    let bytes = count * size_of::<Tip>();
    let all = BYTES.load(Ordering::Relaxed) + bytes - instead_of;
    if all > MOST_BYTES {
        return None;
    }
    // Tips are met all over the table: in small pages nearly each would also miss the processor's cache of page addresses.
    let mapping = if bytes < LARGE_PAGE { Mapping::new(bytes) } else { Mapping::new_in_large_pages(bytes) };
    let memory = mapping?.leak();
    BYTES.store(all, Ordering::Relaxed);
    // A child does not know of it: its parent's state is not there.
    // SAFETY: freshly mapped.
    let _ = unsafe { advise(memory, bytes, mm::WIPE_ON_FORK) };
    Some(memory.cast())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;

    fn tip(number: u64) -> Tip {
        Tip {
            pc: 0x40_0000 + number,
            callers_pc: 0x50_0000,
            callers_fp: number,
            callers_sp: 0x7ffc_0000,
            function: 0,
            fps: FramePointers(0),
            joint: 0,
            node: RecordId::NONE,
            values: RecordId(number as u32),
            next: Next::default(),
            words: [0; WORDS],
            distances: [0; WORDS],
        }
    }

    fn none() -> Box<Tips> {
        // SAFETY: memory of zeros is a table without a tip.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn known(tips: &Tips, count: u64) -> usize {
        let is_known = |number: &u64| {
            let wanted = tip(*number);
            tips.at(wanted.first_place()).is_some_and(|found| found.pc == wanted.pc && found.values == wanted.values)
        };
        (0..count).filter(is_known).count()
    }

    #[test]
    fn tips_that_take_turns_get_more_places_until_nearly_all_have_one() {
        let mut tips = none();
        for _ in 0..8 {
            (0..2_000).map(tip).for_each(|tip| tips.put(tip.first_place(), &tip));
        }
        assert!((4_096..=MOST).contains(&tips.all().len()), "{}", tips.all().len());
        assert!(known(&tips, 2_000) > 1_500, "{}", known(&tips, 2_000));
        tips.clear();
        assert_eq!(known(&tips, 2_000), 0);
        assert!(tips.all().iter().all(|tip| tip.pc == 0) && tips.taken.iter().all(|taken| *taken == 0));
    }

    #[test]
    fn what_was_met_behind_a_tip_the_last_time_is_what_is_fetched_with_it() {
        let mut tips = none();
        let ways: std::vec::Vec<_> = (0..300).map(tip).collect();
        let met = |tips: &mut Tips, tip: &Tip| tips.met(tip.first_place(), tip.first_place(), tip.values);
        let behind = |tips: &Tips, tip: &Tip| tips.at(tip.first_place()).map(|tip| tip.next.values().0);
        for _ in 0..8 {
            ways.iter().for_each(|tip| {
                tips.put(tip.first_place(), tip);
                met(&mut tips, tip);
            });
        }
        assert!(tips.all().len() > FIRST);
        ways.iter().for_each(|tip| met(&mut tips, tip));
        let right = ways.windows(2).filter(|way| behind(&tips, &way[0]) == Some(way[1].values.0)).count();
        assert!(right > 200, "{right}");
        let [.., a, b, c] = &*ways else { return };
        [a, c, b].into_iter().for_each(|tip| met(&mut tips, tip));
        assert_eq!([a, c].map(|tip| behind(&tips, tip)), [c, b].map(|tip| Some(tip.values.0)));
        let [first, place] = [a, b].map(Tip::first_place);
        let next = Next::new(first, place, RecordId(u32::MAX));
        assert_eq!((next.first(), next.place(), next.values()), (first.number(), place.number(), RecordId(u32::MAX)));
    }

    #[test]
    fn a_joints_frame_pointer_is_one_of_the_values_on_which_the_tip_depends() {
        let words = [3, 1, 4, 1, 5, 9, 2, 6];
        let of = |callers, joints| {
            FramePointers::new(callers, joints, &words).map(|fps| Tip { callers_fp: 7, fps, words, ..tip(0) })
        };
        let fps = |callers, joints| of(callers, joints).map(|tip| (tip.fps.needs_callers(), tip.joint_fp()));
        assert_eq!(fps(None, None), Some((false, None)));
        assert_eq!(fps(Some(7), None), Some((true, None)));
        assert_eq!(fps(None, Some(6)), Some((false, Some(6))));
        assert_eq!(fps(Some(7), Some(3)), Some((true, Some(3))));
        assert_eq!(fps(Some(7), Some(7)), Some((true, Some(7))));
        assert_eq!([fps(None, Some(7)), fps(Some(7), Some(8))], [None; 2]);
    }

    #[test]
    fn more_than_there_can_be_places_for_are_as_many_as_there_can_be() {
        let mut tips = none();
        for _ in 0..3 {
            (0..100_000).map(tip).for_each(|tip| tips.put(tip.first_place(), &tip));
        }
        assert_eq!(tips.all().len(), MOST);
        assert!(known(&tips, 100_000) > MOST / 2);
    }

    #[test]
    fn a_tip_that_is_walked_anew_at_its_own_place_asks_for_no_more() {
        let mut tips = none();
        for _ in 0..10_000 {
            tips.put(tip(7).first_place(), &tip(7));
        }
        assert_eq!((tips.all().len(), known(&tips, 8)), (FIRST, 1));
    }
}
