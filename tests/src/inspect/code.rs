//! A function's instructions, and which may run before which.

use super::library::{Function, Library};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// Instructions of a function.
pub(super) struct Body {
    /// In the order of their addresses.
    pub(super) instructions: Vec<Instruction>,
    /// Of each, the indices of those that may run right before.
    before: Vec<Vec<usize>>,
    /// Indices of indirect jumps that stay in the function: `match` by a table.
    pub(super) switches: Vec<usize>,
}

impl Body {
    /// Decodes a function.
    ///
    /// # Panics
    /// If its bytes are not instructions.
    pub(super) fn decode(library: &Library, function: &Function) -> Self {
        let bytes = library.bytes(function.start, function.end).expect("a function's bytes");
        let instructions = decode(function.start, bytes);
        assert!(instructions.iter().all(|i| i.code() != Code::INVALID), "{} does not decode", function.name);
        let index: HashMap<u64, usize> = instructions.iter().enumerate().map(|(i, x)| (x.ip(), i)).collect();
        let mut this = Self { before: vec![Vec::new(); instructions.len()], instructions, switches: Vec::new() };
        for at in 0..this.instructions.len() {
            let instruction = this.instructions[at];
            let flow = flow_of(&instruction);
            let goes_on = !matches!(
                flow,
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
            );
            if goes_on && at + 1 < this.instructions.len() {
                this.before[at + 1].push(at);
            }
            if matches!(flow, FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch)
                && let Some(target) = index.get(&instruction.near_branch_target())
            {
                this.before[*target].push(at);
            }
        }
        for at in 0..this.instructions.len() {
            if flow_of(&this.instructions[at]) == FlowControl::IndirectBranch {
                let targets = this.table_of(library, at, &index);
                if !targets.is_empty() {
                    targets.into_iter().for_each(|target| this.before[target].push(at));
                    this.switches.push(at);
                }
            }
        }
        // Padding in front of a loop is not a way into it.
        for at in 1..this.instructions.len().saturating_sub(1) {
            if this.instructions[at].mnemonic() == Mnemonic::Nop && this.before[at].is_empty() {
                this.before[at + 1].retain(|before| *before != at);
            }
        }
        this
    }

    /// Indices of the instructions that may run right before one; empty at the function's entry.
    pub(super) fn before(&self, at: usize) -> &[usize] {
        &self.before[at]
    }

    /// Targets of `lea base, [table]; movsxd r, [base + 4 * i]; add r, base; jmp r`, which all lie in the function; empty if it is not that.
    fn table_of(&self, library: &Library, at: usize, index: &HashMap<u64, usize>) -> Vec<usize> {
        let register = self.instructions[at].op0_register();
        let window = &self.instructions[at.saturating_sub(12)..at];
        let adds = window.iter().rev().find(|i| i.mnemonic() == Mnemonic::Add && i.op0_register() == register);
        let Some(add) = adds.filter(|_| window.iter().any(|i| i.mnemonic() == Mnemonic::Movsxd)) else {
            return Vec::new();
        };
        // The base may have been set long before: the nearest table whose entries are instructions of this function is the one.
        let bases = [add.op1_register(), register];
        let tables = self.instructions[..at].iter().rev().filter(|i| {
            i.mnemonic() == Mnemonic::Lea && i.is_ip_rel_memory_operand() && bases.contains(&i.op0_register())
        });
        let entries_of = |lea: &Instruction| -> Vec<usize> {
            let table = lea.ip_rel_memory_address();
            let entry = |i: u64| {
                let bytes = library.bytes(table + i * 4, table + i * 4 + 4)?;
                let target = table.wrapping_add_signed(i64::from(i32::from_le_bytes(bytes.try_into().ok()?)));
                index.get(&target).copied()
            };
            (0_u64..).map_while(entry).collect()
        };
        tables.map(entries_of).find(|entries| !entries.is_empty()).unwrap_or_default()
    }
}

/// Decodes bytes from an address on.
pub(super) fn decode(start: u64, bytes: &[u8]) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, start, DecoderOptions::NONE).into_iter().collect()
}

/// The flow, but a system call goes on like any other instruction.
pub(super) fn flow_of(instruction: &Instruction) -> FlowControl {
    match instruction.mnemonic() {
        Mnemonic::Syscall => FlowControl::Next,
        _ => instruction.flow_control(),
    }
}

/// Whether an instruction locks the bus: by its prefix, or as an exchange with memory does without one.
pub(super) fn is_locked(instruction: &Instruction) -> bool {
    let exchanges = instruction.mnemonic() == Mnemonic::Xchg
        && (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    instruction.has_lock_prefix() || exchanges
}

/// Whether an instruction uses the thread pointer.
pub(super) fn is_thread_local(instruction: &Instruction) -> bool {
    matches!(instruction.segment_prefix(), Register::FS | Register::GS)
}
