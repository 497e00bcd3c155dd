use crate::step::{at, by_frame_pointer};
use crate::x86_64::form::{Common, common_offsets};
use crate::x86_64::{Base, Cfa, Form, FramePointer};
use crate::{Caller, FrameAddress, Memory, Quick, Rule, Slots, Truncated, Unwind};

/// The registers that unwinding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// `rip`: the next instruction.
    pub pc: u64,
    /// `rsp`.
    pub sp: u64,
    /// `rbp`, whatever it holds; `None` if that is not known.
    pub fp: Option<u64>,
}

impl Registers {
    #[inline]
    fn base(&self, base: Base) -> Result<u64, Truncated> {
        match base {
            Base::StackPointer => Ok(self.sp),
            Base::FramePointer => self.fp.ok_or(Truncated::FramePointerUnknown),
        }
    }

    #[inline(always)]
    fn step_frame<M: Memory>(
        &self,
        (cfa, fp, signal): (Cfa, FramePointer, bool),
        memory: &mut M,
    ) -> Result<Option<Caller<Self>>, Truncated> {
        let mut slots = Slots::default();
        // Only these may lead to another stack: there, the caller's stack pointer was kept in memory or in a register.
        let mut may_switch = false;
        let cfa = match cfa {
            Cfa::Offset(base, offset) => {
                may_switch = matches!(base, Base::FramePointer);
                at(self.base(base)?, offset)
            }
            Cfa::Load { base, offset, add } => {
                may_switch = true;
                let slot = at(self.base(base)?, offset);
                slots.cfa = Some(slot);
                at(memory.read(slot).ok_or(Truncated::StackUnreadable)?, add)
            }
            Cfa::Plt { offset, pushed_from } => {
                let pushed = if self.pc & 15 >= u64::from(pushed_from) { 8 } else { 0 };
                at(self.sp, offset).wrapping_add(pushed)
            }
        };
        let stack_switch = cfa < self.sp && may_switch;
        if cfa <= self.sp && !stack_switch {
            return Err(Truncated::NoProgress);
        }
        let return_slot = cfa.wrapping_sub(8);
        slots.return_address = Some(return_slot);
        slots.frame_pointer = match fp {
            FramePointer::Same | FramePointer::Undefined => None,
            FramePointer::AtCfa(offset) => Some(at(cfa, offset)),
            // gcc leaves the rule in force when rbp was restored: then the place lies outside of the frame.
            FramePointer::At(base, offset) => Some(at(self.base(base)?, offset))
                .filter(|slot| signal || stack_switch || (self.sp..cfa).contains(slot)),
        };
        let pc = memory.read(return_slot).ok_or(Truncated::StackUnreadable)?;
        if pc == 0 {
            return Ok(None);
        }
        let fp = match slots.frame_pointer {
            Some(slot) => Some(memory.read(slot).ok_or(Truncated::StackUnreadable)?),
            None if matches!(fp, FramePointer::Undefined) => None,
            None => self.fp,
        };
        let address = if signal { FrameAddress::Instruction(pc) } else { FrameAddress::ReturnAddress(pc) };
        Ok(Some(Caller { registers: Self { pc, sp: cfa, fp }, address, slots, stack_switch }))
    }

    #[cold]
    fn step_context<M: Memory>(&self, (sp, fp, pc): (i32, i32, i32), memory: &mut M) -> Option<Caller<Self>> {
        let [sp, fp, pc] = [at(self.sp, sp), at(self.sp, fp), at(self.sp, pc)];
        let registers = Self { pc: memory.read(pc)?, sp: memory.read(sp)?, fp: Some(memory.read(fp)?) };
        Some(Caller {
            registers,
            address: FrameAddress::Instruction(registers.pc),
            slots: Slots { return_address: Some(pc), frame_pointer: Some(fp), cfa: Some(sp), link_register: None },
            stack_switch: registers.sp <= self.sp,
        })
    }

    #[cold]
    fn step_without_rule<M: Memory>(&self, memory: &mut M) -> Option<Caller<Self>> {
        let chained = by_frame_pointer(self.sp, self.fp, memory, |address| address, ends_with_call)?;
        Some(Caller {
            registers: Self { pc: chained.return_address, sp: chained.cfa, fp: Some(chained.fp) },
            address: FrameAddress::ReturnAddress(chained.return_address),
            slots: Slots {
                return_address: Some(chained.return_slot),
                frame_pointer: Some(chained.slot),
                ..Slots::default()
            },
            stack_switch: false,
        })
    }
}

/// Whether the last of these bytes are a call: of an address five bytes away, or through a register or memory in two to seven bytes.
fn ends_with_call(bytes: u64) -> bool {
    let bytes = bytes.to_le_bytes();
    let indirect = |at: usize| matches!(bytes.get(at..), Some([0xff, operand, ..]) if operand & 0x38 == 0x10);
    bytes[3] == 0xe8 || (1..=6).any(indirect)
}

/// [`Registers`] in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Packed {
    sp: u64,
    fp: u64,
    pc: u64,
    /// 1 or 0: as wide as the others, so that no padding is copied.
    has_fp: u64,
}

impl Packed {
    /// The step of nearly every frame, by words that `read` finds, with their places. `None` where it is another, or ends, or leads to another stack: the whole truth takes longer.
    #[inline(always)]
    fn step<P>(&self, rule: Rule, read: impl FnMut(u64) -> Option<(P, u64)>) -> Option<Quick<Self, P>> {
        // Each kind has code of its own: the processor goes on by predicting the kind, before the rule has come from memory.
        match Common::of(rule)? {
            Common::SpFpSame => self.step_common::<false, false, P>(rule, read),
            Common::SpFpSaved => self.step_common::<false, true, P>(rule, read),
            Common::FpFpSame => self.step_common::<true, false, P>(rule, read),
            Common::FpFpSaved => self.step_common::<true, true, P>(rule, read),
        }
    }

    #[inline(always)]
    fn step_common<const FROM_FP: bool, const SAVES_FP: bool, P>(
        &self,
        rule: Rule,
        mut read: impl FnMut(u64) -> Option<(P, u64)>,
    ) -> Option<Quick<Self, P>> {
        if FROM_FP && self.has_fp == 0 {
            return None;
        }
        let (offset, slot) = common_offsets(rule);
        let cfa = at(if FROM_FP { self.fp } else { self.sp }, offset);
        if cfa.checked_sub(self.sp)? < 8 {
            return None;
        }
        let return_address = read(cfa.wrapping_sub(8))?;
        if return_address.1 == 0 {
            return None;
        }
        let same = Self { sp: cfa, pc: return_address.1, ..*self };
        if !SAVES_FP {
            return Some(Quick { caller: same, return_address, frame_pointer: None });
        }
        let fp_slot = at(cfa, slot);
        if fp_slot < self.sp {
            return None;
        }
        let fp = read(fp_slot)?;
        Some(Quick { caller: Self { fp: fp.1, has_fp: 1, ..same }, return_address, frame_pointer: Some(fp) })
    }
}

impl Unwind for Registers {
    type Packed = Packed;

    #[inline(always)]
    fn pack(self) -> Packed {
        Packed { sp: self.sp, fp: self.fp.unwrap_or(0), pc: self.pc, has_fp: self.fp.is_some().into() }
    }

    #[inline(always)]
    fn unpack(packed: Packed) -> Self {
        let Packed { sp, fp, pc, has_fp } = packed;
        Self { pc, sp, fp: (has_fp != 0).then_some(fp) }
    }

    #[inline]
    fn pc(&self) -> u64 {
        self.pc
    }

    #[inline]
    fn sp(&self) -> u64 {
        self.sp
    }

    #[inline(always)]
    fn step<M: Memory>(&self, rule: Rule, memory: &mut M) -> Result<Option<Caller<Self>>, Truncated> {
        if let Some(quick) = self.pack().step(rule, |address| Some((address, memory.read(address)?))) {
            let Quick { caller, return_address: (return_slot, pc), frame_pointer } = quick;
            return Ok(Some(Caller {
                registers: Self::unpack(caller),
                address: FrameAddress::ReturnAddress(pc),
                slots: Slots {
                    return_address: Some(return_slot),
                    frame_pointer: frame_pointer.map(|(slot, _)| slot),
                    ..Slots::default()
                },
                stack_switch: false,
            }));
        }
        self.step_rare(rule, memory)
    }

    #[inline(always)]
    fn step_quickly<M: Memory>(frame: &Packed, rule: Rule, memory: &mut M) -> Option<Quick<Packed>> {
        frame.step(rule, |address| memory.numbered_word(address))
    }

    #[inline]
    fn needs_frame_pointer(rule: Rule) -> bool {
        !matches!(Common::of(rule), Some(Common::SpFpSame | Common::SpFpSaved))
    }
}

impl Registers {
    /// Any rule. Inlined: what is returned by memory would lie on the way from each frame to the next.
    #[inline(always)]
    fn step_rare<M: Memory>(self, rule: Rule, memory: &mut M) -> Result<Option<Caller<Self>>, Truncated> {
        match Form::decode(rule) {
            Form::Frame { cfa, fp, signal } => self.step_frame((cfa, fp, signal), memory),
            Form::Context { sp, fp, pc } => {
                self.step_context((sp, fp, pc), memory).ok_or(Truncated::StackUnreadable).map(Some)
            }
            Form::EndOfStack => Ok(None),
            Form::Unsupported => Err(Truncated::UnsupportedRule),
            Form::NoTable => Err(Truncated::NoTable),
            Form::None => self.step_without_rule(memory).ok_or(Truncated::NoTable).map(Some),
        }
    }
}
