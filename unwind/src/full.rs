//! A step with all registers, for the few frames whose caller a [`Rule`](crate::Rule) cannot express: the dynamic linker keeps its caller's stack pointer in `rbx`,
//! hand-written code in any register, over-aligned functions in `r10` for some instructions.
//!
//! Called from: anywhere, like everything else here; slow (some microseconds), hence for those frames alone, and for those between them and the leaf, where all registers
//! are known.

use crate::cfi::{AllRules, Compile, Computed, Saved};
use crate::{FrameAddress, Memory, Truncated};

/// Registers of a frame by DWARF's numbers, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllRegisters<const N: usize> {
    /// Values; meaningless where not known.
    values: [u64; N],
    /// One bit for each that is known.
    known: u64,
    /// The address of the frame.
    pub address: FrameAddress,
}

impl<const N: usize> AllRegisters<N> {
    /// Nothing but the address.
    pub fn at(address: FrameAddress) -> Self {
        Self { values: [0; N], known: 0, address }
    }

    /// The value of a register, if known.
    pub fn get(&self, register: u16) -> Option<u64> {
        let known = 1_u64.checked_shl(u32::from(register)).is_some_and(|bit| self.known & bit != 0);
        if known { self.values.get(usize::from(register)).copied() } else { None }
    }

    /// Sets a register, or forgets it.
    pub fn set(&mut self, register: u16, value: Option<u64>) {
        let Some(slot) = self.values.get_mut(usize::from(register)) else { return };
        let Some(bit) = 1_u64.checked_shl(u32::from(register)) else { return };
        match value {
            Some(value) => {
                *slot = value;
                self.known |= bit;
            }
            None => self.known &= !bit,
        }
    }

    /// Keeps only what a function leaves as it was for its caller.
    pub fn keep_callee_saved<A: Compile>(&mut self) {
        self.known &= A::CALLEE_SAVED;
    }

    /// The caller's registers, by all that is said about the frame; `None` if it is the root. `signal`: a signal made the frame.
    ///
    /// # Errors
    ///
    /// The reason why there is no exact caller.
    pub fn step<A: Compile>(
        &self,
        rules: &AllRules<N>,
        signal: bool,
        memory: &mut impl Memory,
    ) -> Result<Option<Self>, Truncated> {
        let cfa = self.compute::<A>(rules.cfa, memory)?;
        let mut caller = Self { known: 0, ..*self };
        for (register, saved) in (0_u16..).zip(rules.registers) {
            let value = match saved {
                Saved::Unspecified if register == A::SP => Some(cfa),
                Saved::Unspecified => self.get(register),
                Saved::Undefined | Saved::Unknown => None,
                Saved::Same => self.get(register),
                Saved::AtCfa(offset) => memory.read(cfa.wrapping_add_signed(i64::from(offset))),
                Saved::CfaPlus(offset) => Some(cfa.wrapping_add_signed(i64::from(offset))),
                Saved::At(slot) => match self.compute::<A>(slot, memory) {
                    // See `Registers::step`: a place outside of the frame is one whose register was restored.
                    Ok(slot) if !signal && self.get(A::SP).is_some_and(|sp| sp < cfa && !(sp..cfa).contains(&slot)) => {
                        self.get(register)
                    }
                    Ok(slot) => memory.read(slot),
                    Err(_) => None,
                },
                Saved::Register(other) => self.get(other),
            };
            caller.set(register, value);
        }
        let return_address = usize::from(A::RA);
        let pc = match rules.registers.get(return_address) {
            Some(Saved::Undefined) => return Ok(None),
            // Where the column is a register of its own (aarch64), it still holds the return address.
            Some(Saved::Unspecified) => self.get(A::RA),
            _ => caller.get(A::RA),
        };
        let pc = A::code_address(pc.ok_or(Truncated::StackUnreadable)?);
        if pc == 0 {
            return Ok(None);
        }
        caller.address = if signal { FrameAddress::Instruction(pc) } else { FrameAddress::ReturnAddress(pc) };
        Ok(Some(caller))
    }

    fn compute<A: Compile>(&self, what: Computed, memory: &mut impl Memory) -> Result<u64, Truncated> {
        let at = |register, offset: i32| {
            let value = self.get(register).ok_or(Truncated::UnsupportedRule)?;
            Ok(value.wrapping_add_signed(i64::from(offset)))
        };
        match what {
            Computed::Register { register, offset } => at(register, offset),
            Computed::Load { register, offset, add } => {
                let loaded = memory.read(at(register, offset)?).ok_or(Truncated::StackUnreadable)?;
                Ok(loaded.wrapping_add_signed(i64::from(add)))
            }
            Computed::LoadIndexed { register, offset, index, scale, add } => {
                let index =
                    self.get(u16::from(index)).ok_or(Truncated::UnsupportedRule)?.wrapping_mul(u64::from(scale));
                let slot = at(u16::from(register), offset)?.wrapping_add(index);
                Ok(memory.read(slot).ok_or(Truncated::StackUnreadable)?.wrapping_add_signed(i64::from(add)))
            }
            Computed::Plt { register, offset, ra, pushed_from } => {
                // Where the column of the return address is no register, it stands for the frame's own address.
                let own = (ra == A::RA).then_some(self.address.address());
                let pushed = self.get(ra).or(own).ok_or(Truncated::UnsupportedRule)? & 15 >= u64::from(pushed_from);
                Ok(at(register, offset)?.wrapping_add(if pushed { 8 } else { 0 }))
            }
            Computed::Unknown => Err(Truncated::UnsupportedRule),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfi::{Computed, Saved};
    use crate::fake::Stack;
    use crate::{aarch64, x86_64};

    const X86: usize = 17;
    const ARM: usize = 32;

    fn x86(registers: &[(u16, u64)]) -> AllRegisters<X86> {
        let mut all = AllRegisters::at(FrameAddress::Instruction(0x40_0010));
        registers.iter().for_each(|(register, value)| all.set(*register, Some(*value)));
        all
    }

    fn rules<const N: usize>(cfa: Computed, saved: &[(usize, Saved)]) -> AllRules<N> {
        let mut rules = AllRules { cfa, registers: [Saved::Unspecified; N] };
        saved.iter().for_each(|(register, saved)| rules.registers[*register] = *saved);
        rules
    }

    #[test]
    fn a_frame_counted_from_rbx_is_left_and_callee_saved_registers_are_restored() {
        let frame = x86(&[(3, 0x1010), (6, 7), (7, 0x1000), (12, 12), (0, 1)]);
        let cfa = Computed::Register { register: 3, offset: 24 };
        let saved = [(16, Saved::AtCfa(-8)), (3, Saved::AtCfa(-24)), (6, Saved::Same)];
        let stack = Stack(0x1000, &[0, 0, 33, 0, 0x40_0100, 0]);
        let caller = frame.step::<x86_64::Registers>(&rules(cfa, &saved), false, &mut { stack }).unwrap().unwrap();
        assert_eq!(caller.address, FrameAddress::ReturnAddress(0x40_0100));
        assert_eq!([3, 6, 7, 12].map(|register| caller.get(register)), [Some(33), Some(7), Some(0x1028), Some(12)]);
        assert_eq!(caller.get(0), Some(1), "what nothing is said about stays: hand-written code relies on that");
    }

    #[test]
    fn a_register_that_is_not_known_ends_the_walk_and_so_does_the_root() {
        let frame = x86(&[(7, 0x1000)]);
        let mut stack = Stack(0x1000, &[0x40_0100]);
        let by_r10 = rules(Computed::Register { register: 10, offset: 0 }, &[(16, Saved::AtCfa(-8))]);
        assert_eq!(frame.step::<x86_64::Registers>(&by_r10, false, &mut stack), Err(Truncated::UnsupportedRule));
        let by_rsp = |saved| rules(Computed::Register { register: 7, offset: 8 }, &[(16, saved)]);
        let step = |saved, stack: &mut Stack<'_>| frame.step::<x86_64::Registers>(&by_rsp(saved), false, stack);
        assert_eq!(step(Saved::Undefined, &mut stack), Ok(None));
        assert_eq!(step(Saved::AtCfa(-8), &mut Stack(0x1000, &[0])), Ok(None));
        assert_eq!(step(Saved::AtCfa(80), &mut stack), Err(Truncated::StackUnreadable));
    }

    #[test]
    fn the_signature_of_a_saved_link_register_is_no_part_of_the_address() {
        let mut frame = AllRegisters::<ARM>::at(FrameAddress::Instruction(0x40_0010));
        frame.set(31, Some(0x1000));
        let cfa = Computed::Register { register: 31, offset: 16 };
        let saved = rules(cfa, &[(30, Saved::AtCfa(-8))]);
        let mut stack = Stack(0x1000, &[0, 0x0035_0000_0040_1234]);
        let caller = frame.step::<aarch64::Registers>(&saved, false, &mut stack).unwrap().unwrap();
        assert_eq!(caller.address, FrameAddress::ReturnAddress(0x40_1234));
    }
}
