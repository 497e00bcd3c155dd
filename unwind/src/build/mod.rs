//! Tables from `.eh_frame` and `.debug_frame`.
//!
//! Called from: ordinary threads and allocation hooks. Allocates, hence never a handler.
//! Every function's instructions are executed once; the rows of all of them become one sorted [`Table`].
//! When input is malformed: what it describes is skipped or marked, and counted; the rest of the table is still built.

mod functions;
mod intern;

use alloc::vec::Vec;

pub use crate::cfi::Section;
use crate::cfi::{Compile, Header, SectionKind, Source};
use crate::{Rule, Table};
use functions::{Function, Functions};
use intern::Interner;

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
    /// FDEs whose range is known but whose instructions are malformed: from there on, the range is marked unsupported.
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
    build_with_debug_frame::<A>(Some((eh_frame, base)), &[])
}

/// Builds the table of one module from both sections: `debug_frame` (the whole section of the file, with addresses of the file) holds where `.eh_frame` is silent.
pub fn build_with_debug_frame<A: Compile>(
    eh_frame: Option<(Section<'_>, u64)>,
    debug_frame: &[u8],
) -> (OwnedTable, Counts) {
    let mut counts = Counts::default();
    let (eh_frame, base) = eh_frame.unwrap_or((Section { bytes: &[], address: 0 }, 0));
    let mut loaded = Functions::<A, _>::new(SectionKind::EhFrame, eh_frame, eh_frame.address, base);
    let mut functions = loaded.list(eh_frame.bytes.len() as u64, &mut counts.skipped);
    let debug_frame = Section { bytes: debug_frame, address: 0 };
    let mut in_file = Functions::<A, _>::new(SectionKind::DebugFrame, debug_frame, 0, 0);
    let mut more = in_file.list(debug_frame.bytes.len() as u64, &mut counts.skipped);
    // Linkers leave the descriptions of functions that they drop, at address zero.
    more.retain(|function| function.start != 0 && !contains(&functions, function.start));
    if !more.is_empty() {
        functions.append(&mut more);
        functions.sort_unstable_by_key(Function::key);
    }
    let rows = Rows::of(&functions, &mut counts, |function, emit| match function.kind {
        SectionKind::EhFrame => loaded.execute(function, emit),
        SectionKind::DebugFrame => in_file.execute(function, emit),
    });
    rows.finish(counts)
}

/// Builds the rows of the addresses from `from` to `to` of one module, whose `.eh_frame` `source` reads. `base` is the address that the table's are counted from.
pub fn build_piece<A: Compile>(
    header: &Header,
    mut source: impl Source,
    base: u64,
    (from, to): (u64, u64),
) -> (OwnedTable, Counts) {
    let mut counts = Counts::default();
    let fdes = header.entries(&mut source, from, to);
    let mut section = Functions::<A, _>::new(SectionKind::EhFrame, source, header.eh_frame, base);
    let functions = section.at(&fdes, &mut counts.skipped);
    let rows = Rows::of(&functions, &mut counts, |function, emit| section.execute(function, emit));
    rows.finish(counts)
}

/// Whether one of the functions, sorted, contains an address.
fn contains(functions: &[Function], address: u32) -> bool {
    let after = functions.partition_point(|function| function.start <= address);
    let before = after.checked_sub(1).and_then(|i| functions.get(i));
    before.is_some_and(|function| address < function.end)
}

/// The address of `.eh_frame`, as its binary-search header `.eh_frame_hdr` (segment `PT_GNU_EH_FRAME`) names it.
pub fn find_eh_frame(eh_frame_hdr: Section<'_>) -> Option<u64> {
    let Section { bytes, address } = eh_frame_hdr;
    Some(Header::read(&mut { eh_frame_hdr }, address, bytes.len() as u64)?.eh_frame)
}

/// The rows so far, ascending.
struct Rows {
    pcs: Vec<u32>,
    rules: Vec<u16>,
    interner: Interner,
    overflowed: usize,
}

impl Rows {
    /// The rows of functions, sorted, each executed by `execute`.
    fn of(
        functions: &[Function],
        counts: &mut Counts,
        mut execute: impl FnMut(&Function, &mut dyn FnMut(u32, Rule)) -> Result<(), u32>,
    ) -> Self {
        let mut rows = Self::new(functions.len());
        let mut covered_to = 0;
        for (i, function) in functions.iter().enumerate() {
            // Where two descriptions overlap, the one that begins later holds.
            let end = functions.get(i.wrapping_add(1)).map_or(function.end, |next| function.end.min(next.start));
            // The description of a signal frame begins a byte early: its lookup address is a return address minus one, though
            // nothing called from there.
            let early = function.signal && covered_to < function.start;
            let start = if early { function.start.wrapping_sub(1) } else { function.start };
            if start >= end {
                continue;
            }
            counts.functions = counts.functions.wrapping_add(1);
            let executed = execute(function, &mut |pc, rule| {
                let pc = if pc == function.start { start } else { pc };
                if pc < end {
                    rows.push(pc, rule);
                }
            });
            if let Err(from) = executed {
                counts.malformed = counts.malformed.wrapping_add(1);
                let from = if from == function.start { start } else { from };
                if from < end {
                    rows.push(from, Rule::UNSUPPORTED);
                }
            }
            rows.push(end, Rule::NONE);
            covered_to = end;
        }
        rows
    }

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
