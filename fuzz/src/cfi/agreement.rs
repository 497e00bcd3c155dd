//! All ways to the rule at an address agree, with each other and with the second reader.

use super::machine::Machine;
use super::second::{Function, Listed};
use super::{Place, row, sound};
use gimli::UnwindContext;
use unwind::Rule;
use unwind::build::{Counts, OwnedTable, Section, build_piece};
use unwind::cfi::{Description, Header};

/// States that compilers remember at once at most, and what there is room for where all registers are kept.
const STATES: usize = 3;
const STATES_OF_ALL: usize = 1;

/// The address space of one module.
struct Module<'a> {
    place: Place,
    table: &'a OwnedTable,
    header: Header,
    sections: [Section<'a>; 2],
}

impl Module<'_> {
    fn lookup(&self, address: u64) -> Option<Rule> {
        self.table.as_table().lookup(u32::try_from(address.checked_sub(self.place.base)?).ok()?)
    }
}

pub(super) fn check<A: Machine, const N: usize>(
    place: Place,
    eh_frame: Section<'_>,
    table: &OwnedTable,
    counts: &Counts,
) {
    let Some(listed) = Listed::new::<A>(place, eh_frame) else { return };
    assert_eq!(counts.skipped, listed.others, "what gimli accepts, we accept");
    let Some((bytes, address)) = listed.header(eh_frame) else { return };
    let sections = [Section { bytes: &bytes, address }, eh_frame];
    let Some(header) = Header::read(&mut { sections }, address, bytes.len() as u64) else { panic!("our own header") };
    assert!(header.is_searchable() && header.eh_frame == eh_frame.address);
    let module = Module { place, table, header, sections };
    module.describes::<A>(&listed);
    module.is_made_of_pieces::<A>(&listed);
    let mut context = UnwindContext::new();
    for (i, function) in listed.functions.iter().enumerate() {
        // Where two overlap, the one that begins later holds.
        let end = listed.functions.get(i + 1).map_or(function.end, |next| function.end.min(next.start));
        if function.start < end {
            module.says_what_rows_say::<A, N>(&listed, function, end, &mut context);
        }
    }
}

impl Module<'_> {
    /// One address at a time is the table.
    fn describes<A: Machine>(&self, listed: &Listed<'_>) {
        let base = self.place.base;
        let rows = self.table.pcs.iter().map(|pc| base.wrapping_add(u64::from(*pc)));
        let ends = listed.functions.iter().flat_map(|function| [function.start, function.end]);
        for address in rows.chain(ends).flat_map(|at| [at.wrapping_sub(2), at.wrapping_sub(1), at, at.wrapping_add(1)])
        {
            if address.wrapping_sub(base) > u64::from(u32::MAX) {
                continue;
            }
            let expected = self.lookup(address);
            let description = self.header.describe::<A>(&mut { self.sections }, address);
            let around = address & !0xff;
            let count = |at| self.header.begin_by(&mut { self.sections }, at);
            let between = (count(around).unwrap_or(0), around.checked_add(0x100).and_then(count).unwrap_or(u64::MAX));
            assert_eq!(self.header.describe_within::<A>(&mut { self.sections }, address, between), description);
            match description {
                Some(Description::Function { start, rule }) => {
                    assert_eq!(Some(rule), expected, "{address:#x}");
                    assert!(listed.functions.iter().any(|function| function.start == start));
                }
                Some(Description::Gap { from, to }) => {
                    assert_eq!(expected, None, "{address:#x}");
                    assert!((from..to).contains(&address), "{address:#x} in {from:#x}..{to:#x}");
                }
                None => panic!("the header can be searched"),
            }
        }
    }

    /// A piece of the table says the same within its range.
    fn is_made_of_pieces<A: Machine>(&self, listed: &Listed<'_>) {
        let Some((first, last)) = listed.functions.first().zip(listed.functions.last()) else { return };
        let middle = first.start.midpoint(last.start);
        for (from, to) in [(first.start, middle), (middle, last.end), (last.start, last.end)] {
            let (piece, counts) = build_piece::<A>(&self.header, self.sections, self.place.base, (from, to));
            sound(&piece, &counts);
            let rows = self.table.pcs.iter().map(|pc| self.place.base.wrapping_add(u64::from(*pc)));
            for address in rows.chain([from, to]).flat_map(|at| [at.wrapping_sub(1), at]) {
                if (from..to).contains(&address) {
                    let pc = u32::try_from(address - self.place.base).expect("in the table");
                    assert_eq!(piece.as_table().lookup(pc), self.lookup(address), "{address:#x} of {from:#x}..{to:#x}");
                }
            }
        }
    }

    /// The rows of one function, up to `end`, say what gimli's do, if gimli can execute all of its description.
    fn says_what_rows_say<'a, A: Machine, const N: usize>(
        &self,
        listed: &Listed<'a>,
        function: &Function<'a>,
        end: u64,
        context: &mut UnwindContext<usize>,
    ) {
        let fde = &function.fde;
        let Ok(mut table) = fde.rows(&listed.section, &listed.bases, context) else { return };
        let mut rows = Vec::new();
        loop {
            match table.next_row() {
                Ok(Some(row)) => rows.push(row.clone()),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let remembered = row::ordinary::<A>(listed, fde);
        for row in rows {
            let (from, to) = (row.start_address().max(function.start), row.end_address().min(end));
            if from >= to {
                continue;
            }
            for pc in [from, to - 1] {
                let oracle = row::Oracle::new::<A>(listed, fde, &row, pc);
                let rule = self.lookup(pc).unwrap_or_else(|| panic!("no row at {pc:#x}"));
                oracle.compare_rule::<A>(rule, remembered.is_some_and(|most| most <= STATES));
                let all = self.header.describe_all::<A, N>(&mut { self.sections }, pc);
                assert!(
                    all.is_some() || remembered.is_none_or(|most| most > STATES_OF_ALL),
                    "nothing is said about {pc:#x}"
                );
                if let Some((all, signal)) = all {
                    assert_eq!(signal, fde.is_signal_trampoline());
                    oracle.compare_all::<A, N>(&all, signal);
                }
            }
        }
    }
}
