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
use unwind::Rule;

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

/// Rule and module of the code at a lookup address (see [`unwind::FrameAddress::for_lookup`]).
#[inline]
pub fn resolve(address: u64, context: Context) -> Resolved {
    if let Some(slot) = slot(address) {
        let value = slot.value.load(Ordering::Relaxed);
        if slot.check.load(Ordering::Relaxed) ^ value == address {
            return unpack(value);
        }
    }
    resolve_slow(address, context)
}

fn unpack(value: u64) -> Resolved {
    Resolved { rule: Rule::from_bits(value >> 16), module: ModuleIndex::new(value as u16).unwrap_or(ModuleIndex::NONE) }
}

#[cold]
fn resolve_slow(address: u64, context: Context) -> Resolved {
    let unknown = Resolved { rule: Rule::NONE, module: ModuleIndex::NONE };
    for attempt in 0..2 {
        match modules::find(address) {
            Found::Module(module) => {
                let mut found = modules::lookup(module, address);
                if found == Lookup::NotBuilt && context == Context::Hook {
                    modules::ensure_table(module);
                    found = modules::lookup(module, address);
                }
                let Lookup::Rule(rule) = found else { return Resolved { rule: Rule::NONE, module } };
                let value = (rule.to_bits() << 16) | u64::from(module.get());
                if let Some(slot) = slot(address) {
                    slot.check.store(address ^ value, Ordering::Relaxed);
                    slot.value.store(value, Ordering::Relaxed);
                }
                return Resolved { rule, module };
            }
            Found::Anonymous => return Resolved { rule: trampoline(address), module: ModuleIndex::NONE },
            Found::Nowhere => {
                if attempt == 0 && context == Context::Hook && worth_a_refresh(address) {
                    modules::refresh();
                } else {
                    return unknown;
                }
            }
        }
    }
    unknown
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

/// CPython's perf trampolines are eleven bytes of anonymous code: `sub rsp,8; call rcx; add rsp,8; ret`. At the return address of their call the
/// frame is 16 bytes.
fn trampoline(lookup: u64) -> Rule {
    const BEFORE: [u8; 6] = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1];
    const AFTER: [u8; 5] = [0x48, 0x83, 0xc4, 0x08, 0xc3];
    let mut bytes = [0; 11];
    // The lookup address is the last byte of the call.
    if syscall::copy_memory(lookup.wrapping_sub(5), &mut bytes) != bytes.len() {
        return Rule::NONE;
    }
    let is_trampoline = bytes.get(..6) == Some(&BEFORE) && bytes.get(6..) == Some(&AFTER);
    if is_trampoline { Rule::PERF_TRAMPOLINE } else { Rule::NONE }
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
