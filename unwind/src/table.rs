//! The rules of one module, sorted by address.

use crate::Rule;

/// Rows `from this address on -> rule`, six bytes each, as three parallel slices that may lie anywhere, for example in a file.
///
/// The slices come from `build::build` (feature `build`). Wrong contents give wrong rules or none, nothing worse.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// First address of each row, in bytes from the module's base; ascending.
    pub pcs: &'a [u32],
    /// Index into `interned` of each row's rule.
    pub rules: &'a [u16],
    /// [`Rule::to_bits`] of every distinct rule.
    pub interned: &'a [u64],
}

impl Table<'_> {
    /// The rule of the row that covers `pc`, in bytes from the module's base; `None` in gaps between functions.
    #[inline]
    pub fn lookup(&self, pc: u32) -> Option<Rule> {
        let row = self.pcs.partition_point(|first| *first <= pc).checked_sub(1)?;
        let rule = Rule::from_bits(*self.interned.get(usize::from(*self.rules.get(row)?))?);
        if rule.is_none() { None } else { Some(rule) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table<'_> =
        Table { pcs: &[0x10, 0x20, 0x30], rules: &[1, 0, 9], interned: &[0, Rule::END_OF_STACK.to_bits()] };

    #[test]
    fn a_row_reaches_to_the_next() {
        assert_eq!(TABLE.lookup(0x10), Some(Rule::END_OF_STACK));
        assert_eq!(TABLE.lookup(0x1f), Some(Rule::END_OF_STACK));
    }

    #[test]
    fn nothing_is_known_before_the_first_row_and_in_gaps() {
        assert_eq!(TABLE.lookup(0xf), None);
        assert_eq!(TABLE.lookup(0x20), None);
        assert_eq!(Table { pcs: &[], rules: &[], interned: &[] }.lookup(0), None);
    }

    #[test]
    fn slices_that_do_not_belong_together_give_nothing() {
        assert_eq!(TABLE.lookup(0x30), None, "index outside the interned rules");
        assert_eq!(Table { rules: &[], ..TABLE }.lookup(0x10), None);
    }
}
