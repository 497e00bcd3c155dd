//! Tables of files against a second path: gimli's own rows and its expression evaluator, on made-up registers and memory.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::path::Path;

use gimli::{
    AArch64, BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, EvaluationResult, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _, UnwindTableRow, Vendor, X86_64,
};
use object::{Object as _, ObjectSection as _};
use profile_recorder_unwind::build::{Counts, OwnedTable, Section, build};
use profile_recorder_unwind::cfi::{Compile, Description, Header};
use profile_recorder_unwind::{FrameAddress, Memory, Rule, Truncated, aarch64, x86_64};

type Reader<'a> = EndianSlice<'a, LittleEndian>;
type Row = UnwindTableRow<usize>;

/// The made-up registers.
const SP: u64 = 0x7000_0000;
const FP: u64 = 0x7010_0000;
const LR: u64 = 0x40_1234;

/// What the second path needs to know of an architecture.
pub(crate) trait Machine: Compile {
    const STACK_POINTER: Register;
    const FRAME_POINTER: Register;
    const RETURN_ADDRESS: Register;
    const VENDOR: Vendor;

    /// A leaf with the made-up registers.
    fn made_up(pc: u64) -> Self;

    /// What the return address column stands for in that leaf, if it was not saved.
    fn return_address(pc: u64) -> u64;

    fn frame_pointer(&self) -> Option<u64>;
}

impl Machine for x86_64::Registers {
    const STACK_POINTER: Register = X86_64::RSP;
    const FRAME_POINTER: Register = X86_64::RBP;
    const RETURN_ADDRESS: Register = X86_64::RA;
    const VENDOR: Vendor = Vendor::Default;

    fn made_up(pc: u64) -> Self {
        Self { pc, sp: SP, fp: Some(FP) }
    }

    fn return_address(pc: u64) -> u64 {
        pc
    }

    fn frame_pointer(&self) -> Option<u64> {
        self.fp
    }
}

impl Machine for aarch64::Registers {
    const STACK_POINTER: Register = AArch64::SP;
    const FRAME_POINTER: Register = AArch64::X29;
    const RETURN_ADDRESS: Register = AArch64::X30;
    const VENDOR: Vendor = Vendor::AArch64;

    fn made_up(pc: u64) -> Self {
        Self { pc, sp: SP, fp: Some(FP), lr: Some(LR) }
    }

    fn return_address(_pc: u64) -> u64 {
        LR
    }

    fn frame_pointer(&self) -> Option<u64> {
        self.fp
    }
}

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
    /// CFA, return address, frame pointer.
    Frame(u64, u64, Option<u64>),
    /// It takes this, which is not kept.
    Beyond(String),
    /// glibc's `_dl_runtime_resolve` on aarch64, whose description is known to be wrong: the return address lies above the CFA.
    Misdescribed,
}

struct Oracle<'a> {
    section: EhFrame<Reader<'a>>,
    encoding: gimli::Encoding,
    pc: u64,
}

impl Oracle<'_> {
    fn register<A: Machine>(&self, register: Register) -> Result<u64, String> {
        match register {
            r if r == A::STACK_POINTER => Ok(SP),
            r if r == A::FRAME_POINTER => Ok(FP),
            r if r == A::RETURN_ADDRESS => Ok(A::return_address(self.pc)),
            Register(number) => Err(format!("register {number}")),
        }
    }

    fn evaluate<A: Machine>(&self, expression: &UnwindExpression<usize>, cfa: Option<u64>) -> Result<u64, String> {
        let mut evaluation = expression.get(&self.section).unwrap().evaluation(self.encoding);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(gimli::Value::Generic(self.register::<A>(register)?)).unwrap()
                }
                EvaluationResult::RequiresMemory { address, .. } => {
                    evaluation.resume_with_memory(gimli::Value::Generic(word(address))).unwrap()
                }
                EvaluationResult::Complete => break,
                other => panic!("{other:?}"),
            };
        }
        match evaluation.result()[0].location {
            gimli::Location::Address { address } => Ok(address),
            ref other => panic!("{other:?}"),
        }
    }

    /// `None`: the value is lost.
    fn value<A: Machine>(
        &self,
        rule: Option<RegisterRule<usize>>,
        cfa: u64,
        unchanged: u64,
    ) -> Result<Option<u64>, String> {
        match rule {
            None | Some(RegisterRule::SameValue) => Ok(Some(unchanged)),
            Some(RegisterRule::Undefined) => Ok(None),
            Some(RegisterRule::Offset(offset)) => Ok(Some(word(cfa.wrapping_add_signed(offset)))),
            Some(RegisterRule::Expression(expression)) => Ok(Some(word(self.evaluate::<A>(&expression, Some(cfa))?))),
            Some(RegisterRule::Register(Register(number))) => Err(format!("register {number}")),
            other => panic!("{other:?}"),
        }
    }

    fn caller<A: Machine>(&self, return_address: Register, row: &Row) -> Caller {
        match (return_address, row.register(return_address)) {
            (register, _) if register != A::RETURN_ADDRESS => {
                Caller::Beyond(format!("return address in register {}", register.0))
            }
            (_, Some(RegisterRule::Undefined)) => Caller::Root,
            (AArch64::X30, Some(RegisterRule::Offset(8))) => Caller::Misdescribed,
            _ => self.frame::<A>(row).unwrap_or_else(Caller::Beyond),
        }
    }

    fn frame<A: Machine>(&self, row: &Row) -> Result<Caller, String> {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.register::<A>(*register).map(|value| value.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => self.evaluate::<A>(expression, None),
        };
        let cfa = cfa.map_err(|what| format!("CFA from {what}"))?;
        let value = |register, unchanged, name: &str| {
            self.value::<A>(row.register(register), cfa, unchanged).map_err(|what| format!("{name} in {what}"))
        };
        let sp = value(A::STACK_POINTER, cfa, "stack pointer");
        assert!(sp.is_err() || sp == Ok(Some(cfa)), "the caller's stack pointer is the CFA");
        let return_address = value(A::RETURN_ADDRESS, A::return_address(self.pc), "return address")?;
        let fp = value(A::FRAME_POINTER, FP, "frame pointer")?;
        Ok(Caller::Frame(cfa, return_address.expect("there is a caller"), fp))
    }
}

/// What the table says; `None` for a rule that is marked unsupported.
fn stepped<A: Machine>(rule: Rule, pc: u64, signal: bool) -> Option<Caller> {
    match A::made_up(pc).step(rule, &mut Hashed) {
        Ok(Some(caller)) => {
            let registers = caller.registers;
            assert_eq!(matches!(caller.address, FrameAddress::Instruction(_)), signal);
            Some(Caller::Frame(registers.sp(), registers.pc(), registers.frame_pointer()))
        }
        Ok(None) => Some(Caller::Root),
        Err(Truncated::UnsupportedRule) => None,
        Err(other) => panic!("{other:?} at {pc:#x}"),
    }
}

/// How the rows of a file compared. All were equal but those that are marked unsupported.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) rows: usize,
    /// By what they take.
    pub(crate) unsupported: BTreeMap<String, usize>,
    /// Not compared, since the file is known to be wrong there.
    pub(crate) misdescribed: usize,
}

impl Compared {
    pub(crate) fn unsupported_rows(&self) -> usize {
        self.unsupported.values().sum()
    }
}

/// A file with its frame information.
pub(crate) struct Object {
    path: String,
    eh_frame: (Vec<u8>, u64),
    /// What gimli reads.
    without_keys: Vec<u8>,
    header: (Vec<u8>, u64),
    text: (u64, u64),
}

impl Object {
    pub(crate) fn read(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = object::File::parse(&*bytes).unwrap();
        let section = |name| {
            let section = file.section_by_name(name).unwrap();
            (section.data().unwrap().to_vec(), section.address())
        };
        let text = file.section_by_name(".text").unwrap();
        let eh_frame = section(".eh_frame");
        Self {
            path: path.display().to_string(),
            without_keys: without_keys(eh_frame.0.clone()),
            eh_frame,
            header: section(".eh_frame_hdr"),
            text: (text.address(), text.address() + text.size()),
        }
    }

    fn table<A: Machine>(&self) -> (OwnedTable, Counts) {
        build::<A>(Section { bytes: &self.eh_frame.0, address: self.eh_frame.1 }, 0)
    }

    fn gimli<A: Machine>(&self) -> (EhFrame<Reader<'_>>, BaseAddresses) {
        let mut section = EhFrame::new(&self.without_keys, LittleEndian);
        section.set_vendor(A::VENDOR);
        (section, BaseAddresses::default().set_eh_frame(self.eh_frame.1).set_eh_frame_hdr(self.header.1))
    }

    /// Compares every row of every function with gimli's.
    pub(crate) fn compare_rows<A: Machine>(&self) -> Compared {
        let (table, counts) = self.table::<A>();
        let (section, bases) = self.gimli::<A>();
        let mut context = UnwindContext::new();
        let mut compared = Compared::default();
        let (mut ranges, mut other_column) = (Vec::new(), 0);
        let mut entries = section.entries(&bases);
        while let Some(entry) = entries.next().unwrap() {
            let gimli::CieOrFde::Fde(fde) = entry else { continue };
            let fde = fde.parse(EhFrame::cie_from_offset).unwrap();
            ranges.push((fde.initial_address(), fde.end_address()));
            let return_address = fde.cie().return_address_register();
            other_column += usize::from(return_address != A::RETURN_ADDRESS);
            let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
            while let Some(row) = rows.next_row().unwrap() {
                compared.rows += 1;
                let expected =
                    |pc| Oracle { section, encoding: fde.cie().encoding(), pc }.caller::<A>(return_address, row);
                for pc in [row.start_address(), row.end_address() - 1] {
                    let rule = lookup(&table, pc).unwrap_or_else(|| panic!("no row at {pc:#x} in {}", self.path));
                    self.assert_equal::<A>(rule, pc, fde.is_signal_trampoline(), &expected(pc));
                }
                match expected(row.start_address()) {
                    Caller::Beyond(what) => *compared.unsupported.entry(what).or_default() += 1,
                    Caller::Misdescribed => compared.misdescribed += 1,
                    Caller::Root | Caller::Frame(..) => {}
                }
            }
        }
        let expected = Counts { functions: ranges.len(), malformed: other_column, ..Counts::default() };
        assert_eq!(Counts { unsupported_rows: 0, ..counts }, expected, "{}", self.path);
        gaps_are_empty(&table, ranges);
        compared
    }

    fn assert_equal<A: Machine>(&self, rule: Rule, pc: u64, signal: bool, expected: &Caller) {
        if *expected == Caller::Misdescribed {
            return;
        }
        match stepped::<A>(rule, pc, signal) {
            Some(caller) => assert_eq!(caller, *expected, "{pc:#x} in {}", self.path),
            None => assert!(matches!(expected, Caller::Beyond(_)), "{pc:#x} in {}: {expected:x?}", self.path),
        }
    }

    /// Compares some addresses with what gimli finds there by binary search; gives their number.
    pub(crate) fn compare_addresses<A: Machine>(&self) -> usize {
        let (section, bases) = self.gimli::<A>();
        let parsed = gimli::EhFrameHdr::new(&self.header.0, LittleEndian).parse(&bases, 8).unwrap();
        let search = parsed.table().unwrap();
        let (table, _) = self.table::<A>();
        let mut context = UnwindContext::new();
        let mut found = 0;
        for pc in (self.text.0..self.text.1).step_by(97) {
            let fde = search.fde_for_address(&section, &bases, pc, |s, b, o: EhFrameOffset| s.cie_from_offset(b, o));
            let Ok(fde) = fde else {
                assert_eq!(lookup(&table, pc), None, "{pc:#x} in {}", self.path);
                continue;
            };
            let row = fde.unwind_info_for_address(&section, &bases, &mut context, pc).unwrap();
            let oracle = Oracle { section, encoding: fde.cie().encoding(), pc };
            let expected = oracle.caller::<A>(fde.cie().return_address_register(), row);
            self.assert_equal::<A>(lookup(&table, pc).unwrap(), pc, fde.is_signal_trampoline(), &expected);
            found += 1;
        }
        found
    }

    /// Compares what the table says about some addresses with what is found without one; gives the number of those with a rule, and of those in gaps.
    pub(crate) fn compare_descriptions<A: Machine>(&self) -> (usize, usize) {
        let (table, _) = self.table::<A>();
        let mut sections = [&self.header, &self.eh_frame].map(|(bytes, address)| Section { bytes, address: *address });
        let header = Header::read(&mut sections, self.header.1, self.header.0.len() as u64).unwrap();
        let (mut rules, mut gaps) = (0, 0);
        for pc in table.pcs.iter().flat_map(|pc| [pc.wrapping_sub(1), *pc, pc + 1]).step_by(7) {
            let expected = table.as_table().lookup(pc).filter(|rule| !rule.is_none());
            let description = header.describe::<A>(&mut sections, u64::from(pc)).unwrap();
            // And the same if it is looked for among the functions around it alone.
            let around = u64::from(pc) & !0xfff;
            let between = [around, around + 0x1000].map(|at| header.begin_by(&mut sections, at).unwrap());
            let within = header.describe_within::<A>(&mut sections, u64::from(pc), between.into());
            assert_eq!(within, Some(description), "{pc:#x} in {}", self.path);
            match description {
                Description::Function { rule, .. } => assert_eq!(Some(rule), expected, "{pc:#x} in {}", self.path),
                Description::Gap { from, to } => {
                    assert!(expected.is_none() && (from..to).contains(&u64::from(pc)), "{pc:#x} in {}", self.path);
                }
            }
            *(if expected.is_some() { &mut rules } else { &mut gaps }) += 1;
        }
        (rules, gaps)
    }
}

/// The section without the letter that says by which key return addresses are signed, which gimli does not know.
fn without_keys(mut section: Vec<u8>) -> Vec<u8> {
    const LETTERS: usize = 9;
    let mut at = 0;
    while let Some(length) = section.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().unwrap()) as usize)
        && length != 0
    {
        let entry = &mut section[at..at + 4 + length];
        let is_cie = entry[4..8] == [0; 4];
        let letters = entry[LETTERS..].iter().take_while(|letter| **letter != 0);
        if is_cie && let Some(key) = letters.clone().position(|letter| *letter == b'B') {
            // What follows moves up; a byte that says nothing remains at the end.
            entry[LETTERS + key..].rotate_left(1);
            *entry.last_mut().unwrap() = 0;
        }
        at += 4 + length;
    }
    section
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
