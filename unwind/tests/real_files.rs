//! Tables of real files against a second path: gimli's own rows and its expression evaluator, on made-up registers and memory.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, EvaluationResult, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _, UnwindTableRow, X86_64,
};
use object::{Object as _, ObjectSection as _};
use profile_recorder_unwind::arch::Registers;
use profile_recorder_unwind::build::{Counts, OwnedTable, Section, build};
use profile_recorder_unwind::cfi::{Description, Header};
use profile_recorder_unwind::{FrameAddress, Memory, Rule, Truncated, Unwind as _};

type Reader<'a> = EndianSlice<'a, LittleEndian>;
type Row = UnwindTableRow<usize>;

const SP: u64 = 0x7000_0000;
const FP: u64 = 0x7010_0000;

/// Every address holds a word of its own, as high as a stack.
struct Hashed;

impl Memory for Hashed {
    fn read(&mut self, address: u64) -> Option<u64> {
        Some(word(address))
    }
}

fn word(address: u64) -> u64 {
    0x7100_0000 + (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
}

/// What the second path says about one row.
#[derive(Debug, PartialEq)]
enum Caller {
    Root,
    /// CFA, return address, `rbp`.
    Frame(u64, u64, Option<u64>),
    /// It takes a register that is not kept.
    OtherRegister,
}

struct Oracle<'a> {
    section: EhFrame<Reader<'a>>,
    encoding: gimli::Encoding,
    pc: u64,
}

impl Oracle<'_> {
    fn register(&self, register: Register) -> Option<u64> {
        match register {
            X86_64::RSP => Some(SP),
            X86_64::RBP => Some(FP),
            X86_64::RA => Some(self.pc),
            _ => None,
        }
    }

    fn evaluate(&self, expression: &UnwindExpression<usize>, cfa: Option<u64>) -> Option<u64> {
        let mut evaluation = expression.get(&self.section).unwrap().evaluation(self.encoding);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(gimli::Value::Generic(self.register(register)?)).unwrap()
                }
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(gimli::Value::Generic(word(address))).unwrap()
                }
                EvaluationResult::Complete => break,
                other => panic!("{other:?}"),
            };
        }
        match evaluation.result()[0].location {
            gimli::Location::Address { address } => Some(address),
            ref other => panic!("{other:?}"),
        }
    }

    /// The outer `None`: a register that is not kept. The inner: the value is lost.
    fn value(&self, rule: Option<RegisterRule<usize>>, cfa: u64, unchanged: u64) -> Option<Option<u64>> {
        match rule {
            None | Some(RegisterRule::SameValue) => Some(Some(unchanged)),
            Some(RegisterRule::Undefined) => Some(None),
            Some(RegisterRule::Offset(offset)) => Some(Some(word(cfa.wrapping_add_signed(offset)))),
            Some(RegisterRule::Expression(expression)) => Some(Some(word(self.evaluate(&expression, Some(cfa))?))),
            Some(RegisterRule::Register(_)) => None,
            other => panic!("{other:?}"),
        }
    }

    fn caller(&self, row: &Row) -> Caller {
        if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
            return Caller::Root;
        }
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.register(*register).map(|value| value.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => self.evaluate(expression, None),
        };
        let Some(cfa) = cfa else { return Caller::OtherRegister };
        let sp = self.value(row.register(X86_64::RSP), cfa, cfa);
        assert!(sp.is_none_or(|sp| sp == Some(cfa)), "the caller's stack pointer is the CFA");
        let ra = self.value(row.register(X86_64::RA), cfa, self.pc);
        match (ra, self.value(row.register(X86_64::RBP), cfa, FP)) {
            (Some(Some(ra)), Some(fp)) => Caller::Frame(cfa, ra, fp),
            _ => Caller::OtherRegister,
        }
    }
}

/// What the table says; `None` for a rule that is marked unsupported.
fn stepped(rule: Rule, pc: u64, signal: bool) -> Option<Caller> {
    match (Registers { pc, sp: SP, fp: Some(FP) }).step(rule, &mut Hashed) {
        Ok(Some(caller)) => {
            let registers = caller.registers;
            assert_eq!(matches!(caller.address, FrameAddress::Instruction(_)), signal);
            Some(Caller::Frame(registers.sp, registers.pc, registers.fp))
        }
        Ok(None) => Some(Caller::Root),
        Err(Truncated::UnsupportedRule) => None,
        Err(other) => panic!("{other:?} at {pc:#x}"),
    }
}

/// Rows compared and rows marked unsupported of every function in a file.
fn compare(path: &Path) -> (usize, usize) {
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let eh_frame = file.section_by_name(".eh_frame").unwrap();
    let (data, address) = (eh_frame.data().unwrap(), eh_frame.address());
    let (table, counts) = build::<Registers>(Section { bytes: data, address }, 0);
    let section = EhFrame::new(data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut context = UnwindContext::new();
    let (mut compared, mut unsupported) = (0, 0);
    let mut ranges = Vec::new();
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(fde) = entry else { continue };
        let fde = fde.parse(EhFrame::cie_from_offset).unwrap();
        ranges.push((fde.initial_address(), fde.end_address()));
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            for pc in [row.start_address(), row.end_address() - 1] {
                let rule = lookup(&table, pc).unwrap_or_else(|| panic!("no row at {pc:#x}"));
                let oracle = Oracle { section, encoding: fde.cie().encoding(), pc };
                let expected = oracle.caller(row);
                match stepped(rule, pc, fde.is_signal_trampoline()) {
                    Some(caller) => assert_eq!(caller, expected, "{pc:#x} in {}", path.display()),
                    None => assert_eq!(expected, Caller::OtherRegister, "{pc:#x} in {}", path.display()),
                }
                compared += 1;
                unsupported += usize::from(rule == Rule::UNSUPPORTED);
            }
        }
    }
    assert_eq!(
        counts,
        Counts { functions: ranges.len(), unsupported_rows: counts.unsupported_rows, ..Counts::default() }
    );
    gaps_are_empty(&table, ranges);
    (compared, unsupported)
}

fn gaps_are_empty(table: &OwnedTable, mut ranges: Vec<(u64, u64)>) {
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let [(_, end), (start, _)] = *pair else { unreachable!() };
        for pc in [end, start.wrapping_sub(2)] {
            if end <= pc && pc + 1 < start {
                assert_eq!(lookup(table, pc), None, "{pc:#x} lies between functions");
            }
        }
    }
}

fn lookup(table: &OwnedTable, pc: u64) -> Option<Rule> {
    table.as_table().lookup(u32::try_from(pc).unwrap())
}

/// The file of an object that this process has loaded.
fn loaded(name: &str) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains(name));
    path.unwrap_or_else(|| panic!("{name} is not loaded")).to_owned()
}

#[test]
fn every_row_of_the_c_library_equals_gimlis() {
    let (compared, unsupported) = compare(Path::new(&loaded("libc.so")));
    assert!(compared > 10_000 && unsupported < compared / 1000, "{unsupported} of {compared}");
}

#[test]
fn every_row_of_the_dynamic_linker_equals_gimlis() {
    let (compared, unsupported) = compare(Path::new(&loaded("ld-linux")));
    assert!(compared > 1000 && unsupported < compared / 50, "{unsupported} of {compared}");
}

#[test]
fn every_row_of_this_executable_equals_gimlis() {
    let (compared, unsupported) = compare(&std::env::current_exe().unwrap());
    assert!(compared > 10_000 && unsupported < compared / 1000, "{unsupported} of {compared}");
}

#[test]
fn every_row_of_other_libraries_equals_gimlis() {
    // Hand-written assembly (libcrypto) and much compiled code; where they are not installed there is nothing to compare.
    for directory in ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"] {
        for name in ["libcrypto.so.3", "libstdc++.so.6", "libpython3.11.so.1.0", "libpython3.13.so.1.0"] {
            let path = Path::new(directory).join(name);
            if path.exists() {
                let (compared, unsupported) = compare(&path);
                assert!(compared > 10_000 && unsupported < compared / 100, "{unsupported} of {compared} in {name}");
            }
        }
    }
}

#[test]
fn sampled_addresses_of_a_real_file_equal_gimlis_lookup() {
    let bytes = std::fs::read(loaded("libc.so")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let [eh_frame, header] = [".eh_frame", ".eh_frame_hdr"].map(|name| file.section_by_name(name).unwrap());
    let section = EhFrame::new(eh_frame.data().unwrap(), LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(eh_frame.address()).set_eh_frame_hdr(header.address());
    let parsed = gimli::EhFrameHdr::new(header.data().unwrap(), LittleEndian).parse(&bases, 8).unwrap();
    let search = parsed.table().unwrap();
    let (table, _) = build::<Registers>(Section { bytes: eh_frame.data().unwrap(), address: eh_frame.address() }, 0);
    let text = file.section_by_name(".text").unwrap();
    let mut context = UnwindContext::new();
    let mut found = 0;
    for pc in (text.address()..text.address() + text.size()).step_by(97) {
        let fde = search.fde_for_address(&section, &bases, pc, |s, b, o: EhFrameOffset| s.cie_from_offset(b, o));
        let Ok(fde) = fde else {
            assert_eq!(lookup(&table, pc), None);
            continue;
        };
        let row = fde.unwind_info_for_address(&section, &bases, &mut context, pc).unwrap();
        let oracle = Oracle { section, encoding: fde.cie().encoding(), pc };
        match stepped(lookup(&table, pc).unwrap(), pc, fde.is_signal_trampoline()) {
            Some(caller) => assert_eq!(caller, oracle.caller(row), "{pc:#x}"),
            None => assert_eq!(oracle.caller(row), Caller::OtherRegister, "{pc:#x}"),
        }
        found += 1;
    }
    assert!(found > 1000, "{found}");
}

#[test]
fn the_rule_at_an_address_is_that_of_the_table() {
    for path in [loaded("libc.so"), loaded("ld-linux"), std::env::current_exe().unwrap().to_str().unwrap().to_owned()] {
        let bytes = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let [eh_frame, header] = [".eh_frame", ".eh_frame_hdr"].map(|name| {
            let section = file.section_by_name(name).unwrap();
            Section { bytes: section.data().unwrap(), address: section.address() }
        });
        let (table, _) = build::<Registers>(eh_frame, 0);
        let mut sections = [header, eh_frame];
        let header = Header::read(&mut sections, header.address, header.bytes.len() as u64).unwrap();
        let (mut rules, mut gaps) = (0, 0);
        for pc in table.pcs.iter().flat_map(|pc| [pc.wrapping_sub(1), *pc, pc + 1]).step_by(7) {
            let expected = table.as_table().lookup(pc).filter(|rule| !rule.is_none());
            match header.describe::<Registers>(&mut sections, u64::from(pc)).unwrap() {
                Description::Function { rule, .. } => assert_eq!(Some(rule), expected, "{pc:#x} in {path}"),
                Description::Gap { from, to } => {
                    assert!(expected.is_none() && (from..to).contains(&u64::from(pc)), "{pc:#x} in {path}");
                }
            }
            *(if expected.is_some() { &mut rules } else { &mut gaps }) += 1;
        }
        assert!(rules > 100 && gaps > 0, "{rules} rules and {gaps} gaps in {path}");
    }
}
