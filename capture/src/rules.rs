//! The rule cache: from a code address to its unwind rule and module in one probe.
//!
//! Called from: hooks and handlers (`resolve`). Direct-mapped, shared by all threads. Reading writes nothing. A small part of it is used at first, so that a program in which little is recorded
//! touches little memory, and more when entries get into each other's way.
//!
//! # Orderings
//!
//! None: an entry is two words, `address ^ value` and `value`, so a reader that sees halves of two entries sees a mismatch
//! (the lockless transposition table of chess programs; R. Hyatt, "A lockless transposition table implementation", 1999).
#![allow(unsafe_code)]

use crate::mapping::Mapping;
use crate::modules::{self, Found, Gap, InFile, Lookup};
use crate::probed::{Copied, Probed};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use layout::ModuleIndex;
use unwind::arch::{rule_from_code, rule_of_start_code, rule_without_frame};
use unwind::cfi::Source;
use unwind::{FrameAddress, Memory, Rule};

const SLOTS_LOG2: u32 = 16;
const SLOTS: usize = 1 << SLOTS_LOG2;
/// Slots that are used at first.
const FIRST_SLOTS: usize = SLOTS / 16;

struct Slot {
    check: AtomicU64,
    value: AtomicU64,
}

static CACHE: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
/// Slots in use, less one. It only grows.
static MASK: AtomicUsize = AtomicUsize::new(FIRST_SLOTS - 1);
/// Entries that took another's place since it grew last.
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
    if CACHE.load(Ordering::Acquire).is_null()
        && let Some(mapping) = Mapping::new(SLOTS * size_of::<Slot>())
    {
        CACHE.store(mapping.leak().cast(), Ordering::Release);
    }
}

#[inline]
fn slot(address: u64) -> Option<&'static Slot> {
    let base = CACHE.load(Ordering::Relaxed);
    if base.is_null() {
        return None;
    }
    // Fibonacci hashing: addresses of neighbouring calls differ in their low bits only.
    let index = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS_LOG2)) as usize;
    // SAFETY: the index has SLOTS_LOG2 bits at most, and the mapping has that many zeroed slots for ever.
    Some(unsafe { &*base.add(index & MASK.load(Ordering::Relaxed)) })
}

/// Rule and module of the code at an address.
#[inline]
pub fn resolve<C: Context>(at: FrameAddress) -> Resolved {
    let address = at.for_lookup();
    if let Some(slot) = slot(address) {
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
                    remember(address, resolved, generation);
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
fn remember(address: u64, Resolved { rule, module }: Resolved, generation: u32) {
    let value = (rule.to_bits() << 16) | u64::from(module.get());
    let Some(slot) = slot(address) else { return };
    if slot.value.load(Ordering::Relaxed) != 0 {
        count_eviction();
    }
    slot.check.store(address ^ value, Ordering::Relaxed);
    slot.value.store(value, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    // A generation that is odd is being replaced.
    if modules::generation() != generation || generation & 1 != 0 {
        slot.value.store(0, Ordering::Relaxed);
        slot.check.store(0, Ordering::Relaxed);
    }
}

/// Four times as many slots are used once a sixteenth of them had to be given to another address.
fn count_eviction() {
    let slots = MASK.load(Ordering::Relaxed) + 1;
    // Threads that count at the same time may forget one, or let it grow again at once.
    let evictions = EVICTIONS.load(Ordering::Relaxed) + 1;
    let grows = slots < SLOTS && evictions > slots / 16;
    EVICTIONS.store(if grows { 0 } else { evictions }, Ordering::Relaxed);
    if grows {
        MASK.store(slots * 4 - 1, Ordering::Relaxed);
    }
}

/// The rule for an address of a module, and whether that is the last word.
fn rule_in_module<C: Context>(module: ModuleIndex, at: FrameAddress) -> (Rule, bool) {
    let gap = match modules::lookup::<C>(module, at.for_lookup()) {
        Lookup::Rule(rule) => return (rule, true),
        Lookup::Gap(gap) => gap,
    };
    // Linkers describe neither every procedure linkage table nor the first and the last instructions of an object.
    let of_code = rule_from_code(at, &mut C::Code::default());
    if let Some(rule) = of_code.or_else(|| rule_of_start_code(at, &mut C::Code::default())) {
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
    let base = CACHE.load(Ordering::Acquire);
    if base.is_null() {
        return;
    }
    fence(Ordering::SeqCst);
    for index in 0..=MASK.load(Ordering::Relaxed) {
        // SAFETY: below the number of slots.
        let slot = unsafe { &*base.add(index) };
        slot.check.store(0, Ordering::Relaxed);
        slot.value.store(0, Ordering::Relaxed);
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
            let slot = slot(*address).unwrap();
            slot.value.load(Ordering::Relaxed) ^ slot.check.load(Ordering::Relaxed) == *address
        };
        let addresses: std::vec::Vec<u64> = (1..=SLOTS as u64 / 8).map(|at| 0x10_0000 + at * at * 3).collect();
        for _ in 0..5 {
            addresses.iter().for_each(|address| remember(*address, resolved, modules::generation()));
        }
        assert_eq!(MASK.load(Ordering::Relaxed), SLOTS - 1);
        // An eighth of the slots is in use: nearly all have one of their own.
        let known = addresses.iter().filter(|address| is_known(address)).count();
        assert!(known * 100 > addresses.len() * 90, "{known} of {}", addresses.len());
        clear();
        assert_eq!(addresses.iter().filter(|address| is_known(address)).count(), 0);
    }
}
