use crate::Rule;
use crate::cfi::cursor::{Cursor, Encoding};
use crate::cfi::entry::{Entry, Fde};
use crate::cfi::row::RowOf;
use crate::cfi::{AllRules, Cie, Compile, SectionKind, Source};

/// The binary-search table over `.eh_frame` that linkers write (`.eh_frame_hdr`, segment `PT_GNU_EH_FRAME`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Address of `.eh_frame`.
    pub eh_frame: u64,
    /// Address of the header, which the table's entries count from.
    address: u64,
    /// Address of the table, and its entries; none if there is no table in the format that all linkers write.
    table: Option<(u64, u64)>,
}

/// What is known of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    /// A description covers the address.
    Function {
        /// Where the function begins.
        start: u64,
        /// What a table says, except that there is always room for another rule. [`Rule::UNSUPPORTED`] if the description is malformed.
        rule: Rule,
    },
    /// No description does.
    Gap {
        /// End of the function before, as far as that is known; else its start.
        from: u64,
        /// Start of the next one.
        to: u64,
    },
}

/// Bytes of a table's entry: address of the function, address of its FDE, both relative to the header.
const ENTRY: u64 = 8;

impl Header {
    /// Reads the header at `address`, which is `length` bytes long; `None` if it is malformed.
    pub fn read<S: Source>(source: &mut S, address: u64, length: u64) -> Option<Self> {
        const SIGNED_4_RELATIVE_TO_HEADER: u8 = 0x3b;
        let end = address.checked_add(length)?;
        let mut cursor = Cursor { source, at: address, end };
        let [version, pointer, count, table] = [cursor.u8()?, cursor.u8()?, cursor.u8()?, cursor.u8()?];
        if version != 1 || Encoding(pointer) == Encoding::OMITTED {
            return None;
        }
        let eh_frame = cursor.pointer(Encoding(pointer), Some(address))?;
        let mut header = Self { eh_frame, address, table: None };
        if table == SIGNED_4_RELATIVE_TO_HEADER && Encoding(count) != Encoding::OMITTED {
            let count = cursor.pointer(Encoding(count), Some(address))?;
            let room = end.saturating_sub(cursor.at).checked_div(ENTRY)?;
            header.table = Some((cursor.at, count.min(room)));
        }
        Some(header)
    }

    /// Whether single addresses can be looked up.
    pub fn is_searchable(&self) -> bool {
        self.table.is_some()
    }

    /// Describes one address: finds its function, and executes that function's description alone. `None` if the table cannot be searched.
    pub fn describe<A: Compile>(&self, source: &mut impl Source, address: u64) -> Option<Description> {
        self.describe_within::<A>(source, address, (0, u64::MAX))
    }

    /// The same, where it is known how many functions begin at or before an address that is not above this one, and how many before one that is not below it, as [`Header::begin_by`] tells.
    pub fn describe_within<A: Compile>(
        &self,
        source: &mut impl Source,
        address: u64,
        between: (u64, u64),
    ) -> Option<Description> {
        let found = match self.find(source, address, between)? {
            Found::Function(found) => found,
            Found::Gap { from, to } => return Some(Description::Gap { from, to }),
        };
        let rule = found.fde.rules_at::<RowOf<A>>(source, &found.cie, found.address);
        let rule = rule.filter(|_| found.cie.return_address == A::RA);
        let rule = rule.map_or(Rule::UNSUPPORTED, |row| A::rule(&row.0, found.cie.signal));
        Some(Description::Function { start: found.fde.start, rule })
    }

    /// What is said about all registers at one address, and whether a signal made the frame. `None` if nothing describes it, or not well.
    pub fn describe_all<A: Compile, const N: usize>(
        &self,
        source: &mut impl Source,
        address: u64,
    ) -> Option<(AllRules<N>, bool)> {
        let Found::Function(found) = self.find(source, address, (0, u64::MAX))? else { return None };
        let rules = found.fde.rules_at::<AllRules<N>>(source, &found.cie, found.address)?;
        (found.cie.return_address == A::RA).then_some((rules, found.cie.signal))
    }

    /// A field of the table's entry with this index.
    fn word(&self, source: &mut impl Source, index: u64, field: u64) -> Option<u64> {
        let (table, _) = self.table?;
        let at = table.wrapping_add(index.wrapping_mul(ENTRY)).wrapping_add(field);
        let offset = i32::from_le_bytes(source.read(at)?);
        Some(self.address.wrapping_add_signed(i64::from(offset)))
    }

    /// How many functions begin at an address or before it: the index of the first that begins behind it.
    pub fn begin_by(&self, source: &mut impl Source, address: u64) -> Option<u64> {
        self.behind(source, address, (0, u64::MAX))
    }

    fn behind(&self, source: &mut impl Source, address: u64, (mut low, high): (u64, u64)) -> Option<u64> {
        let (_, count) = self.table?;
        let mut high = high.min(count);
        while low < high {
            let middle = low.midpoint(high);
            if self.word(source, middle, 0)? <= address { low = middle.wrapping_add(1) } else { high = middle }
        }
        Some(low)
    }

    /// Addresses of the FDEs of all functions that may reach into a range, sorted by function.
    #[cfg(feature = "build")]
    pub(crate) fn entries<S: Source>(&self, source: &mut S, from: u64, to: u64) -> alloc::vec::Vec<u64> {
        let first = self.begin_by(source, from).unwrap_or(0).saturating_sub(1);
        // A function that a signal returns to is described from a byte before it on.
        let end = self.begin_by(source, to).unwrap_or(0);
        (first..end).filter_map(|index| self.word(source, index, 4)).collect()
    }

    fn find(&self, source: &mut impl Source, address: u64, between: (u64, u64)) -> Option<Found> {
        let (_, count) = self.table?;
        let low = self.behind(source, address, between)?;
        let mut gap = Found::Gap { from: 0, to: u64::MAX };
        if let (Some(before), Found::Gap { from, .. }) = (low.checked_sub(1), &mut gap) {
            let start = self.word(source, before, 0)?;
            *from = start;
            let entry = self.word(source, before, 4)?;
            if let Some((cie, fde)) = function_at(source, entry)
                && fde.start <= address
            {
                if fde.contains(address) {
                    return Some(Found::Function(InFunction { cie, fde, address }));
                }
                *from = start.wrapping_add(fde.length);
            }
        }
        if low < count {
            let start = self.word(source, low, 0)?;
            // The description of a signal frame begins a byte early: its lookup address is a return address minus one, though nothing called from there.
            if start == address.wrapping_add(1)
                && let Some(entry) = self.word(source, low, 4)
                && let Some((cie, fde)) = function_at(source, entry)
                && cie.signal
                && fde.contains(start)
            {
                return Some(Found::Function(InFunction { cie, fde, address: start }));
            }
            if let Found::Gap { to, .. } = &mut gap {
                *to = start;
            }
        }
        Some(gap)
    }
}

enum Found {
    Function(InFunction),
    Gap { from: u64, to: u64 },
}

struct InFunction {
    cie: Cie,
    fde: Fde,
    address: u64,
}

fn function_at(source: &mut impl Source, at: u64) -> Option<(Cie, Fde)> {
    let entry = Entry::read(source, SectionKind::EhFrame, 0, at)?;
    let cie = Cie::read(source, SectionKind::EhFrame, 0, entry.cie?)?;
    let fde = Fde::read(source, entry, &cie)?;
    Some((cie, fde))
}
