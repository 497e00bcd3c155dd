//! Where a pointer comes from that code calls: traced backwards through the registers and stack slots of one function.

use super::code::{Body, flow_of};
use super::library::Library;
use iced_x86::{ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::collections::{BTreeSet, HashSet};

/// What a pointer may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// This address of the library.
    Address(u64),
    /// The address of this dynamic symbol.
    Import(String),
    /// The content of this static variable.
    Static(u64),
    /// Something that lies behind the pointer in this static variable.
    Behind(u64),
    /// What this dynamic symbol returned.
    Result(String),
    /// Not known: an argument, a field of something.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Location {
    Register(Register),
    Stack(Register, u64),
}

/// Follows no chain of loads longer than this.
const MOST_LOADS: usize = 4;

/// Registers that a call does not keep.
const SCRATCH: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// What may be called by the indirect call or jump at an index.
pub(super) fn of_call(library: &Library, body: &Body, at: usize) -> BTreeSet<Origin> {
    let instruction = &body.instructions[at];
    match instruction.op0_kind() {
        OpKind::Register => of_location(library, body, at, Location::Register(instruction.op0_register()), 0),
        OpKind::Memory => of_memory(library, body, at, 0),
        _ => BTreeSet::from([Origin::Unknown]),
    }
}

/// What may be in a register before the instruction at an index.
pub(super) fn of_register(library: &Library, body: &Body, at: usize, register: Register) -> BTreeSet<Origin> {
    of_location(library, body, at, Location::Register(register.full_register()), 0)
}

/// What the memory operand of the instruction at an index may hold.
fn of_memory(library: &Library, body: &Body, at: usize, loads: usize) -> BTreeSet<Origin> {
    let instruction = &body.instructions[at];
    if instruction.is_ip_rel_memory_operand() {
        return BTreeSet::from([slot(library, instruction.ip_rel_memory_address())]);
    }
    let base = instruction.memory_base();
    let displacement = instruction.memory_displacement64();
    if base == Register::None || instruction.memory_index() != Register::None || loads == MOST_LOADS {
        return BTreeSet::from([Origin::Unknown]);
    }
    if matches!(base, Register::RSP) {
        return of_location(library, body, at, Location::Stack(base, displacement), loads + 1);
    }
    let bases = of_location(library, body, at, Location::Register(base), loads + 1);
    let content = bases.into_iter().map(|base| match base {
        Origin::Address(address) => slot(library, address.wrapping_add(displacement)),
        Origin::Static(pointer) | Origin::Behind(pointer) => Origin::Behind(pointer),
        Origin::Import(_) | Origin::Result(_) | Origin::Unknown => Origin::Unknown,
    });
    content.collect()
}

fn slot(library: &Library, address: u64) -> Origin {
    if !address.is_multiple_of(8) {
        // No pointer lies there: a way through the code that values do not take.
        return Origin::Unknown;
    }
    match (library.import(address), library.relative(address)) {
        (Some(name), _) => Origin::Import(name.to_owned()),
        (None, Some(to)) => Origin::Address(to),
        (None, None) => Origin::Static(address),
    }
}

fn of_location(library: &Library, body: &Body, at: usize, location: Location, loads: usize) -> BTreeSet<Origin> {
    let mut found = BTreeSet::new();
    let mut seen = HashSet::new();
    let mut open = vec![(at, location)];
    let mut info = InstructionInfoFactory::new();
    while let Some((at, location)) = open.pop() {
        if !seen.insert((at, location)) {
            continue;
        }
        if body.before(at).is_empty() || at == 0 {
            found.insert(Origin::Unknown);
        }
        for before in body.before(at).iter().copied() {
            let instruction = &body.instructions[before];
            if !writes(&mut info, instruction, location) {
                open.push((before, location));
                continue;
            }
            let conditional = is_conditional_move(instruction);
            match (source(instruction, location), conditional) {
                (Source::Zero, _) => {}
                (Source::Location(from), _) => open.push((before, from)),
                (Source::Address(address), _) => drop(found.insert(Origin::Address(address))),
                (Source::Memory, _) => found.extend(of_memory(library, body, before, loads)),
                (Source::Result, _) => drop(found.insert(result(library, instruction))),
                (Source::Unknown, _) => drop(found.insert(Origin::Unknown)),
            }
            if conditional {
                open.push((before, location));
            }
        }
    }
    found
}

/// What a call leaves in the register of results.
fn result(library: &Library, call: &Instruction) -> Origin {
    let name = match call.op0_kind() {
        OpKind::Memory if call.is_ip_rel_memory_operand() => library.import(call.ip_rel_memory_address()),
        OpKind::NearBranch64 => library.linkage(call.near_branch_target()),
        _ => None,
    };
    name.map_or(Origin::Unknown, |name| Origin::Result(name.to_owned()))
}

enum Source {
    Zero,
    Location(Location),
    Address(u64),
    Memory,
    Result,
    Unknown,
}

/// What an instruction that writes a location puts there.
fn source(instruction: &Instruction, location: Location) -> Source {
    let moved = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Xchg) || is_conditional_move(instruction);
    match location {
        Location::Register(Register::RAX)
            if matches!(flow_of(instruction), FlowControl::Call | FlowControl::IndirectCall) =>
        {
            Source::Result
        }
        Location::Register(_) => match (instruction.mnemonic(), instruction.op1_kind()) {
            (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
                Source::Address(instruction.ip_rel_memory_address())
            }
            (Mnemonic::Xor, OpKind::Register) if instruction.op0_register() == instruction.op1_register() => {
                Source::Zero
            }
            (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64) => Source::Zero,
            (_, OpKind::Register) if moved && instruction.op0_register().is_gpr64() => {
                // An exchange may have the location on either side.
                let (to, from) = (instruction.op0_register(), instruction.op1_register());
                let other = if Location::Register(to) == location { from } else { to };
                Source::Location(Location::Register(other))
            }
            (_, OpKind::Memory) if moved && instruction.op0_register().is_gpr64() => Source::Memory,
            _ => Source::Unknown,
        },
        Location::Stack(..) => match (instruction.mnemonic(), instruction.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register) if instruction.op1_register().is_gpr64() => {
                Source::Location(Location::Register(instruction.op1_register()))
            }
            (Mnemonic::Mov, OpKind::Immediate32to64) => Source::Zero,
            _ => Source::Unknown,
        },
    }
}

fn is_conditional_move(instruction: &Instruction) -> bool {
    instruction.op_count() == 2 && instruction.condition_code() != ConditionCode::None
}

fn writes(info: &mut InstructionInfoFactory, instruction: &Instruction, location: Location) -> bool {
    let is_call = matches!(flow_of(instruction), FlowControl::Call | FlowControl::IndirectCall);
    let changes = |access| {
        matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
    };
    match location {
        Location::Register(register) if is_call => SCRATCH.contains(&register),
        Location::Register(register) => {
            let used = info.info(instruction).used_registers();
            used.iter().any(|u| changes(u.access()) && u.register().full_register() == register)
        }
        // A call gives the stack pointer back as it was; whoever moves it elsewhere changes what the slot is.
        Location::Stack(base, displacement) => {
            let used = info.info(instruction);
            let moves_base = !is_call
                && used.used_registers().iter().any(|u| changes(u.access()) && u.register().full_register() == base);
            let same = |m: &iced_x86::UsedMemory| {
                let (start, end) = (m.displacement(), m.displacement().wrapping_add(m.memory_size().size() as u64));
                m.base() == base && (start..end.max(start + 1)).contains(&displacement)
            };
            moves_base || (!is_call && used.used_memory().iter().any(|m| changes(m.access()) && same(m)))
        }
    }
}
