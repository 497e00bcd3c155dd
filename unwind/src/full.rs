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
            let callee_saved = 1_u64.checked_shl(u32::from(register)).is_some_and(|bit| A::CALLEE_SAVED & bit != 0);
            let value = match saved {
                Saved::Unspecified if register == A::SP => Some(cfa),
                Saved::Unspecified if callee_saved => self.get(register),
                Saved::Unspecified | Saved::Undefined | Saved::Unknown => None,
                Saved::Same => self.get(register),
                Saved::AtCfa(offset) => memory.read(cfa.wrapping_add_signed(i64::from(offset))),
                Saved::CfaPlus(offset) => Some(cfa.wrapping_add_signed(i64::from(offset))),
                Saved::At(slot) => self.compute::<A>(slot, memory).ok().and_then(|slot| memory.read(slot)),
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
        let pc = pc.ok_or(Truncated::StackUnreadable)?;
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
