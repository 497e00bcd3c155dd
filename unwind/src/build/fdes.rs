use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gimli::{
    BaseAddresses, CommonInformationEntry, EhFrame, EhFrameOffset, EndianSlice, Error, FrameDescriptionEntry,
    LittleEndian, UnwindSection as _,
};

use crate::build::execute::Executor;
use crate::build::{Compile, Row};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The descriptions of functions (FDEs) in a section, and what groups of them share (CIEs).
pub(super) struct Fdes<'a, A> {
    section: &'a EhFrame<Reader<'a>>,
    bases: &'a BaseAddresses,
    cies: BTreeMap<usize, Option<Cie<'a>>>,
    executor: Executor<A>,
}

/// What a group of FDEs shares.
#[derive(Clone, Debug)]
pub(super) struct Cie<'a> {
    entry: CommonInformationEntry<Reader<'a>>,
    /// The row that its functions begin with; `None` if that is malformed.
    pub(super) initial: Option<Row>,
}

/// The addresses that an FDE describes, in bytes from the base.
pub(super) struct Range {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Where the FDE is in the section.
    pub(super) offset: usize,
    pub(super) signal: bool,
}

impl<'a, A: Compile> Fdes<'a, A> {
    pub(super) fn new(section: &'a EhFrame<Reader<'a>>, bases: &'a BaseAddresses) -> Self {
        Self { section, bases, cies: BTreeMap::new(), executor: Executor::default() }
    }

    /// All FDEs that describe addresses within 4 GiB above `base`, as they follow each other in `bytes`, the section's.
    ///
    /// Lengths are followed here and not by gimli's iterator, which ends at the first malformed entry.
    pub(super) fn ranges(&mut self, bytes: &[u8], base: u64, skipped: &mut usize) -> Vec<Range> {
        let mut ranges = Vec::new();
        let mut offset = 0;
        while let Some(entry) = Entry::at(bytes, offset) {
            if entry.is_fde {
                match self.range(offset, base) {
                    Some(range) => ranges.push(range),
                    None => *skipped = skipped.wrapping_add(1),
                }
            }
            offset = entry.next;
        }
        ranges
    }

    fn range(&mut self, offset: usize, base: u64) -> Option<Range> {
        let (fde, _) = self.get(offset)?;
        let start = u32::try_from(fde.initial_address().checked_sub(base)?).ok()?;
        let end = start.checked_add(u32::try_from(fde.len()).ok()?)?;
        if start == end {
            return None;
        }
        Some(Range { start, end, offset, signal: fde.is_signal_trampoline() })
    }

    /// The FDE at an offset, with its CIE; `None` if it or its CIE's head is malformed.
    pub(super) fn get(&mut self, offset: usize) -> Option<(FrameDescriptionEntry<Reader<'a>>, &Cie<'a>)> {
        let partial = self.section.partial_fde_from_offset(self.bases, EhFrameOffset(offset)).ok()?;
        let cie_offset = partial.cie_offset().0;
        if !self.cies.contains_key(&cie_offset) {
            let cie = self.parse_cie(cie_offset);
            self.cies.insert(cie_offset, cie);
        }
        let cie = self.cies.get(&cie_offset)?.as_ref()?;
        let fde = partial.parse(|_, _, _| Ok::<_, Error>(cie.entry.clone())).ok()?;
        Some((fde, cie))
    }

    fn parse_cie(&mut self, offset: usize) -> Option<Cie<'a>> {
        let entry = self.section.cie_from_offset(self.bases, EhFrameOffset(offset)).ok()?;
        let initial = self.executor.initial_row(self.section, self.bases, &entry);
        Some(Cie { entry, initial })
    }
}

/// The head of one entry of the section.
struct Entry {
    is_fde: bool,
    next: usize,
}

impl Entry {
    /// `None` at the terminator and where the bytes end.
    fn at(bytes: &[u8], offset: usize) -> Option<Self> {
        let word = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let (id_at, len) = match word(offset)? {
            0 => return None,
            u32::MAX => {
                let len_at = offset.checked_add(4)?;
                let len = u64::from_le_bytes(*bytes.get(len_at..)?.first_chunk()?);
                (len_at.checked_add(8)?, usize::try_from(len).ok()?)
            }
            len => (offset.checked_add(4)?, len as usize),
        };
        let next = id_at.checked_add(len).filter(|next| *next <= bytes.len())?;
        // The offset to the CIE; zero in a CIE itself.
        Some(Self { is_fde: word(id_at)? != 0, next })
    }
}
