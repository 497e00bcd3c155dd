//! Tables from `.eh_frame`.
//!
//! Called from: ordinary threads, at the start of a session and when objects were loaded. Allocates, hence never a handler.
//! Every function's instructions are executed once; the rows of all of them become one sorted [`Table`].
//! When input is malformed: what it describes is skipped or marked, and counted; the rest of the table is still built.

mod execute;
mod expression;
mod fdes;
mod intern;
mod row;

pub use expression::Computed;
pub use row::{Compile, Row, Saved};

use alloc::vec::Vec;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, Pointer};

use crate::{Rule, Table};
use execute::Executor;
use fdes::Fdes;
use intern::Interner;

/// Bytes that lie at an address of the process, or of the ELF file if `base` and everything else does too.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// The contents. They may go on beyond the section, to the end of its segment.
    pub bytes: &'a [u8],
    /// Where the first byte lies.
    pub address: u64,
}

/// A [`Table`] that owns its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedTable {
    /// See [`Table::pcs`].
    pub pcs: Vec<u32>,
    /// See [`Table::rules`].
    pub rules: Vec<u16>,
    /// See [`Table::interned`]. The first is [`Rule::NONE`], the second [`Rule::UNSUPPORTED`].
    pub interned: Vec<u64>,
}

impl OwnedTable {
    /// The table to look up in.
    pub fn as_table(&self) -> Table<'_> {
        Table { pcs: &self.pcs, rules: &self.rules, interned: &self.interned }
    }
}

/// What a table could not take over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Descriptions of functions (FDEs) in the table.
    pub functions: usize,
    /// FDEs that are not in the table: malformed, empty, or not within 4 GiB above the base.
    pub skipped: usize,
    /// FDEs whose range is known but whose instructions are malformed: all of the range is marked unsupported.
    pub malformed: usize,
    /// Rows marked unsupported, for any reason.
    pub unsupported_rows: usize,
    /// Rows marked unsupported since the table has no room for another distinct rule.
    pub overflowed_rows: usize,
}

/// Builds the table of one module.
///
/// `eh_frame` begins with the section `.eh_frame` (see [`find_eh_frame`]) and ends with it, with its segment, or wherever its
/// terminator is. `base` is the address that the table's are counted from: the load bias makes them addresses of the ELF file.
pub fn build<A: Compile>(eh_frame: Section<'_>, base: u64) -> (OwnedTable, Counts) {
    let mut section = EhFrame::new(eh_frame.bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(A::VENDOR);
    let bases = BaseAddresses::default().set_eh_frame(eh_frame.address);

    let mut counts = Counts::default();
    let mut fdes = Fdes::<A>::new(&section, &bases);
    let mut ranges = fdes.ranges(eh_frame.bytes, base, &mut counts.skipped);
    ranges.sort_unstable_by_key(|range| (range.start, range.end));

    let mut rows = Rows::new(ranges.len());
    let mut executor = Executor::<A>::default();
    let mut covered_to = 0;
    for (i, range) in ranges.iter().enumerate() {
        // Where two descriptions overlap, the one that begins later holds.
        let end = ranges.get(i.wrapping_add(1)).map_or(range.end, |next| range.end.min(next.start));
        let start = if range.signal && covered_to < range.start { range.start.wrapping_sub(1) } else { range.start };
        if start >= end {
            continue;
        }
        counts.functions = counts.functions.wrapping_add(1);
        let executed = fdes.get(range.offset).and_then(|(fde, cie)| {
            let initial = cie.initial.as_ref()?;
            executor.execute(&section, &bases, &fde, initial, |address, row| {
                let pc = u32::try_from(address.wrapping_sub(base)).unwrap_or(u32::MAX);
                // The description of a signal frame begins a byte early: its lookup address is a return address minus one, though
                // nothing called from there.
                let pc = if pc == range.start { start } else { pc };
                if pc < end {
                    rows.push(pc, A::rule(row, range.signal));
                }
            })
        });
        if executed.is_none() {
            counts.malformed = counts.malformed.wrapping_add(1);
            rows.forget_from(start);
            rows.push(start, Rule::UNSUPPORTED);
        }
        rows.push(end, Rule::NONE);
        covered_to = end;
    }
    rows.finish(counts)
}

/// What is known of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Where the function begins.
    pub function_start: u64,
    /// What [`build`]'s table says, except that there is always room for another rule.
    pub rule: Rule,
}

/// Describes one address without a table: finds the function by the binary-search table in `.eh_frame_hdr`, and executes that function's description alone.
///
/// `None` if nothing describes the address.
pub fn describe<A: Compile>(eh_frame_hdr: Section<'_>, eh_frame: Section<'_>, address: u64) -> Option<Described> {
    let mut section = EhFrame::new(eh_frame.bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(A::VENDOR);
    let bases = BaseAddresses::default().set_eh_frame_hdr(eh_frame_hdr.address).set_eh_frame(eh_frame.address);
    let header = EhFrameHdr::new(eh_frame_hdr.bytes, LittleEndian).parse(&bases, 8).ok()?;
    let table = header.table()?;
    let mut fdes = Fdes::<A>::new(&section, &bases);
    let mut at = |address: u64, signals_only: bool| {
        let pointer = table.lookup(address, &bases).ok()?;
        let (fde, cie) = fdes.get(table.pointer_to_offset(pointer).ok()?.0)?;
        let (function_start, signal) = (fde.initial_address(), fde.is_signal_trampoline());
        if !fde.contains(address) || (signals_only && !(signal && function_start == address)) {
            return None;
        }
        let mut rule = Rule::UNSUPPORTED;
        let executed = cie.initial.as_ref().and_then(|initial| {
            Executor::<A>::default().execute(&section, &bases, &fde, initial, |from, row| {
                if from <= address {
                    rule = A::rule(row, signal);
                }
            })
        });
        Some(Described { function_start, rule: if executed.is_some() { rule } else { Rule::UNSUPPORTED } })
    };
    // The description of a signal frame begins a byte early, as in a table.
    at(address, false).or_else(|| at(address.wrapping_add(1), true))
}

/// The address of `.eh_frame`, as its binary-search header `.eh_frame_hdr` (segment `PT_GNU_EH_FRAME`) names it.
pub fn find_eh_frame(eh_frame_hdr: Section<'_>) -> Option<u64> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(eh_frame_hdr.address);
    let header = EhFrameHdr::new(eh_frame_hdr.bytes, LittleEndian).parse(&bases, 8).ok()?;
    match header.eh_frame_ptr() {
        Pointer::Direct(address) => Some(address),
        Pointer::Indirect(_) => None,
    }
}

/// The rows so far, ascending.
struct Rows {
    pcs: Vec<u32>,
    rules: Vec<u16>,
    interner: Interner,
    overflowed: usize,
}

impl Rows {
    fn new(functions: usize) -> Self {
        // Measured: five to eleven rows a function.
        let expected = functions.saturating_mul(8);
        let (pcs, rules) = (Vec::with_capacity(expected), Vec::with_capacity(expected));
        Self { pcs, rules, interner: Interner::new(), overflowed: 0 }
    }

    /// From `pc`, not below the last one, `rule` holds.
    fn push(&mut self, pc: u32, rule: Rule) {
        let index = self.interner.intern(rule).unwrap_or_else(|| {
            self.overflowed = self.overflowed.wrapping_add(1);
            Interner::UNSUPPORTED
        });
        self.forget_from(pc);
        if self.rules.last() != Some(&index) {
            self.pcs.push(pc);
            self.rules.push(index);
        }
    }

    fn forget_from(&mut self, pc: u32) {
        while self.pcs.last().is_some_and(|last| *last >= pc) {
            self.pcs.pop();
            self.rules.pop();
        }
    }

    fn finish(mut self, mut counts: Counts) -> (OwnedTable, Counts) {
        self.pcs.shrink_to_fit();
        self.rules.shrink_to_fit();
        counts.unsupported_rows = self.rules.iter().filter(|index| **index == Interner::UNSUPPORTED).count();
        counts.overflowed_rows = self.overflowed;
        (OwnedTable { pcs: self.pcs, rules: self.rules, interned: self.interner.into_interned() }, counts)
    }
}
