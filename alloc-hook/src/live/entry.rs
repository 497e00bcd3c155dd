//! What a table holds: entries in its slots, and words in the pages of groups.
//!
//! Called from: hooks, with the shard's lock held.
#![allow(unsafe_code)]

use super::pages::Page;
use super::{Allocation, Interval};
use capture::mapping::fetch_line;
use layout::RecordId;

/// Bits of an address within its group, and within its window.
pub(super) const GROUP: u32 = 11;
const WINDOW: u32 = 5;
/// Windows of a group.
pub(super) const WINDOWS: usize = 1 << (GROUP - WINDOW);

/// What a slot holds. Zero: nothing.
///
/// A block: address in the upper 47 bits, whether it is [`DISPLACED`], number of the interval, whether it is [`APART`], upper 11 bits of the size; values and lower half of the size.
///
/// A group that has a page: the address of its first byte in the same bits, whether it is displaced, [`PAGED`]; how many of its blocks are apart (16 bits), and the page's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) rest: u64,
}

/// Sizes that an entry can hold, and addresses: all that programs have.
pub(super) const SIZES: u64 = 1 << 43;
pub(super) const ADDRESSES: u64 = 1 << 47;
pub(super) const ADDRESS_SHIFT: u32 = 17;
/// Bit of a key: the entry is not in the slot where it is looked for first.
pub(super) const DISPLACED: u64 = 1 << 16;
/// In place of an interval's number: the entry is of a group.
pub(super) const PAGED: u64 = (Interval::UNKNOWN.get() as u64) << 12;
/// The block's group has a page, and the block is not in it.
pub(super) const APART: u64 = 1 << 11;

/// In a group's second word: a block that is apart.
pub(super) const ONE_APART: u64 = 1 << 48;

impl Entry {
    pub(super) const FREE: Self = Self { key: 0, rest: 0 };

    #[inline]
    pub(super) fn new(allocation: &Allocation) -> Option<Self> {
        let Allocation { address, size, values, interval } = *allocation;
        (address < ADDRESSES && size < SIZES && interval != Interval::UNKNOWN).then_some(Self {
            key: address << ADDRESS_SHIFT | u64::from(interval.get()) << 12 | size >> 32,
            rest: u64::from(values.0) << 32 | size & 0xffff_ffff,
        })
    }

    /// Puts another in its place, in steps of which a jump out of a handler may leave any undone: until the last it is none.
    #[inline(always)]
    pub(super) fn set(&mut self, new: Self) {
        // SAFETY: this entry's words.
        unsafe {
            (&raw mut self.key).write_volatile(0);
            (&raw mut self.rest).write_volatile(new.rest);
            (&raw mut self.key).write_volatile(new.key);
        }
    }

    #[inline]
    pub(super) fn is_free(self) -> bool {
        self.key == 0
    }

    #[inline]
    pub(super) fn address(self) -> u64 {
        self.key >> ADDRESS_SHIFT
    }

    #[inline]
    pub(super) fn group(self) -> u64 {
        self.key >> (ADDRESS_SHIFT + GROUP)
    }

    #[inline]
    pub(super) fn is_paged(self) -> bool {
        self.key & PAGED == PAGED
    }

    #[inline]
    pub(super) fn is_apart(self) -> bool {
        self.key & APART != 0
    }

    /// Of a group.
    #[inline]
    pub(super) fn page(self) -> *mut Page {
        (self.rest & (ONE_APART - 1)) as *mut Page
    }

    /// Of a group: whether blocks of it are apart.
    #[inline]
    pub(super) fn has_apart(self) -> bool {
        self.rest >= ONE_APART
    }

    /// Of a group: whether nothing of it lives.
    ///
    /// # Safety
    /// The table is locked.
    pub(super) unsafe fn is_empty(self) -> bool {
        // SAFETY: the group's page, which nobody else is at.
        !self.has_apart() && unsafe { (*self.page()).iter().all(|word| *word == 0) }
    }

    #[inline]
    pub(super) fn allocation(self) -> Allocation {
        Allocation {
            address: self.address(),
            size: (self.key & (APART - 1)) << 32 | self.rest & 0xffff_ffff,
            values: RecordId((self.rest >> 32) as u32),
            interval: Interval::from_number((self.key >> 12) as u8),
        }
    }
}

/// A block in its window. Zero: none. Values, number of the interval, whether it begins in the window's second half, size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) const SIZES: u64 = 1 << Self::HALF_SHIFT;
    const HALF_SHIFT: u32 = 27;
    const INTERVAL_SHIFT: u32 = 28;

    /// The word of a block that can be in a window, and which window it is.
    #[inline(always)]
    pub(super) fn new(entry: Entry) -> Option<(usize, Self)> {
        let Allocation { address, size, values, interval } = entry.allocation();
        let word = Self(
            u64::from(values.0) << 32 | u64::from(interval.get()) << Self::INTERVAL_SHIFT | Self::half(address) | size,
        );
        (address & 15 == 0 && size < Self::SIZES && word.0 != 0).then_some((window(address), word))
    }

    #[inline(always)]
    fn half(address: u64) -> u64 {
        (address >> 4 & 1) << Self::HALF_SHIFT
    }

    /// Whether this is the block that begins at the address, which is in the window.
    #[inline(always)]
    pub(super) fn is_at(self, address: u64) -> bool {
        self.0 != 0 && address & 15 == 0 && (self.0 ^ Self::half(address)) & 1 << Self::HALF_SHIFT == 0
    }

    /// The block's address, by the window where it is among its group's.
    pub(super) fn address(self, group: Entry, window: usize) -> u64 {
        (group.group() << GROUP) + ((window as u64) << WINDOW) + ((self.0 >> Self::HALF_SHIFT & 1) << 4)
    }

    #[inline(always)]
    pub(super) fn allocation(self, address: u64) -> Allocation {
        Allocation {
            address,
            size: self.0 & (Self::SIZES - 1),
            values: RecordId((self.0 >> 32) as u32),
            interval: Interval::from_number((self.0 >> Self::INTERVAL_SHIFT) as u8),
        }
    }
}

/// The window of an address in its group.
#[inline(always)]
pub(super) fn window(address: u64) -> usize {
    (address >> WINDOW) as usize % WINDOWS
}

/// Enters an allocation in its group's page; what was at its address. `None`: it cannot be there.
#[inline(always)]
pub(super) fn enter(page: &mut Page, new: Entry) -> Option<Option<Allocation>> {
    let (window, word) = Word::new(new)?;
    let place = page.get_mut(window)?;
    fetch_next(place);
    if *place == 0 {
        *place = word.0;
        return Some(None);
    }
    let is_there = Word(*place).is_at(new.address());
    is_there.then(|| Some(Word(core::mem::replace(place, word.0)).allocation(new.address())))
}

/// Takes an allocation out of its group's page, which is kept until there is no room: its group's blocks are mostly used again.
#[inline(always)]
pub(super) fn take(page: &mut Page, address: u64) -> Option<Allocation> {
    let place = page.get_mut(window(address))?;
    fetch_next(place);
    Word(*place).is_at(address).then(|| Word(core::mem::take(place)).allocation(address))
}

/// What a program allocates or frees next lies mostly behind.
#[inline(always)]
fn fetch_next(place: &u64) {
    fetch_line(core::ptr::from_ref(place).wrapping_add(8).cast());
}
