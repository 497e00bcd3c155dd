//! As much of an instruction as tells calls from returns.

use super::shadow::Memory;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Call,
    Return,
    /// To where a register or a word says.
    Jump,
    SystemCall,
    Other,
}

impl Kind {
    pub(crate) fn of(mut pc: u64, memory: &impl Memory) -> Self {
        const LONGEST: u64 = 15;
        let end_of_prefixes = pc + LONGEST;
        while pc < end_of_prefixes && is_prefix(memory.byte(pc)) {
            pc += 1;
        }
        match memory.byte(pc) {
            0xe8 => Self::Call,
            0xc2 | 0xc3 => Self::Return,
            0x0f if memory.byte(pc + 1) == 0x05 => Self::SystemCall,
            0xff => match (memory.byte(pc + 1) >> 3) & 7 {
                2 => Self::Call,
                4 => Self::Jump,
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3)
}

/// Length of a system call.
pub(crate) const SYSTEM_CALL: u64 = 2;

/// Whether code ends signal handlers: `mov rax, 15; syscall`.
pub(crate) fn ends_handlers(pc: u64, memory: &impl Memory) -> bool {
    has(pc, &[0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05], memory)
}

/// Whether code is there for speculation alone, behind the call of a retpoline: `pause; lfence; jmp` to itself.
pub(crate) fn is_never_reached(pc: u64, memory: &impl Memory) -> bool {
    has(pc, &[0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9], memory)
}

fn has(pc: u64, bytes: &[u8], memory: &impl Memory) -> bool {
    (pc..).zip(bytes).all(|(address, byte)| memory.byte(address) == *byte)
}
