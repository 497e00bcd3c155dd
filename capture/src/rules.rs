//! The rule cache: from a code address to its unwind rule and module in one probe.
//!
//! Called from: hooks and handlers (`resolve`); what makes it larger, never from a handler. Direct-mapped, shared by all threads. Reading writes nothing. It is small at first, so that a program in
//! which little is recorded touches little memory. When entries get into each other's way, a larger one takes its place, in a large page: a program with so many return addresses needs the
//! processor's cache of page addresses itself.
//!
//! # Orderings
//!
//! None but that of the pointer to it: an entry is two words, `address ^ value` and `value`, so a reader that sees halves of two entries sees a mismatch
//! (the lockless transposition table of chess programs; R. Hyatt, "A lockless transposition table implementation", 1999).
#![allow(unsafe_code)]

use crate::mapping::Mapping;
use crate::modules::{self, Found, Gap, InFile, Lookup};
use crate::probed::{Copied, Probed};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use layout::ModuleIndex;
use unwind::arch::{rule_from_code, rule_of_piece, rule_without_frame};
use unwind::cfi::Source;
use unwind::{FrameAddress, Memory, Rule};

const FIRST_SLOTS_LOG2: u32 = 12;
/// As many as fill a large page.
const MOST_SLOTS_LOG2: u32 = 17;

struct Slot {
    check: AtomicU64,
    value: AtomicU64,
}

/// The address of its first slot, and in the bits that are zero in that how many of a hash's bits are none of an index. Zero: there is none.
static CACHE: AtomicU64 = AtomicU64::new(0);
/// The one that it replaced, for readers who are still under way there.
static REPLACED: AtomicU64 = AtomicU64::new(0);
/// Entries that took another's place since then.
static EVICTIONS: AtomicUsize = AtomicUsize::new(0);
/// Pages that were in no mapping, each with a count of how often that was asked since: by handlers, whose wish another thread may not have fulfilled yet, and by others.
static NOWHERE: [[AtomicU64; 64]; 2] = [const { [const { AtomicU64::new(0) }; 64] }; 2];

/// Where a lookup happens, and so what it may do. A type, so that a handler's code does not even contain what it may not do.
pub trait Context: Copy {
    /// May read the list of mappings, open files and build tables.
    const MAY_BUILD: bool;
    /// How frame information and code are read.
    type Code: Source + Memory + Default;
}

/// In a signal handler: only what is there.
#[derive(Clone, Copy, Debug)]
pub struct InHandler;

/// Under malloc or on an ordinary thread.
#[derive(Clone, Copy, Debug)]
pub struct InHook;

/// On a thread of the recorder, for the stack of another: that thread goes on meanwhile, and nothing keeps the objects in memory that its stack led to.
#[derive(Clone, Copy, Debug)]
pub struct Outside;

impl Context for InHandler {
    const MAY_BUILD: bool = false;
    type Code = Probed;
}

impl Context for InHook {
    const MAY_BUILD: bool = true;
    type Code = Probed;
}

impl Context for Outside {
    const MAY_BUILD: bool = true;
    type Code = Copied;
}

/// What is known of a code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// How to unwind from there; [`Rule::NONE`] if no table says.
    pub rule: Rule,
    /// The module it belongs to.
    pub module: ModuleIndex,
}

/// Maps the cache; without it every lookup is a search.
pub fn set_up() {
    if Cache::current().is_none()
        && let Some(mapping) = Mapping::new(size_of::<Slot>() << FIRST_SLOTS_LOG2)
    {
        CACHE.store(Cache::word(mapping.leak(), FIRST_SLOTS_LOG2), Ordering::Release);
    }
}

/// The slots that are in use.
#[derive(Clone, Copy)]
struct Cache(u64);

impl Cache {
    const SHIFT: u64 = 63;

    #[inline(always)]
    fn current() -> Option<Self> {
        Self::of(&CACHE)
    }

    #[inline(always)]
    fn of(word: &AtomicU64) -> Option<Self> {
        let word = word.load(Ordering::Relaxed);
        (word != 0).then_some(Self(word))
    }

    /// Of so many zeroed slots that begin with a page.
    fn word(first: *mut u8, slots_log2: u32) -> u64 {
        first.expose_provenance() as u64 | u64::from(64 - slots_log2)
    }

    #[inline(always)]
    fn first(self) -> *const Slot {
        core::ptr::with_exposed_provenance((self.0 & !Self::SHIFT) as usize)
    }

    /// Where an address has its place.
    #[inline(always)]
    fn slot(self, address: u64) -> &'static Slot {
        // Fibonacci hashing: addresses of neighbouring calls differ in their low bits only.
        let index = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (self.0 & Self::SHIFT);
        // SAFETY: below the number of slots, which stay mapped.
        unsafe { &*self.first().add(index as usize) }
    }

    fn slots(self) -> &'static [Slot] {
        // SAFETY: so many slots are mapped, all atomic, and stay so.
        unsafe { core::slice::from_raw_parts(self.first(), 1 << (64 - (self.0 & Self::SHIFT))) }
    }

    fn is_largest(self) -> bool {
        self.0 & Self::SHIFT <= 64 - u64::from(MOST_SLOTS_LOG2)
    }
}

impl Slot {
    /// Address and value, if it has an entry that is whole.
    fn entry(&self) -> Option<(u64, u64)> {
        let value = self.value.load(Ordering::Relaxed);
        (value != 0).then(|| (self.check.load(Ordering::Relaxed) ^ value, value))
    }

    fn set(&self, address: u64, value: u64) {
        self.check.store(address ^ value, Ordering::Relaxed);
        self.value.store(value, Ordering::Relaxed);
    }

    fn clear(&self) {
        self.value.store(0, Ordering::Relaxed);
        self.check.store(0, Ordering::Relaxed);
    }
}

/// Rule and module of the code at an address.
#[inline]
pub fn resolve<C: Context>(at: FrameAddress) -> Resolved {
    let address = at.for_lookup();
    if let Some(cache) = Cache::current() {
        let slot = cache.slot(address);
        let value = slot.value.load(Ordering::Relaxed);
        if slot.check.load(Ordering::Relaxed) ^ value == address {
            return unpack(value);
        }
    }
    resolve_slow::<C>(at)
}

fn unpack(value: u64) -> Resolved {
    Resolved { rule: Rule::from_bits(value >> 16), module: ModuleIndex::new(value as u16).unwrap_or(ModuleIndex::NONE) }
}

#[cold]
fn resolve_slow<C: Context>(at: FrameAddress) -> Resolved {
    let address = at.for_lookup();
    for attempt in 0..2 {
        let generation = modules::generation();
        match modules::find(address) {
            Found::Module(module) => {
                let (rule, known) = rule_in_module::<C>(module, at);
                let resolved = Resolved { rule, module };
                if known {
                    remember::<C>(address, resolved, generation);
                }
                return resolved;
            }
            Found::Anonymous => {
                // Code of a JIT compiler keeps a chain of frame pointers, or is one of the shapes that are known.
                let rule = rule_from_code(at, &mut C::Code::default())
                    .or_else(|| rule_without_frame(at, &mut C::Code::default()));
                // Not remembered: other code may be made in its place without a word to anybody.
                return Resolved { rule: rule.unwrap_or(Rule::NONE), module: ModuleIndex::NONE };
            }
            Found::Nowhere if attempt == 0 && worth_a_refresh::<C>(address) => {
                if !C::MAY_BUILD {
                    modules::request_refresh();
                    break;
                }
                modules::refresh();
            }
            Found::Nowhere => break,
        }
    }
    Resolved { rule: Rule::NO_TABLE, module: ModuleIndex::NONE }
}

/// Enters what was found. Whoever takes a mapping away changes the generation before the cache is cleared: either that clears this entry too, or it is taken back here.
fn remember<C: Context>(address: u64, Resolved { rule, module }: Resolved, generation: u32) {
    let value = (rule.to_bits() << 16) | u64::from(module.get());
    let Some(cache) = Cache::current() else { return };
    let slot = cache.slot(address);
    if slot.value.load(Ordering::Relaxed) != 0 && !cache.is_largest() {
        count_eviction::<C>(cache);
    }
    slot.set(address, value);
    fence(Ordering::SeqCst);
    // A generation that is odd is being replaced.
    if modules::generation() != generation || generation & 1 != 0 {
        slot.clear();
    }
}

/// There is a larger one once a sixteenth of the slots had to be given to another address.
fn count_eviction<C: Context>(cache: Cache) {
    // Threads that count at the same time may forget one.
    let evictions = EVICTIONS.load(Ordering::Relaxed) + 1;
    EVICTIONS.store(evictions, Ordering::Relaxed);
    if evictions > cache.slots().len() / 16 {
        EVICTIONS.store(0, Ordering::Relaxed);
        if C::MAY_BUILD {
            modules::while_listed(grow);
        } else {
            modules::request_room_for_rules();
        }
    }
}

/// Makes it larger. While nobody reads the list of mappings anew, and so nobody clears it.
#[cold]
pub(crate) fn grow() {
    let Some(old) = Cache::current().filter(|cache| !cache.is_largest()) else { return };
    let Some(mapping) = Mapping::new_in_large_pages(size_of::<Slot>() << MOST_SLOTS_LOG2) else { return };
    let new = Cache(Cache::word(mapping.leak(), MOST_SLOTS_LOG2));
    for slot in old.slots() {
        // Halves of two entries are none, as for whoever looks for an address there.
        if let Some((address, value)) = slot.entry().filter(|(address, _)| core::ptr::eq(old.slot(*address), slot)) {
            new.slot(address).set(address, value);
        }
    }
    REPLACED.store(old.0, Ordering::Relaxed);
    CACHE.store(new.0, Ordering::Release);
}

/// The rule for an address of a module, and whether that is the last word.
fn rule_in_module<C: Context>(module: ModuleIndex, at: FrameAddress) -> (Rule, bool) {
    let gap = match modules::lookup::<C>(module, at.for_lookup()) {
        Lookup::Rule(rule) => return (rule, true),
        Lookup::Gap(gap) => gap,
    };
    // Linkers describe neither every procedure linkage table nor the first and the last instructions of an object, nor anybody what is written in assembly.
    let of_code = rule_from_code(at, &mut C::Code::default());
    if let Some(rule) = of_code.or_else(|| rule_of_piece(at, &mut C::Code::default())) {
        return (rule, true);
    }
    // No call ends before the first byte of a function that follows a gap: the address was put there, as the root of a coroutine.
    if gap == Gap::Small
        && matches!(at, FrameAddress::ReturnAddress(_))
        && let Lookup::Rule(rule) = modules::lookup::<C>(module, at.address())
    {
        return (rule, true);
    }
    let silent = match gap {
        Gap::Generated => rule_without_frame(at, &mut C::Code::default()).unwrap_or(Rule::NONE),
        Gap::Small => Rule::NO_TABLE,
    };
    match modules::lookup_in_file::<C>(module, at.for_lookup()) {
        InFile::Rule(rule) => (rule, true),
        InFile::Nothing => (silent, true),
        InFile::NotRead => (silent, false),
    }
}

/// Whether an address in no known mapping may belong to an object that was loaded since: yes, unless it was asked for lately.
fn worth_a_refresh<C: Context>(address: u64) -> bool {
    const USES: u64 = 0xfff;
    let page = address & !USES;
    let index = (address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    let Some(cell) = NOWHERE.get(usize::from(C::MAY_BUILD)).and_then(|pages| pages.get(index as usize)) else {
        return false;
    };
    let seen = cell.load(Ordering::Relaxed);
    if seen & !USES == page && seen & USES != USES {
        cell.store(seen + 1, Ordering::Relaxed);
        return false;
    }
    cell.store(page, Ordering::Relaxed);
    true
}

/// Forgets everything, when a mapping went away and the generation was changed.
pub fn clear() {
    // Where it was, another may be next.
    NOWHERE.iter().flatten().for_each(|page| page.store(0, Ordering::Relaxed));
    fence(Ordering::SeqCst);
    for cache in [&REPLACED, &CACHE].into_iter().filter_map(Cache::of) {
        cache.slots().iter().for_each(Slot::clear);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn entries_that_get_into_each_others_way_get_more_room() {
        set_up();
        let resolved = Resolved { rule: Rule::NO_TABLE, module: ModuleIndex::NONE };
        let is_known = |address: &u64| {
            let value = resolved.rule.to_bits() << 16;
            Cache::current().unwrap().slot(*address).entry() == Some((*address, value))
        };
        let addresses: std::vec::Vec<u64> = (1..=10_000).map(|at| 0x10_0000 + at * at * 3).collect();
        let known = || addresses.iter().filter(|address| is_known(address)).count();
        let all = || addresses.iter().for_each(|address| remember::<InHook>(*address, resolved, modules::generation()));
        let few = addresses.get(..100).unwrap();
        few.iter().for_each(|address| remember::<InHook>(*address, resolved, modules::generation()));
        let before = known();
        assert!(before > 90 && Cache::current().unwrap().slots().len() == 1 << FIRST_SLOTS_LOG2);
        // A handler asks for it.
        for _ in 0..3 {
            addresses.iter().for_each(|address| {
                remember::<InHandler>(*address, resolved, modules::generation());
            });
        }
        assert_eq!(Cache::current().unwrap().slots().len(), 1 << FIRST_SLOTS_LOG2);
        assert!(modules::is_refresh_requested());
        let before = known();
        modules::refresh_on_request();
        assert_eq!(Cache::current().unwrap().slots().len(), 1 << MOST_SLOTS_LOG2);
        assert!(known() >= before, "what was known still is: {before}, {}", known());
        all();
        assert!(Cache::current().unwrap().is_largest());
        // A thirteenth of the slots is in use: nearly all have one of their own.
        assert!(known() * 100 > addresses.len() * 92, "{} of {}", known(), addresses.len());
        clear();
        assert_eq!(known(), 0);
    }
}
