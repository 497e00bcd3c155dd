use alloc::vec::Vec;

use crate::Rule;

/// Numbers distinct rules.
///
/// Open addressing, since every row asks: a map of `alloc` alone (a B-tree) would take as long as the rest of the row.
pub(super) struct Interner {
    interned: Vec<u64>,
    /// Index into `interned`, or [`FREE`]; the length is a power of two.
    slots: Vec<u32>,
}

const FREE: u32 = u32::MAX;

impl Interner {
    pub(super) const UNSUPPORTED: u16 = 1;

    pub(super) fn new() -> Self {
        let mut interner = Self { interned: Vec::new(), slots: alloc::vec![FREE; 1024] };
        for rule in [Rule::NONE, Rule::UNSUPPORTED] {
            let _index = interner.insert(rule.to_bits());
        }
        interner
    }

    /// The rule's index; `None` if it is new and all indices are taken.
    pub(super) fn intern(&mut self, rule: Rule) -> Option<u16> {
        let bits = rule.to_bits();
        match self.find(bits) {
            Ok(index) => Some(index),
            Err(_) => self.insert(bits),
        }
    }

    /// The index of the rule, or else the slot where it belongs.
    fn find(&self, bits: u64) -> Result<u16, usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        // At most half of the slots are taken, so this ends.
        loop {
            at &= mask;
            match self.slots.get(at) {
                Some(&index) if index != FREE => {
                    if self.interned.get(index as usize) == Some(&bits) {
                        return Ok(index as u16);
                    }
                }
                _ => return Err(at),
            }
            at = at.wrapping_add(1);
        }
    }

    #[cold]
    fn insert(&mut self, bits: u64) -> Option<u16> {
        let index = u16::try_from(self.interned.len()).ok()?;
        self.interned.push(bits);
        if self.interned.len() > self.slots.len() / 2 {
            self.slots = alloc::vec![FREE; self.slots.len().wrapping_mul(2)];
            for i in 0..self.interned.len() {
                self.place(i as u32);
            }
        } else {
            self.place(u32::from(index));
        }
        Some(index)
    }

    fn place(&mut self, index: u32) {
        let free = self.interned.get(index as usize).and_then(|bits| self.find(*bits).err());
        if let Some(slot) = free.and_then(|free| self.slots.get_mut(free)) {
            *slot = index;
        }
    }

    pub(super) fn into_interned(mut self) -> Vec<u64> {
        self.interned.shrink_to_fit();
        self.interned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_one_index_until_none_is_left() {
        let mut interner = Interner::new();
        assert_eq!(interner.intern(Rule::NONE), Some(0));
        assert_eq!(interner.intern(Rule::UNSUPPORTED), Some(Interner::UNSUPPORTED));
        for i in 2..=65_535 {
            assert_eq!(interner.intern(Rule::from_bits(i << 8)), Some(i as u16));
        }
        assert_eq!(interner.intern(Rule::from_bits(65_536 << 8)), None);
        assert_eq!(interner.intern(Rule::from_bits(777 << 8)), Some(777), "known ones still have theirs");
        assert_eq!(interner.into_interned().len(), 65_536);
    }
}
