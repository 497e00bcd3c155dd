use crate::aarch64::{Base, Form, Saved};
use crate::step::{at, by_frame_pointer};
use crate::{Caller, FrameAddress, Memory, Rule, Slots, Truncated, Unwind};

/// The registers that unwinding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The next instruction.
    pub pc: u64,
    /// `sp`.
    pub sp: u64,
    /// `x29`, whatever it holds; `None` if that is not known.
    pub fp: Option<u64>,
    /// `x30`; `None` if it is not known, as in every frame that has called another.
    pub lr: Option<u64>,
}

/// Bits of an address of code; those above may hold a pointer authentication code.
///
/// So many has Linux' usual configuration, also if it has 52 (which are for those who ask for such addresses). A kernel with 39, 42 or 47 on a processor that signs leaves a
/// part of the code in the address, which then no table covers.
const ADDRESS_BITS: u32 = 48;

/// A return address without its pointer authentication code.
///
/// Done to all of them: `DW_CFA_AARCH64_negate_ra_state` says where they are signed, but the bits are never part of an address.
pub(super) const fn strip(return_address: u64) -> u64 {
    return_address & ((1 << ADDRESS_BITS) - 1)
}

impl Registers {
    #[inline]
    fn step_frame<M: Memory>(
        &self,
        (base, cfa, lr, fp, signal): (Base, i32, Saved, Saved, bool),
        memory: &mut M,
    ) -> Result<Option<Caller<Self>>, Truncated> {
        let cfa = match base {
            Base::StackPointer => at(self.sp, cfa),
            Base::FramePointer => at(self.fp.ok_or(Truncated::FramePointerUnknown)?, cfa),
        };
        let stack_switch = cfa < self.sp && matches!(base, Base::FramePointer);
        let leaf = matches!(lr, Saved::InRegister);
        if !stack_switch && (cfa < self.sp || (cfa == self.sp && !leaf)) {
            return Err(Truncated::NoProgress);
        }
        let slot = |saved| match saved {
            Saved::AtCfa(offset) => Some(at(cfa, offset)),
            Saved::InRegister | Saved::Undefined => None,
        };
        let slots = Slots { return_address: slot(lr), frame_pointer: slot(fp), ..Slots::default() };
        let return_address = match (slots.return_address, lr) {
            (Some(slot), _) => memory.read(slot).ok_or(Truncated::StackUnreadable)?,
            // Whoever has called has overwritten it: without a slot the caller would be this frame again.
            (None, Saved::InRegister) => self.lr.ok_or(Truncated::NoProgress)?,
            (None, _) => return Ok(None),
        };
        let pc = strip(return_address);
        if pc == 0 {
            return Ok(None);
        }
        let fp = match (slots.frame_pointer, fp) {
            (Some(slot), _) => Some(memory.read(slot).ok_or(Truncated::StackUnreadable)?),
            (None, Saved::InRegister) => self.fp,
            (None, _) => None,
        };
        let address = if signal { FrameAddress::Instruction(pc) } else { FrameAddress::ReturnAddress(pc) };
        Ok(Some(Caller { registers: Self { pc, sp: cfa, fp, lr: None }, address, slots, stack_switch }))
    }

    #[cold]
    fn step_context<M: Memory>(&self, (sp, fp, pc, lr): (i32, i32, i32, i32), memory: &mut M) -> Option<Caller<Self>> {
        let [sp, fp, pc, lr] = [at(self.sp, sp), at(self.sp, fp), at(self.sp, pc), at(self.sp, lr)];
        let registers = Self {
            pc: strip(memory.read(pc)?),
            sp: memory.read(sp)?,
            fp: Some(memory.read(fp)?),
            lr: Some(memory.read(lr)?),
        };
        Some(Caller {
            registers,
            address: FrameAddress::Instruction(registers.pc),
            slots: Slots { return_address: Some(pc), frame_pointer: Some(fp), cfa: Some(sp), link_register: Some(lr) },
            stack_switch: registers.sp <= self.sp,
        })
    }

    #[cold]
    fn step_without_rule<M: Memory>(&self, memory: &mut M) -> Option<Caller<Self>> {
        let chained = by_frame_pointer(self.sp, self.fp, memory, strip, ends_with_call)?;
        let pc = strip(chained.return_address);
        Some(Caller {
            registers: Self { pc, sp: chained.cfa, fp: Some(chained.fp), lr: None },
            address: FrameAddress::ReturnAddress(pc),
            slots: Slots {
                return_address: Some(chained.return_slot),
                frame_pointer: Some(chained.slot),
                ..Slots::default()
            },
            stack_switch: false,
        })
    }
}

/// Whether the last of these bytes are a call: `bl`, `blr`, or one of its kinds that authenticate the address.
fn ends_with_call(bytes: u64) -> bool {
    let instruction = (bytes >> 32) as u32;
    instruction & 0xfc00_0000 == 0x9400_0000 || instruction & 0xfeff_f000 == 0xd63f_0000
}

impl Unwind for Registers {
    type Packed = Self;

    fn pack(self) -> Self {
        self
    }

    fn unpack(packed: Self) -> Self {
        packed
    }

    #[inline]
    fn pc(&self) -> u64 {
        self.pc
    }

    #[inline]
    fn sp(&self) -> u64 {
        self.sp
    }

    #[inline]
    fn step<M: Memory>(&self, rule: Rule, memory: &mut M) -> Result<Option<Caller<Self>>, Truncated> {
        match Form::decode(rule) {
            Form::Frame { base, cfa, lr, fp, signal } => self.step_frame((base, cfa, lr, fp, signal), memory),
            Form::Context { sp, fp, pc, lr } => {
                self.step_context((sp, fp, pc, lr), memory).ok_or(Truncated::StackUnreadable).map(Some)
            }
            Form::EndOfStack => Ok(None),
            Form::Unsupported => Err(Truncated::UnsupportedRule),
            Form::NoTable => Err(Truncated::NoTable),
            Form::None => self.step_without_rule(memory).ok_or(Truncated::NoTable).map(Some),
        }
    }
}
