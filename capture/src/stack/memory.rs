//! Reading within the bounds of a thread's stack, and with care elsewhere.
//!
//! Called from: hooks and handlers. Reads stay in the known range of the thread's stack; elsewhere (fibers, alternate stacks) each page is probed once
//! before it is read, never a frame, and never by a SIGSEGV handler.
#![allow(unsafe_code)]

use crate::probed::Probed;
use unwind::kept::Word;
use unwind::{Memory, Slot};

/// Range of a thread's stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Lowest address it may come to.
    pub low: u64,
    /// End.
    pub high: u64,
}

impl Bounds {
    /// Whether an address lies in the range.
    #[inline]
    pub fn contains(self, address: u64) -> bool {
        self.low <= address && address < self.high
    }
}

/// Reads words of the calling thread's stack.
#[derive(Debug)]
pub struct StackMemory {
    /// Nothing below the stack pointer is read.
    low: u64,
    /// Bytes from there in which a word may begin.
    span: u64,
    /// Numbers of words count from here, so that the last word has the highest number.
    slots_from: u64,
    elsewhere: Probed,
}

impl StackMemory {
    /// Memory of a walk that starts at `sp`, on a thread whose stack is `bounds`.
    #[inline]
    pub fn new(bounds: Bounds, sp: u64) -> Self {
        let slots_from = bounds.high.wrapping_sub(8).wrapping_sub(u64::from(u32::MAX));
        let known = bounds.contains(sp) && bounds.high - sp >= 8;
        // Words farther from the root have no number: like those of other stacks.
        let low = if slots_from < bounds.high { sp.max(slots_from) } else { sp };
        let (low, span) = if known { (low, bounds.high - low - 7) } else { (0, 0) };
        Self { low, span, slots_from, elsewhere: Probed::new() }
    }

    #[inline]
    fn is_known(&self, address: u64) -> bool {
        address.wrapping_sub(self.low) < self.span
    }
}

impl Memory for StackMemory {
    #[inline]
    fn read(&mut self, address: u64) -> Option<u64> {
        if !self.is_known(address) && !self.elsewhere.is_readable(address, 8) {
            return None;
        }
        // SAFETY: within the stack between its pointer and its top, which is mapped while the thread runs, or on pages that were just readable.
        Some(unsafe { core::ptr::read_unaligned(address as *const u64) })
    }

    #[inline]
    fn slot(&self, address: u64) -> Option<Slot> {
        self.is_known(address).then_some(Slot(address.wrapping_sub(self.slots_from) as u32))
    }

    #[inline]
    fn numbered_word(&mut self, address: u64) -> Option<(Slot, u64)> {
        let slot = self.slot(address)?;
        // SAFETY: within the stack between its pointer and its top, which is mapped while the thread runs.
        Some((slot, unsafe { core::ptr::read_unaligned(address as *const u64) }))
    }

    #[inline]
    fn read_slot(&mut self, Slot(number): Slot) -> Option<u64> {
        let address = self.slots_from.wrapping_add(u64::from(number));
        // SAFETY: within the stack between its pointer and its top, which is mapped while the thread runs.
        self.is_known(address).then(|| unsafe { self.word(number) })
    }

    /// Eight at a time.
    #[inline]
    fn unchanged(&mut self, words: &[Word], sp: u64) -> usize {
        if !self.is_known(sp) {
            return 0;
        }
        let (rest, eights) = words.as_rchunks::<8>();
        let mut unchanged = 0;
        for eight in eights.iter().rev() {
            // SAFETY: what is compared lies between `sp`, hence the stack's pointer, and the stack's top. What lies behind words that are not to be compared, among the same eight, could be read when
            // it was kept, in this stack: it may have changed since, and is still there.
            let differ = eight.iter().fold(0, |all, word| all | unsafe { self.difference(word) });
            if at_once(differ) != 0 {
                return unchanged + self.unchanged_of(eight);
            }
            unchanged += 8;
        }
        unchanged + self.unchanged_of(rest)
    }
}

impl StackMemory {
    /// Whether memory holds all of these words, which lie so many words from `sp`, nearer to the root.
    #[inline(always)]
    pub fn holds<const N: usize>(&self, distances: &[u16; N], words: &[u64; N], sp: u64) -> bool {
        if !self.is_known(sp) {
            return false;
        }
        // SAFETY: they lie between `sp`, hence the stack's pointer, and the stack's top.
        let found = |distance: u16| unsafe { core::ptr::read_unaligned(at_distance(sp, distance) as *const u64) };
        let differ = distances.iter().zip(words).fold(0, |all, (distance, word)| all | found(*distance) ^ word);
        at_once(differ) == 0
    }

    /// Where the word with this number is.
    #[inline(always)]
    pub fn address_of(&self, Slot(number): Slot) -> u64 {
        self.slots_from.wrapping_add(u64::from(number))
    }
}

/// Where a word lies that is so many words from `sp`, nearer to the root.
#[inline(always)]
pub fn at_distance(sp: u64, distance: u16) -> u64 {
    sp.wrapping_add(u64::from(distance) * 8)
}

/// How many words from `sp` a word lies. `None`: farther than a number says.
pub fn distance_of(address: u64, sp: u64) -> Option<u16> {
    let distance = u16::try_from(address.checked_sub(sp)? / 8).ok()?;
    (at_distance(sp, distance) == address).then_some(distance)
}

/// The same number, of which the compiler knows nothing: it would ask for each of its parts by itself.
#[inline(always)]
fn at_once(mut number: u64) -> u64 {
    // SAFETY: no instruction.
    unsafe {
        core::arch::asm!("/* {number} */", number = inout(reg) number, options(pure, nomem, nostack, preserves_flags))
    };
    number
}

impl StackMemory {
    /// How many of a few, one by one: by itself, so that the compiler keeps nothing of the eight for it.
    #[inline(never)]
    fn unchanged_of(&self, few: &[Word]) -> usize {
        // SAFETY: as in `unchanged`, which calls this.
        few.iter().rev().take_while(|word| unsafe { self.difference(word) } == 0).count()
    }

    /// Zero if memory still holds it.
    ///
    /// # Safety
    /// As for [`word`](Self::word).
    #[inline(always)]
    unsafe fn difference(&self, word: &Word) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { self.word(word.slot.0) ^ word.word }
    }

    /// # Safety
    /// The word lies between the stack's pointer and its top, or did when a walk of this stack began.
    #[inline]
    unsafe fn word(&self, number: u32) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { core::ptr::read_unaligned(self.slots_from.wrapping_add(u64::from(number)) as *const u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_a_number_from_the_stack_pointer_to_the_top_and_nowhere_else() {
        let stack: [u64; 8] = core::array::from_fn(|i| i as u64 * 3);
        let low = stack.as_ptr() as u64;
        let bounds = Bounds { low, high: low + 64 };
        let mut memory = StackMemory::new(bounds, low + 16);
        for i in 2..8 {
            let slot = memory.slot(low + i * 8).unwrap();
            assert_eq!(memory.read_slot(slot), Some(i * 3));
        }
        assert_eq!([memory.slot(low + 8), memory.slot(low + 57), memory.slot(low + 64)], [None; 3]);
        // A later walk that begins nearer to the leaf numbers them alike; one that begins nearer to the root does not read them.
        let slot = memory.slot(low + 16).unwrap();
        assert_eq!(StackMemory::new(bounds, low).slot(low + 16), Some(slot));
        assert_eq!(StackMemory::new(bounds, low + 24).read_slot(slot), None);
        assert_eq!(StackMemory::new(bounds, low + 128).read_slot(slot), None, "on another stack");
        assert_eq!([0, 1, 1 << 31].map(|number| memory.read_slot(Slot(number))), [None; 3]);
        let last = memory.slot(low + 56).unwrap();
        assert_eq!(last, Slot(u32::MAX));
        assert_eq!(StackMemory::new(Bounds::default(), low).read_slot(last), None, "no stack is known");
    }

    #[test]
    fn words_at_distances_are_held_as_long_as_none_changed() {
        let mut stack: [u64; 40] = core::array::from_fn(|i| i as u64 * 5);
        let sp = stack.as_ptr() as u64 + 32;
        let bounds = Bounds { low: sp - 32, high: sp + 288 };
        let distances = [0, 35, 7].map(|distance| distance_of(sp + distance * 8, sp).unwrap());
        assert_eq!(distances, [0, 35, 7]);
        let words = [20, 195, 55];
        assert!(StackMemory::new(bounds, sp - 16).holds(&distances, &words, sp));
        assert!(!StackMemory::new(bounds, sp + 8).holds(&distances, &words, sp), "below the stack pointer");
        assert!(!StackMemory::new(Bounds::default(), sp).holds(&distances, &words, sp), "no stack is known");
        for changed in [4, 39, 11] {
            let was = core::mem::replace(&mut core::hint::black_box(&mut stack)[changed], 1);
            assert!(!StackMemory::new(bounds, sp).holds(&distances, &words, sp), "{changed}");
            core::hint::black_box(&mut stack)[changed] = was;
        }
        assert!(StackMemory::new(bounds, sp).holds(&distances, &words, sp));
        let far = u64::from(u16::MAX) * 8;
        assert_eq!([sp - 8, sp + 4, sp + far + 8].map(|address| distance_of(address, sp)), [None; 3]);
        assert_eq!(distance_of(sp + far, sp), Some(u16::MAX));
    }

    #[test]
    fn words_are_compared_up_to_the_first_that_changed() {
        let mut stack: [u64; 40] = core::array::from_fn(|i| i as u64);
        let low = stack.as_ptr() as u64;
        let bounds = Bounds { low, high: low + 320 };
        let memory = StackMemory::new(bounds, low);
        // Root first.
        let words: [Word; 40] = core::array::from_fn(|i| {
            let word = 39 - i as u64;
            Word { slot: memory.slot(low + word * 8).unwrap(), word }
        });
        assert_eq!(StackMemory::new(bounds, low).unchanged(&words, low), 40);
        for (changed, word) in core::hint::black_box(&mut stack).iter_mut().enumerate() {
            let was = core::mem::replace(core::hint::black_box(word), u64::MAX);
            assert_eq!(StackMemory::new(bounds, low).unchanged(&words, low), changed);
            *core::hint::black_box(word) = was;
        }
        for none in 0..39 {
            let mut words = words;
            words[none..none + 2].copy_from_slice(&Word::NONE);
            // Memory can hold one of the two, not both.
            let unchanged = StackMemory::new(bounds, low).unchanged(&words, low);
            assert!([38 - none, 39 - none].contains(&unchanged), "{unchanged} behind {none}");
        }
        // From a frame that lies below the stack pointer on nothing is compared.
        assert_eq!(StackMemory::new(bounds, low + 160).unchanged(&words, low + 152), 0);
        assert_eq!(StackMemory::new(bounds, low + 160).unchanged(&words[..20], low + 160), 20);
        assert_eq!(StackMemory::new(bounds, low).unchanged(&Word::NONE, low), 0);
        assert_eq!(StackMemory::new(Bounds::default(), low).unchanged(&words, low), 0, "no stack is known");
    }
}
