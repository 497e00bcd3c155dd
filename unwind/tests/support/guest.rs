//! Walks the stack of a stopped aarch64 program.

use std::cell::RefCell;
use std::path::Path;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
use profile_recorder_unwind::aarch64::{Registers, rule_from_code};
use profile_recorder_unwind::build::{OwnedTable, Section, build};
use profile_recorder_unwind::{FrameAddress, Memory, Rule, Rules, Step, Truncated, Walker};

use super::gdb::{Cpu, Guest};

/// A loaded object of the program.
pub(crate) struct Module {
    bias: u64,
    start: u64,
    end: u64,
    table: OwnedTable,
    /// Address, name; ascending.
    symbols: Vec<(u64, String)>,
    /// What is executable: address of the first byte, and the bytes.
    code: Vec<(u64, Vec<u8>)>,
}

impl Module {
    pub(crate) fn read(path: &Path, bias: u64) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = object::File::parse(&*bytes).unwrap();
        let eh_frame = file.section_by_name(".eh_frame").unwrap();
        let (table, _) =
            build::<Registers>(Section { bytes: eh_frame.data().unwrap(), address: eh_frame.address() }, 0);
        let mut symbols: Vec<_> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
            .map(|symbol| (symbol.address(), symbol.name().unwrap().to_owned()))
            .collect();
        symbols.sort_unstable();
        let executable = |segment: &object::Segment<'_, '_>| matches!(segment.flags(), object::SegmentFlags::Elf { p_flags, .. } if p_flags.contains(object::elf::PF_X));
        let code = file.segments().filter(executable).map(|s| (s.address(), s.data().unwrap().to_vec())).collect();
        let start = bias + file.segments().map(|segment| segment.address()).min().unwrap();
        let end = bias + file.segments().map(|segment| segment.address() + segment.size()).max().unwrap();
        Self { bias, start, end, table, symbols, code }
    }

    fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// All loaded objects.
pub(crate) struct Modules(pub(crate) Vec<Module>);

impl Modules {
    fn of(&self, address: u64) -> Option<&Module> {
        self.0.iter().find(|module| module.contains(address))
    }

    /// The instruction at an address, if an object holds it.
    pub(crate) fn instruction(&self, address: u64) -> Option<u32> {
        let module = self.of(address)?;
        let address = address - module.bias;
        module.code.iter().find_map(|(start, bytes)| {
            let bytes = bytes.get(usize::try_from(address.checked_sub(*start)?).ok()?..)?;
            Some(u32::from_le_bytes(*bytes.first_chunk()?))
        })
    }

    /// The function that the frame is in; in files without a symbol table, the one with a name that begins before.
    pub(crate) fn function(&self, frame: FrameAddress) -> &str {
        let pc = frame.for_lookup();
        let module = self.of(pc);
        let symbol = module.and_then(|module| {
            let after = module.symbols.partition_point(|(start, _)| *start <= pc - module.bias);
            module.symbols.get(after.checked_sub(1)?)
        });
        symbol.map_or("?", |(_, name)| name)
    }
}

/// Walks the stack of the stopped program.
pub(crate) fn walk(guest: &mut Guest, modules: &Modules, cpu: &Cpu) -> (Vec<FrameAddress>, Result<(), Truncated>) {
    let guest = RefCell::new(guest);
    let registers = Registers { pc: cpu.pc, sp: cpu.sp, fp: Some(cpu.x[29]), lr: Some(cpu.x[30]) };
    let lookup = Lookup { modules, guest: &guest };
    let mut walker = Walker::at_instruction(registers, lookup, Stack { guest: &guest });
    let mut frames = Vec::new();
    loop {
        match walker.advance() {
            Step::Frame(..) if frames.len() > 100 => return (frames, Err(Truncated::NoProgress)),
            Step::Frame(frame, ()) => frames.push(frame),
            Step::End(end) => return (frames, end),
        }
    }
}

struct Stack<'a, 'g> {
    guest: &'a RefCell<&'g mut Guest>,
}

impl Memory for Stack<'_, '_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        self.guest.borrow_mut().word(address)
    }
}

/// Rules by the objects' tables, else by the code.
struct Lookup<'a, 'g> {
    modules: &'a Modules,
    guest: &'a RefCell<&'g mut Guest>,
}

impl Rules for Lookup<'_, '_> {
    type Tag = ();

    fn lookup(&mut self, address: FrameAddress) -> (Rule, ()) {
        let pc = address.for_lookup();
        let module = self.modules.of(pc);
        let rule = module.and_then(|module| module.table.as_table().lookup(u32::try_from(pc - module.bias).ok()?));
        (rule.or_else(|| rule_from_code(address, self)).unwrap_or(Rule::NO_TABLE), ())
    }
}

/// Instructions.
impl Memory for Lookup<'_, '_> {
    fn read(&mut self, address: u64) -> Option<u64> {
        let [low, high] = [address, address.wrapping_add(4)].map(|address| self.modules.instruction(address));
        match (low, high) {
            (Some(low), Some(high)) => Some(u64::from(low) | u64::from(high) << 32),
            _ => self.guest.borrow_mut().word(address),
        }
    }
}
