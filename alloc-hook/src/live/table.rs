//! The table of a shard: what lives, by address.
//!
//! Called from: hooks, with the shard's lock held.
//!
//! Two kilobytes of the host's memory are a *group*. Open addressing with backward-shift deletion finds a group's slots by a hash of its number. While few blocks of a group are recorded, each has
//! a slot of its own, of 16 bytes; the table grows by half when three quarters full, so that a block takes at most 32. Beyond [`FEW`], the group has one slot, and a *page* with a word for each
//! window of 32 bytes: what a program allocates one after the other then lies one beside the other here too, and nothing is searched. With glibc no two blocks begin in one window. Those of other
//! allocators may, and blocks can be too large for a word: they have slots *apart*, which a hash of their address finds.
#![allow(unsafe_code)]

use super::Allocation;
use super::entry::{
    ADDRESS_SHIFT, ADDRESSES, APART, DISPLACED, Entry, GROUP, ONE_APART, PAGED, Word, enter, take, window,
};
use super::lock::{Held, Lock, Wait};
use super::pages::{Page, Pages};
use capture::blocked::Blocked;
use capture::mapping::{Mapping, fetch_line};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Most blocks of a group that have slots of their own, if others are to share a page.
const FEW: usize = 8;
/// Slots with which a table begins, beside its lock: where few allocations are recorded, all tables together take a few pages of memory.
const FIRST_SLOTS: usize = 16;
/// Slots of a page of memory.
const PAGE_SLOTS: usize = 4096 / size_of::<Entry>();

/// The group that was found last, if it has a page and no block apart. Written under the lock, read without it by those who only ask for a cache line.
#[derive(Debug)]
struct Recent {
    /// Its number, plus one; zero: none.
    group: AtomicU64,
    page: AtomicPtr<Page>,
}

impl Recent {
    const fn none() -> Self {
        Self { group: AtomicU64::new(0), page: AtomicPtr::new(core::ptr::null_mut()) }
    }

    #[inline(always)]
    fn is_of(&self, group: u64) -> bool {
        self.group.load(Ordering::Relaxed) == group.wrapping_add(1)
    }

    /// Notes a group that has a page.
    #[inline(always)]
    fn note(&self, group: Entry) {
        self.group.store(if group.has_apart() { 0 } else { group.group() + 1 }, Ordering::Relaxed);
        self.page.store(group.page(), Ordering::Relaxed);
    }

    fn forget(&self) {
        self.group.store(0, Ordering::Relaxed);
    }
}

/// A table, and its lock. In cache lines of its own: threads that are at neighbouring shards do not wait for each other. What each call needs is in the first one.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Shard {
    lock: Lock,
    /// The table's slots and their number: written under the lock, read without it by those who only ask for a cache line.
    first: AtomicPtr<Entry>,
    count: AtomicUsize,
    /// Slots in use.
    used: AtomicUsize,
    /// Programs allocate and free beside what they were at a moment ago.
    recent: Recent,
    first_slots: UnsafeCell<[Entry; FIRST_SLOTS]>,
    mapping: UnsafeCell<Option<Mapping>>,
    pages: UnsafeCell<Pages>,
    _more: [u8; 128],
}

/// At a distance of a power of two, the locks of all would share a few sets of the processor's cache.
const _: () = assert!(!(size_of::<Shard>() / 128).is_multiple_of(2));

// SAFETY: the cells are used under the lock alone.
unsafe impl Sync for Shard {}

impl Shard {
    pub(super) const fn new() -> Self {
        Self {
            lock: Lock::new(),
            first: AtomicPtr::new(core::ptr::null_mut()),
            count: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            recent: Recent::none(),
            first_slots: UnsafeCell::new([Entry::FREE; FIRST_SLOTS]),
            mapping: UnsafeCell::new(None),
            pages: UnsafeCell::new(Pages::new()),
            _more: [0; 128],
        }
    }

    #[inline(always)]
    fn slots(&self) -> Slots {
        Slots { first: self.first.load(Ordering::Relaxed), count: self.count.load(Ordering::Relaxed) }
    }

    /// Takes its lock; `None` if another has it for too long.
    #[inline(always)]
    pub(super) fn lock(&self, wait: Wait) -> Option<Locked<'_>> {
        Some(Locked { shard: self, _held: self.lock.lock(wait)? })
    }

    /// Lets the processor fetch the place of an address from memory. Without the lock.
    #[inline(always)]
    pub(super) fn announce(&self, address: u64) {
        let (group, recent) = (address >> GROUP, &self.recent);
        if recent.is_of(group) {
            fetch_line(recent.page.load(Ordering::Relaxed).cast::<u64>().wrapping_add(window(address)).cast());
        } else {
            self.slots().announce(group);
        }
    }

    /// The page of a group, if that was found last.
    ///
    /// # Safety
    /// The lock is held, until the page is no longer used.
    #[inline(always)]
    unsafe fn recent<'a>(&self, group: u64) -> Option<&'a mut Page> {
        // SAFETY: the page is the group's as long as that is noted here.
        self.recent.is_of(group).then(|| unsafe { &mut *self.recent.page.load(Ordering::Relaxed) })
    }

    /// Takes its lock over from a hook of the calling thread that will not come back; `None` if no such hook held it.
    pub(super) fn take_over(&self) -> Option<Locked<'_>> {
        Some(Locked { shard: self, _held: self.lock.take_over()? })
    }

    /// Forgets all. In a child after fork, whose only thread is here.
    pub(super) fn clear(&self) {
        self.first.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
        self.recent.forget();
        // SAFETY: there is no other thread.
        unsafe {
            *self.first_slots.get() = [Entry::FREE; FIRST_SLOTS];
            *self.mapping.get() = None;
            *self.pages.get() = Pages::new();
        }
        self.lock.reset();
    }
}

/// A shard whose lock is held.
pub(super) struct Locked<'a> {
    shard: &'a Shard,
    _held: Held<'a>,
}

/// The slots of a table.
#[derive(Clone, Copy)]
struct Slots {
    first: *mut Entry,
    count: usize,
}

impl Slots {
    /// Where a group is looked for first, and a block that is apart, by its address.
    #[inline(always)]
    fn home(self, number: u64) -> usize {
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash * self.count as u64) >> 32) as usize
    }

    /// Lets the processor fetch a group's slot from memory. What a program allocates or frees next lies mostly behind.
    #[inline(always)]
    fn announce(self, group: u64) {
        fetch_line(self.first.wrapping_add(self.home(group)).cast());
    }

    #[inline(always)]
    fn home_of(self, entry: Entry) -> usize {
        self.home(if entry.is_apart() { entry.address() } else { entry.group() })
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

/// Where the search for a block came to.
enum Found {
    /// Its own slot.
    Slot(usize),
    /// Its group's, which has a page.
    Group(usize),
    /// A free slot, behind so many of its group.
    Free(usize, usize),
}

impl Locked<'_> {
    /// Makes sure that there is a free slot for another entry, and then one more.
    #[inline(always)]
    pub(super) fn make_room(&mut self) -> Option<()> {
        let (used, count) = (self.shard.used.load(Ordering::Relaxed), self.shard.count.load(Ordering::Relaxed));
        if used * 4 >= count * 3 { self.grow() } else { Some(()) }
    }

    /// Makes a table without the groups of which nothing lives any more, by half as large if that does not make room.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> Option<()> {
        let _blocked = Blocked::new();
        let old = self.shard.slots();
        if old.count == 0 {
            self.shard.first.store(self.shard.first_slots.get().cast(), Ordering::Relaxed);
            self.shard.count.store(FIRST_SLOTS, Ordering::Relaxed);
            return Some(());
        }
        // SAFETY: locked.
        let is_empty = |entry: &Entry| entry.is_paged() && unsafe { entry.is_empty() };
        // SAFETY: below the number of slots.
        let entries = (0..old.count).map(|index| *unsafe { old.at(index) });
        let used = entries.filter(|entry| !entry.is_free() && !is_empty(entry)).count();
        let count = match old.count {
            FIRST_SLOTS => PAGE_SLOTS,
            count if used * 2 < count => count,
            count => (count + count / 2).next_multiple_of(PAGE_SLOTS),
        };
        self.move_to(count, |table, entry| {
            if is_empty(&entry) {
                // SAFETY: the group's, which goes; its words are zero.
                unsafe { (*table.shard.pages.get()).give_back(entry.page()) };
            } else {
                table.put(entry);
            }
        })
    }

    /// Gives the table so many new slots, to which `bring` brings each entry that it had, or not.
    fn move_to(&mut self, count: usize, mut bring: impl FnMut(&mut Self, Entry)) -> Option<()> {
        let old = self.shard.slots();
        let mapping = Mapping::new(count * size_of::<Entry>())?;
        // Pages may be given back.
        self.shard.recent.forget();
        self.shard.first.store(mapping.address().cast(), Ordering::Relaxed);
        self.shard.count.store(count, Ordering::Relaxed);
        self.shard.used.store(0, Ordering::Relaxed);
        for index in 0..old.count {
            // SAFETY: below the number of slots.
            let entry = *unsafe { old.at(index) };
            if !entry.is_free() {
                bring(self, Entry { key: entry.key & !DISPLACED, ..entry });
            }
        }
        // SAFETY: locked. The old slots go.
        unsafe { *self.shard.mapping.get() = Some(mapping) };
        Some(())
    }

    /// Makes the table anew after a change that did not come to its end: an entry is in a slot that is not counted, or in two, as one that was about to move up, or its group does not know that it is apart.
    /// What takes more steps is done with signals blocked. Without memory, it stays as it is, but for what groups know.
    #[cold]
    pub(super) fn mend(&mut self) {
        let count = self.shard.count.load(Ordering::Relaxed).max(PAGE_SLOTS);
        let _ = self.move_to(count, |table, entry| {
            let slots = table.shard.slots();
            match Self::find_same(slots, entry) {
                // SAFETY: found there.
                Some(at) => unsafe { slots.at(at) }.rest = entry.rest,
                None => table.put(entry),
            }
        });
        self.count_apart();
    }

    /// Counts the blocks anew that are apart.
    fn count_apart(&mut self) {
        let slots = self.shard.slots();
        // SAFETY: below the number of slots.
        let entries = || (0..slots.count).map(|index| unsafe { slots.at(index) });
        entries().filter(|entry| entry.is_paged()).for_each(|group| group.rest &= ONE_APART - 1);
        let apart = entries().filter(|entry| !entry.is_paged() && entry.is_apart());
        for address in apart.map(|entry| entry.address()) {
            if let Found::Group(at) = Self::find(slots, slots.home(address >> GROUP), address) {
                // SAFETY: found there.
                unsafe { slots.at(at) }.rest += ONE_APART;
            }
        }
    }

    /// The slot of an entry for the same.
    fn find_same(slots: Slots, entry: Entry) -> Option<usize> {
        if entry.is_apart() && !entry.is_paged() {
            return Self::find_apart(slots, entry.address());
        }
        match Self::find(slots, slots.home(entry.group()), entry.address()) {
            Found::Group(at) | Found::Slot(at) => Some(at),
            Found::Free(..) => None,
        }
    }

    /// Tells the address of each that lives.
    pub(super) fn each(&self, mut tell: impl FnMut(u64)) {
        let slots = self.shard.slots();
        for index in 0..slots.count {
            // SAFETY: below the number of slots.
            let entry = *unsafe { slots.at(index) };
            if entry.is_paged() {
                // SAFETY: the group's page, whose table is locked.
                let words = unsafe { &*entry.page() }.iter().enumerate();
                words.filter(|(_, word)| **word != 0).for_each(|(at, word)| tell(Word(*word).address(entry, at)));
            } else if !entry.is_free() {
                tell(entry.address());
            }
        }
    }

    /// Puts an entry that is not there into the first free slot.
    fn put(&mut self, mut new: Entry) {
        let slots = self.shard.slots();
        let mut at = slots.home_of(new);
        // SAFETY: `home` and `after` stay below the number of slots, which is not zero. A quarter of them is free.
        while !unsafe { slots.at(at) }.is_free() {
            new.key |= DISPLACED;
            at = slots.after(at);
        }
        // SAFETY: as above.
        unsafe { slots.at(at) }.set(new);
        self.count_used(1);
    }

    /// Looks for a block that is not apart, from `at` on, where its group is looked for first.
    #[inline(always)]
    fn find(slots: Slots, mut at: usize, address: u64) -> Found {
        let mut of_group = 0;
        loop {
            // SAFETY: as in `put`.
            let entry = *unsafe { slots.at(at) };
            if entry.is_free() {
                return Found::Free(at, of_group);
            }
            if entry.group() == address >> GROUP {
                if entry.is_paged() {
                    return Found::Group(at);
                }
                if !entry.is_apart() {
                    if entry.address() == address {
                        return Found::Slot(at);
                    }
                    of_group += 1;
                }
            }
            at = slots.after(at);
        }
    }

    /// Looks for a block that is apart.
    fn find_apart(slots: Slots, address: u64) -> Option<usize> {
        let mut at = slots.home(address);
        loop {
            // SAFETY: as in `put`.
            let entry = *unsafe { slots.at(at) };
            if entry.is_free() {
                return None;
            }
            if entry.address() == address && entry.is_apart() && !entry.is_paged() {
                return Some(at);
            }
            at = slots.after(at);
        }
    }

    /// Enters an allocation; what was at its address.
    #[inline(always)]
    pub(super) fn insert(&mut self, new: Entry) -> Option<Allocation> {
        // SAFETY: locked.
        if let Some(page) = unsafe { self.shard.recent(new.group()) }
            && let Some(replaced) = enter(page, new)
        {
            return replaced;
        }
        let slots = self.shard.slots();
        let home = slots.home(new.group());
        slots.announce(new.group() + 1);
        match Self::find(slots, home, new.address()) {
            Found::Group(at) => self.insert_in_page(slots, at, new),
            Found::Slot(at) => Some(Self::replace(slots, at, new)),
            Found::Free(_, of_group) if of_group >= FEW => self.insert_and_gather(slots, new),
            Found::Free(at, _) => {
                let displaced = if at == home { 0 } else { DISPLACED };
                // SAFETY: found there.
                unsafe { slots.at(at) }.set(Entry { key: new.key | displaced, ..new });
                self.count_used(1);
                None
            }
        }
    }

    /// Enters one in place of another at its address.
    fn replace(slots: Slots, at: usize, new: Entry) -> Allocation {
        // SAFETY: found there.
        let entry = unsafe { slots.at(at) };
        core::mem::replace(entry, Entry { key: new.key | entry.key & (DISPLACED | APART), ..new }).allocation()
    }

    /// Enters one whose group has a page, at `at`.
    #[inline(always)]
    fn insert_in_page(&mut self, slots: Slots, at: usize, new: Entry) -> Option<Allocation> {
        // SAFETY: found there.
        let group = *unsafe { slots.at(at) };
        self.shard.recent.note(group);
        if !group.has_apart() {
            // SAFETY: the group's, whose table is locked.
            if let Some(replaced) = enter(unsafe { &mut *group.page() }, new) {
                return replaced;
            }
        }
        self.insert_apart(slots, at, new)
    }

    /// The same, where blocks of the group are apart, or this one is to be.
    #[inline(never)]
    fn insert_apart(&mut self, slots: Slots, at: usize, new: Entry) -> Option<Allocation> {
        self.shard.recent.forget();
        if let Some(at) = Self::find_apart(slots, new.address()) {
            return Some(Self::replace(slots, at, new));
        }
        // SAFETY: as in `insert_in_page`.
        let group = unsafe { slots.at(at) };
        // SAFETY: as above.
        let place = unsafe { (*group.page()).get_mut(window(new.address())) }?;
        let mut replaced = None;
        if Word(*place).is_at(new.address()) {
            replaced = Some(Word(core::mem::take(place)).allocation(new.address()));
        }
        match Word::new(new) {
            Some((_, word)) if *place == 0 => *place = word.0,
            _ => {
                group.rest += ONE_APART;
                self.put(Entry { key: new.key | APART, ..new });
            }
        }
        replaced
    }

    /// Enters one that is not there, and gives its group a page, to which its other blocks go. (Without memory, all keep their slots.)
    #[cold]
    #[inline(never)]
    fn insert_and_gather(&mut self, slots: Slots, new: Entry) -> Option<Allocation> {
        let _blocked = Blocked::new();
        // SAFETY: locked.
        let Some(page) = (unsafe { (*self.shard.pages.get()).take() }) else {
            self.put(new);
            return None;
        };
        let first = new.group() << GROUP;
        let mut group = Entry { key: first << ADDRESS_SHIFT | PAGED, rest: page as u64 };
        let mut at = slots.home(new.group());
        loop {
            // SAFETY: as in `put`.
            let entry = *unsafe { slots.at(at) };
            if entry.is_free() {
                break;
            }
            if entry.group() != new.group() || entry.is_apart() {
                at = slots.after(at);
                continue;
            }
            // Another may come to lie here, and is looked at next.
            self.vacate(slots, at);
            // SAFETY: the page is the group's from here on.
            match Word::new(entry).and_then(|(window, word)| Some((unsafe { (*page).get_mut(window) }?, word))) {
                Some((place @ 0, word)) => *place = word.0,
                _ => {
                    group.rest += ONE_APART;
                    // It can come to lie before or behind this slot, and is passed over.
                    self.put(Entry { key: entry.key & !DISPLACED | APART, ..entry });
                }
            }
        }
        self.put(group);
        self.insert(new)
    }

    /// Takes the allocation at this address out.
    #[inline(always)]
    pub(super) fn remove(&mut self, address: u64) -> Option<Allocation> {
        // SAFETY: locked.
        if let Some(page) = unsafe { self.shard.recent(address >> GROUP) } {
            return take(page, address);
        }
        let slots = self.shard.slots();
        if slots.count == 0 || address >= ADDRESSES {
            return None;
        }
        slots.announce((address >> GROUP) + 1);
        match Self::find(slots, slots.home(address >> GROUP), address) {
            Found::Group(at) => {
                // SAFETY: found there.
                let group = *unsafe { slots.at(at) };
                self.shard.recent.note(group);
                // SAFETY: the group's, whose table is locked.
                let taken = take(unsafe { &mut *group.page() }, address);
                if taken.is_none() && group.has_apart() { self.remove_apart(slots, at, address) } else { taken }
            }
            Found::Slot(at) => Some(self.remove_slot(slots, at)),
            Found::Free(..) => None,
        }
    }

    /// The same, where blocks of its group are apart.
    #[inline(never)]
    fn remove_apart(&mut self, slots: Slots, group: usize, address: u64) -> Option<Allocation> {
        let at = Self::find_apart(slots, address)?;
        // SAFETY: found there.
        unsafe { slots.at(group) }.rest -= ONE_APART;
        Some(self.remove_slot(slots, at))
    }

    #[inline(always)]
    fn remove_slot(&mut self, slots: Slots, at: usize) -> Allocation {
        // SAFETY: found there.
        let removed = *unsafe { slots.at(at) };
        self.vacate(slots, at);
        removed.allocation()
    }

    /// Frees a slot. Backward shift: the run behind it moves up, so that no tombstone is left.
    #[inline(always)]
    fn vacate(&mut self, slots: Slots, at: usize) {
        let (mut hole, mut next) = (at, at);
        loop {
            next = slots.after(next);
            // SAFETY: as in `put`.
            let mut candidate = *unsafe { slots.at(next) };
            if candidate.is_free() {
                break;
            }
            if candidate.key & DISPLACED == 0 {
                continue;
            }
            // The candidate may fill the hole unless its home lies behind the hole.
            let home = slots.home_of(candidate);
            if slots.distance(home, next) >= slots.distance(hole, next) {
                if home == hole {
                    candidate.key &= !DISPLACED;
                }
                // SAFETY: it was looked at.
                unsafe { slots.at(hole) }.set(candidate);
                hole = next;
            }
        }
        // SAFETY: as above.
        unsafe { slots.at(hole) }.set(Entry::FREE);
        self.count_used(-1);
    }

    #[inline(always)]
    fn count_used(&mut self, by: isize) {
        let used = self.shard.used.load(Ordering::Relaxed);
        self.shard.used.store(used.wrapping_add_signed(by), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
