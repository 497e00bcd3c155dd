//! The rule cache: from a code address to its unwind rule and module in one probe.
//!
//! Called from: hooks and handlers (`resolve`). Direct-mapped, shared by all threads. Reading writes nothing.
//!
//! # Orderings    None: an entry is two words, `address ^ value` and `value`, so a reader that sees halves of two entries sees a mismatch
//! (the lockless transposition table of chess programs; R. Hyatt, "A lockless transposition table implementation", 1999).
#![allow(unsafe_code)]

use crate::mapping::Mapping;
use crate::modules::{self, Found, Lookup};
use crate::syscall;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use layout::ModuleIndex;
use unwind::arch::rule_from_code;
use unwind::{FrameAddress, Memory, Rule};

const SLOTS_LOG2: u32 = 16;
const SLOTS: usize = 1 << SLOTS_LOG2;

struct Slot {
    check: AtomicU64,
    value: AtomicU64,
}

static CACHE: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
/// Pages that were in no mapping, each with a count of how often that was asked since.
static NOWHERE: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Where a lookup happens, and so what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// In a signal handler: only what is there.
    Handler,
    /// Under malloc or on an ordinary thread: may read the list of mappings and build tables.
    Hook,
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
    let index = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS_LOG2);
    // SAFETY: the index has SLOTS_LOG2 bits, and the mapping has that many zeroed slots for ever.
    Some(unsafe { &*base.add(index as usize) })
}

/// Rule and module of the code at an address.
#[inline]
pub fn resolve(at: FrameAddress, context: Context) -> Resolved {
    let address = at.for_lookup();
    if let Some(slot) = slot(address) {
        let value = slot.value.load(Ordering::Relaxed);
        if slot.check.load(Ordering::Relaxed) ^ value == address {
            return unpack(value);
        }
    }
    resolve_slow(at, context)
}

fn unpack(value: u64) -> Resolved {
    Resolved { rule: Rule::from_bits(value >> 16), module: ModuleIndex::new(value as u16).unwrap_or(ModuleIndex::NONE) }
}

#[cold]
fn resolve_slow(at: FrameAddress, context: Context) -> Resolved {
    let address = at.for_lookup();
    for attempt in 0..2 {
        match modules::find(address) {
            Found::Module(module) => {
                let mut found = modules::lookup(module, address);
                if found == Lookup::NotBuilt {
                    if context == Context::Handler {
                        modules::request_refresh();
                        return Resolved { rule: Rule::NO_TABLE, module };
                    }
                    found = match modules::evaluate(module, address) {
                        Some(rule) => Lookup::Rule(rule),
                        None => {
                            modules::ensure_table(module);
                            modules::lookup(module, address)
                        }
                    };
                }
                let rule = match found {
                    Lookup::Rule(rule) if !rule.is_none() => rule,
                    Lookup::Generated => rule_from_code(at, &mut Code).unwrap_or(Rule::NONE),
                    // No call ends before the first byte of a function that follows a gap: the address was put there, as the root of a coroutine.
                    Lookup::Rule(_)
                        if matches!(at, FrameAddress::ReturnAddress(_)) && starts_function(module, at.address()) =>
                    {
                        starting_rule(module, at.address())
                    }
                    // A gap in the table: linkers describe neither every procedure linkage table nor the first instructions of a program.
                    _ => rule_from_code(at, &mut Code).unwrap_or(Rule::NO_TABLE),
                };
                let value = (rule.to_bits() << 16) | u64::from(module.get());
                if let Some(slot) = slot(address) {
                    slot.check.store(address ^ value, Ordering::Relaxed);
                    slot.value.store(value, Ordering::Relaxed);
                }
                return Resolved { rule, module };
            }
            Found::Anonymous => {
                // Code of a JIT compiler keeps a chain of frame pointers, or is one of the shapes that are known.
                return Resolved {
                    rule: rule_from_code(at, &mut Code).unwrap_or(Rule::NONE),
                    module: ModuleIndex::NONE,
                };
            }
            Found::Nowhere if attempt == 0 && worth_a_refresh(address) => match context {
                Context::Hook => modules::refresh(),
                Context::Handler => {
                    modules::request_refresh();
                    break;
                }
            },
            Found::Nowhere => break,
        }
    }
    Resolved { rule: Rule::NO_TABLE, module: ModuleIndex::NONE }
}

fn starting_rule(module: ModuleIndex, avma: u64) -> Rule {
    match modules::lookup(module, avma) {
        Lookup::Rule(rule) => rule,
        Lookup::Generated | Lookup::NotBuilt => Rule::NONE,
    }
}

fn starts_function(module: ModuleIndex, avma: u64) -> bool {
    !starting_rule(module, avma).is_none()
}

/// Instructions of this process, which may vanish meanwhile.
struct Code;

impl Memory for Code {
    fn read(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (syscall::copy_memory(address, &mut bytes) == bytes.len()).then(|| u64::from_le_bytes(bytes))
    }
}

/// Whether an address in no known mapping may belong to an object that was loaded since: yes, unless it was asked for lately.
fn worth_a_refresh(address: u64) -> bool {
    const USES: u64 = 0xfff;
    let page = address & !USES;
    let index = (address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    let Some(cell) = NOWHERE.get(index as usize) else { return false };
    let seen = cell.load(Ordering::Relaxed);
    if seen & !USES == page && seen & USES != USES {
        cell.store(seen + 1, Ordering::Relaxed);
        return false;
    }
    cell.store(page, Ordering::Relaxed);
    true
}

/// Forgets everything, when an object went away.
pub fn clear() {
    let base = CACHE.load(Ordering::Acquire);
    if base.is_null() {
        return;
    }
    for index in 0..SLOTS {
        // SAFETY: below the number of slots.
        let slot = unsafe { &*base.add(index) };
        slot.check.store(0, Ordering::Relaxed);
        slot.value.store(0, Ordering::Relaxed);
    }
}
