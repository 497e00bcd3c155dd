//! The label sets of the process: each is a text in the store, made once, and found again by its contents.
//!
//! Called from: ordinary code of the host's threads. May: read and write the store and a mapping of its own. Never in a handler or a hook: those read one word of the thread
//! ([`ThreadState::labels`](crate::thread::ThreadState)). When there are too many sets, or the store is full: `None`, and the caller counts the loss.
//!
//! # Orderings
//!
//! Publish a set: its slot by a compare-exchange (Release) after its text was written -> `slot.load(Acquire)` in `find`.
#![allow(unsafe_code)]

use crate::mapping::Mapping;
use crate::region;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use layout::{LabelText, Labels, RecordId};

/// Most sets that a process can have.
const MOST_SETS: u32 = 65_536;
const SLOTS: usize = 2 * MOST_SETS as usize;

/// Ids of the sets, by the hash of their text; null until the first.
static INDEX: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The set with `outer`'s labels and one more. `None` if it cannot be kept.
pub fn with(outer: RecordId, key: &[u8], value: &[u8]) -> Option<RecordId> {
    let outer = if outer.is_none() { None } else { Some(Labels::new(text(outer)?)?) };
    intern(LabelText::new(outer, key, value)?.bytes())
}

/// The text of a set of this store.
fn text(set: RecordId) -> Option<&'static [u8]> {
    // SAFETY: ids of sets come from `region::allocate_text`, whose texts begin with their length, are never written again and stay mapped.
    unsafe { region::text(set, layout::label_text_length(region::text(set, size_of::<u32>()))?) }.into()
}

fn index() -> Option<&'static [AtomicU32]> {
    let mut base = INDEX.load(Ordering::Acquire);
    if base.is_null() {
        let new = Mapping::new(SLOTS * size_of::<AtomicU32>())?;
        let made =
            INDEX.compare_exchange(core::ptr::null_mut(), new.address().cast(), Ordering::AcqRel, Ordering::Acquire);
        base = match made {
            Ok(_) => new.leak().cast(),
            Err(other) => other,
        };
    }
    // SAFETY: the mapping has SLOTS zeroed words and is unmapped in a child after fork alone, whose one thread is elsewhere then.
    Some(unsafe { core::slice::from_raw_parts(base, SLOTS) })
}

fn intern(wanted: &[u8]) -> Option<RecordId> {
    let slots = index()?;
    let mut new = None;
    let mut at = hash(wanted);
    for _ in 0..SLOTS {
        let slot = slots.get(at % SLOTS)?;
        let mut found = RecordId(slot.load(Ordering::Acquire));
        if found.is_none() {
            let id = match new {
                Some(id) => id,
                None => {
                    if COUNT.fetch_add(1, Ordering::Relaxed) >= MOST_SETS {
                        COUNT.fetch_sub(1, Ordering::Relaxed);
                        return None;
                    }
                    let id = region::allocate_text(wanted);
                    if id.is_none() {
                        COUNT.fetch_sub(1, Ordering::Relaxed);
                    }
                    *new.insert(id?)
                }
            };
            match slot.compare_exchange(0, id.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(id),
                Err(other) => found = RecordId(other),
            }
        }
        if text(found) == Some(wanted) {
            if new.is_some() {
                // Another thread was faster: the text that was written stays behind unused.
                COUNT.fetch_sub(1, Ordering::Relaxed);
            }
            return Some(found);
        }
        at = at.wrapping_add(1);
    }
    None
}

fn hash(text: &[u8]) -> usize {
    let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (words, rest) = text.as_chunks::<8>();
    let hash = words.iter().fold(0, |hash, word| mix(hash, u64::from_ne_bytes(*word)));
    let hash = rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)));
    (hash >> 32) as usize
}

/// In a child after fork: the sets are those of its parent's store.
pub(crate) fn forget() {
    COUNT.store(0, Ordering::Relaxed);
    let base = INDEX.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !base.is_null() {
        // SAFETY: mapped by `index`, and the only thread of the child is here.
        unsafe { crate::syscall::unmap(base.cast(), SLOTS * size_of::<AtomicU32>()) };
    }
}
