//! The second reader: gimli's list of the descriptions, and a header made from it.

use super::Place;
use super::machine::Machine;
use gimli::{
    BaseAddresses, CallFrameInstruction, CieOrFde, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindSection as _,
};
use unwind::build::Section;

pub(super) type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// A function as gimli reads its description.
pub(super) struct Function<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Address of the description.
    pub(super) at: u64,
    pub(super) fde: FrameDescriptionEntry<Reader<'a>>,
}

pub(super) struct Listed<'a> {
    pub(super) section: EhFrame<Reader<'a>>,
    pub(super) bases: BaseAddresses,
    /// Those that a table can hold, sorted.
    pub(super) functions: Vec<Function<'a>>,
    /// The others: empty, or not within 4 GiB above the base.
    pub(super) others: usize,
}

/// Where the header lies: in front of the section.
const DISTANCE: u64 = 0x1_0000;

impl<'a> Listed<'a> {
    /// `None` if gimli finds anything malformed, or comes upon what only one of the two readers knows.
    pub(super) fn new<A: Machine>(place: Place, eh_frame: Section<'a>) -> Option<Self> {
        let mut section = EhFrame::new(eh_frame.bytes, LittleEndian);
        section.set_vendor(A::VENDOR);
        let bases = BaseAddresses::default().set_eh_frame(eh_frame.address);
        let mut listed = Self { section, bases: bases.clone(), functions: Vec::new(), others: 0 };
        let mut entries = section.entries(&bases);
        while let Some(entry) = entries.next().ok()? {
            let CieOrFde::Fde(fde) = entry else { continue };
            let fde = fde.parse(EhFrame::cie_from_offset).ok()?;
            if listed.is_odd(&fde, eh_frame) {
                return None;
            }
            let (start, length) = (fde.initial_address(), fde.len());
            let in_table = start
                .checked_sub(place.base)
                .and_then(|from| u32::try_from(from).ok()?.checked_add(u32::try_from(length).ok()?));
            if in_table.is_none() || length == 0 {
                listed.others += 1;
                continue;
            }
            let at = eh_frame.address.wrapping_add(fde.offset() as u64);
            listed.functions.push(Function { start, end: start + length, at, fde });
        }
        listed.functions.sort_by_key(|function| (function.start, function.end));
        // Of two descriptions of the same code, either may hold.
        let twice = |pair: &[Function<'_>]| (pair[0].start, pair[0].end) == (pair[1].start, pair[1].end);
        (!listed.functions.windows(2).any(twice)).then_some(listed)
    }

    /// Whether the two readers may differ about a description's head, rightly:
    /// - version 4 does not occur in `.eh_frame`, and gimli reads it as if it were 3;
    /// - letters of an augmentation without a leading `z`, and more than eight of them, are unknown to us;
    /// - where a function begins is never to be looked up in memory; gimli takes the place of the pointer for the pointer.
    fn is_odd(&self, fde: &FrameDescriptionEntry<Reader<'a>>, eh_frame: Section<'_>) -> bool {
        let cie = fde.cie();
        let letters = cie.offset() + if cie.encoding().format == gimli::Format::Dwarf64 { 17 } else { 9 };
        let letters = eh_frame.bytes[letters..].split(|letter| *letter == 0).next().unwrap_or_default();
        let indirect = cie.fde_address_encoding().is_some_and(|e| e.is_indirect());
        // A location in what functions have in common: gimli reads it as eight bytes, the C library as the CIE's pointers.
        let mut initial = cie.instructions(&self.section, &self.bases);
        let mut moves = || {
            while let Ok(Some(instruction)) = initial.next() {
                if let CallFrameInstruction::SetLoc { .. } = instruction {
                    return true;
                }
            }
            false
        };
        cie.version() == 4 || (!letters.is_empty() && letters[0] != b'z') || letters.len() > 8 || indirect || moves()
    }

    /// The binary-search header over the functions, and its address; `None` if they lie too far away for one.
    pub(super) fn header(&self, eh_frame: Section<'_>) -> Option<(Vec<u8>, u64)> {
        let address = eh_frame.address.wrapping_sub(DISTANCE);
        let relative = |to: u64| i32::try_from(to.wrapping_sub(address) as i64).map(i32::to_le_bytes).ok();
        let mut bytes = vec![1, 0x04, 0x03, 0x3b];
        bytes.extend(eh_frame.address.to_le_bytes());
        bytes.extend(u32::try_from(self.functions.len()).ok()?.to_le_bytes());
        for function in &self.functions {
            bytes.extend(relative(function.start)?);
            bytes.extend(relative(function.at)?);
        }
        (bytes.len() as u64 <= DISTANCE).then_some((bytes, address))
    }
}
