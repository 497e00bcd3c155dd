//! Stacks, rules and chance for tests.

use std::vec::Vec;

use crate::kept::Word;
use crate::{FrameAddress, Memory, Rule, Rules, Slot, Step, Truncated, Unwind, Walker};

/// Words from an address on; nothing else can be read.
pub(crate) struct Stack<'a>(pub(crate) u64, pub(crate) &'a [u64]);

impl Memory for Stack<'_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        let from = usize::try_from(address.checked_sub(self.0)?).ok()?;
        let bytes = |word: usize| self.1.get(word).map(|word| word.to_le_bytes());
        let mut read = [0; 8];
        for (i, byte) in read.iter_mut().enumerate() {
            *byte = bytes(from.checked_add(i)? / 8)?[(from + i) % 8];
        }
        Some(u64::from_le_bytes(read))
    }

    // Stacks of tests lie below two GiB: the number is the address.
    fn slot(&self, address: u64) -> Option<Slot> {
        u32::try_from(address).ok().filter(|slot| *slot < 1 << 31).map(|slot| Slot(1 << 31 | slot))
    }

    fn read_slot(&mut self, Slot(slot): Slot) -> Option<u64> {
        self.read(u64::from(slot.checked_sub(1 << 31)?))
    }

    fn unchanged(&mut self, words: &[Word], sp: u64) -> usize {
        let compared = words.iter().rev().take_while(|word| word.slot != Word::NONE[0].slot);
        compared.for_each(|word| assert!(u64::from(word.slot.0 ^ 1 << 31) >= sp, "a word below the frame"));
        words.iter().rev().take_while(|word| word.holds(self)).count()
    }
}

/// Rules by lookup address; the tag is the lookup address.
pub(crate) struct Listed<'a>(pub(crate) &'a [(u64, Rule)]);

impl Rules for Listed<'_> {
    type Tag = u64;

    fn lookup(&mut self, address: FrameAddress) -> (Rule, u64) {
        let pc = address.for_lookup();
        (self.0.iter().find(|(at, _)| *at == pc).map_or(Rule::NONE, |(_, rule)| *rule), pc)
    }
}

/// All frames of a walk, and how it ended.
pub(crate) fn walk<G: Unwind>(
    mut walker: Walker<G, impl Rules, impl Memory>,
) -> (Vec<FrameAddress>, Result<(), Truncated>) {
    let mut frames = Vec::new();
    loop {
        match walker.advance() {
            Step::Frame(address, _) => frames.push(address),
            Step::End(end) => return (frames, end),
        }
    }
}

/// The same numbers on each run (xorshift).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
