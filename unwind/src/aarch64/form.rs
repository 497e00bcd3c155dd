use crate::Rule;
use crate::rule::{END_OF_STACK, Field, KIND_BITS, NO_TABLE, UNSUPPORTED};

/// What a [`Rule`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing is known about the address.
    None,
    /// No table covers the address, and nothing may be guessed.
    NoTable,
    /// The frame is the root.
    EndOfStack,
    /// The rule cannot be expressed.
    Unsupported,
    /// An ordinary frame.
    Frame {
        /// Register that the CFA is counted from.
        base: Base,
        /// Bytes from it to the CFA, which is the caller's stack pointer; a multiple of 8.
        cfa: i32,
        /// The return address. [`Saved::Undefined`] is packed as [`Form::EndOfStack`].
        lr: Saved,
        /// The caller's `x29`.
        fp: Saved,
        /// The frame was made by a signal: the caller's address is that of an interrupted instruction.
        signal: bool,
    },
    /// A frame made by a signal, on top of which lies what the kernel saved. Bytes from the stack pointer to the slots.
    Context {
        /// Slot of `sp`.
        sp: i32,
        /// Slot of `x29`.
        fp: i32,
        /// Slot of the interrupted instruction's address.
        pc: i32,
        /// Slot of `x30`.
        lr: i32,
    },
}

/// A register that addresses are counted from. Others are not kept while walking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// `sp`.
    StackPointer,
    /// `x29`.
    FramePointer,
}

/// Where the caller's value of a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Still in the register.
    InRegister,
    /// Lost.
    Undefined,
    /// Bytes from the CFA to the slot; a multiple of 8.
    AtCfa(i32),
}

// Bits 0 to 3: the kind.
const SP_OFFSET: u64 = 4;
const FP_OFFSET: u64 = 5;
const CONTEXT: u64 = 6;
// The same for large frames. They save `x29` and `x30` at their lower end (gcc) or at their upper end (LLVM).
const SP_LARGE: u64 = 7;
const FP_LARGE: u64 = 8;
const SP_LARGE_TOP: u64 = 9;

// Bits 4 and 5: where x29 is; bit 6: x30 was saved; bit 7: made by a signal.
const FP_KIND_AT: u32 = KIND_BITS;
const IN_REGISTER: u64 = 0;
const UNDEFINED: u64 = 1;
const SAVED: u64 = 2;
const LR_SAVED: u64 = 1 << 6;
const SIGNAL: u64 = 1 << 7;

// Bits 8 to 47. The slot is x30's, or x29's if only that was saved; they mostly are neighbours, so x29's is counted from x30's.
// A frame of 1 MiB or more does not fit, nor does a slot 256 KiB from the CFA.
type CfaOffset = Field<8, 18, 8>;
type Slot = Field<26, 16, 8>;
type FpFromLr = Field<42, 6, 8>;
// 64 MiB; 4 KiB from the base register, or from the CFA if that is the upper end.
type LargeCfaOffset = Field<8, 24, 8>;
type LargeSlot = Field<32, 10, 8>;
type ContextSp = Field<8, 10, 8>;
type ContextFp = Field<18, 10, 8>;
type ContextPc = Field<28, 10, 8>;
type ContextLr = Field<38, 10, 8>;

impl Form {
    /// The rule that says this; [`Rule::UNSUPPORTED`] if a number does not fit.
    pub const fn encode(self) -> Rule {
        match self.try_encode() {
            Some(bits) => Rule::from_bits(bits),
            None => Rule::UNSUPPORTED,
        }
    }

    const fn try_encode(self) -> Option<u64> {
        let (base, cfa, lr, fp, signal) = match self {
            Self::None => return Some(Rule::NONE.to_bits()),
            Self::EndOfStack | Self::Frame { lr: Saved::Undefined, .. } => return Some(END_OF_STACK),
            Self::Unsupported => return Some(UNSUPPORTED),
            Self::NoTable => return Some(NO_TABLE),
            Self::Frame { base, cfa, lr, fp, signal } => (base, cfa, lr, fp, signal),
            Self::Context { sp, fp, pc, lr } => {
                let (sp, fp) = (ContextSp::unsigned(sp as i64), ContextFp::unsigned(fp as i64));
                return match (sp, fp, ContextPc::unsigned(pc as i64), ContextLr::unsigned(lr as i64)) {
                    (Some(sp), Some(fp), Some(pc), Some(lr)) => Some(CONTEXT | sp | fp | pc | lr),
                    _ => None,
                };
            }
        };
        let (fp_kind, slot, fp_from_lr) = match (lr, fp) {
            (Saved::AtCfa(lr), Saved::AtCfa(fp)) => (SAVED, lr as i64, (fp as i64).wrapping_sub(lr as i64)),
            (_, Saved::AtCfa(fp)) => (SAVED, fp as i64, 0),
            (Saved::AtCfa(lr), Saved::InRegister) => (IN_REGISTER, lr as i64, 0),
            (Saved::AtCfa(lr), Saved::Undefined) => (UNDEFINED, lr as i64, 0),
            (_, Saved::InRegister) => (IN_REGISTER, 0, 0),
            (_, Saved::Undefined) => (UNDEFINED, 0, 0),
        };
        let head = (fp_kind << FP_KIND_AT)
            | if matches!(lr, Saved::AtCfa(_)) { LR_SAVED } else { 0 }
            | if signal { SIGNAL } else { 0 };
        let Some(fp_from_lr) = FpFromLr::signed(fp_from_lr) else { return None };
        let head = head | fp_from_lr;
        let (kind, large) = match base {
            Base::StackPointer => (SP_OFFSET, SP_LARGE),
            Base::FramePointer => (FP_OFFSET, FP_LARGE),
        };
        if let (Some(cfa), Some(slot)) = (CfaOffset::signed(cfa as i64), Slot::signed(slot)) {
            return Some(kind | head | cfa | slot);
        }
        let Some(large_cfa) = LargeCfaOffset::signed(cfa as i64) else { return None };
        match (base, LargeSlot::signed(slot), LargeSlot::signed(slot.wrapping_add(cfa as i64))) {
            (Base::StackPointer, Some(slot), _) => Some(SP_LARGE_TOP | head | large_cfa | slot),
            (_, _, Some(slot)) => Some(large | head | large_cfa | slot),
            _ => None,
        }
    }

    /// What the rule says; [`Form::Unsupported`] if its bits mean nothing.
    #[inline]
    pub const fn decode(rule: Rule) -> Self {
        let bits = rule.to_bits();
        let (large_cfa, large_slot) = (LargeCfaOffset::read_signed(bits), LargeSlot::read_signed(bits));
        let (base, cfa, slot) = match bits & ((1 << KIND_BITS) - 1) {
            SP_OFFSET => (Base::StackPointer, CfaOffset::read_signed(bits), Slot::read_signed(bits)),
            FP_OFFSET => (Base::FramePointer, CfaOffset::read_signed(bits), Slot::read_signed(bits)),
            SP_LARGE => (Base::StackPointer, large_cfa, large_slot.wrapping_sub(large_cfa)),
            FP_LARGE => (Base::FramePointer, large_cfa, large_slot.wrapping_sub(large_cfa)),
            SP_LARGE_TOP => (Base::StackPointer, large_cfa, large_slot),
            CONTEXT => {
                let (sp, fp) = (ContextSp::read_unsigned(bits), ContextFp::read_unsigned(bits));
                return Self::Context {
                    sp,
                    fp,
                    pc: ContextPc::read_unsigned(bits),
                    lr: ContextLr::read_unsigned(bits),
                };
            }
            END_OF_STACK => return Self::EndOfStack,
            NO_TABLE => return Self::NoTable,
            _ if bits == 0 => return Self::None,
            _ => return Self::Unsupported,
        };
        let lr = if bits & LR_SAVED != 0 { Saved::AtCfa(slot) } else { Saved::InRegister };
        let fp = match (bits >> FP_KIND_AT) & 3 {
            IN_REGISTER => Saved::InRegister,
            UNDEFINED => Saved::Undefined,
            SAVED => Saved::AtCfa(slot.wrapping_add(FpFromLr::read_signed(bits))),
            _ => return Self::Unsupported,
        };
        Self::Frame { base, cfa, lr, fp, signal: bits & SIGNAL != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_survives_packing() {
        for base in [Base::StackPointer, Base::FramePointer] {
            for cfa in [0, 16, 0xf_fff8, -0x10_0000] {
                for lr in [Saved::InRegister, Saved::AtCfa(-8), Saved::AtCfa(-65_536)] {
                    for fp in [-256, -8, 0, 248].map(|delta| match lr {
                        Saved::AtCfa(lr) => Saved::AtCfa(lr + delta),
                        _ => Saved::AtCfa(delta),
                    }) {
                        for fp in [fp, Saved::InRegister, Saved::Undefined] {
                            let form = Form::Frame { base, cfa, lr, fp, signal: cfa == 16 };
                            assert_eq!(Form::decode(form.encode()), form);
                        }
                    }
                }
            }
        }
        for form in [
            Form::None,
            Form::NoTable,
            Form::EndOfStack,
            Form::Unsupported,
            Form::Context { sp: 8184, fp: 0, pc: 8, lr: 16 },
        ] {
            assert_eq!(Form::decode(form.encode()), form);
        }
    }

    #[test]
    fn large_frames_survive_packing_if_they_save_registers_near_one_of_their_ends() {
        let (record, at_cfa) = (|lr| (Saved::AtCfa(lr), Saved::AtCfa(lr - 8)), Saved::AtCfa);
        for cfa in [0x4_0010, 0x10_0000, 0x3ff_fff8] {
            for (base, (lr, fp)) in [
                (Base::StackPointer, record(8 - cfa)),
                (Base::FramePointer, record(8 - cfa)),
                (Base::StackPointer, record(4088 - cfa)),
                (Base::StackPointer, record(-8)),
                (Base::StackPointer, record(-4096)),
                (Base::StackPointer, (Saved::InRegister, at_cfa(-cfa))),
                (Base::StackPointer, (at_cfa(-cfa), Saved::InRegister)),
                (Base::StackPointer, (Saved::InRegister, Saved::InRegister)),
            ] {
                let form = Form::Frame { base, cfa, lr, fp, signal: false };
                assert_eq!(Form::decode(form.encode()), form);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_unsupported() {
        let frame = |cfa, lr, fp| Form::Frame { base: Base::StackPointer, cfa, lr, fp, signal: false }.encode();
        assert_eq!(frame(0x400_0000, Saved::InRegister, Saved::InRegister), Rule::UNSUPPORTED);
        assert_eq!(frame(0x10_0000, Saved::AtCfa(-0x8000), Saved::InRegister), Rule::UNSUPPORTED);
        assert_eq!(frame(12, Saved::InRegister, Saved::InRegister), Rule::UNSUPPORTED);
        assert_eq!(frame(1024, Saved::AtCfa(-8), Saved::AtCfa(-512)), Rule::UNSUPPORTED);
        assert_eq!(frame(16, Saved::Undefined, Saved::InRegister), Rule::END_OF_STACK);
    }

    #[test]
    fn bits_that_mean_nothing_are_unsupported() {
        assert_eq!(Form::decode(Rule::from_bits(0xf)), Form::Unsupported);
        assert_eq!(Form::decode(Rule::from_bits(SP_OFFSET | 3 << FP_KIND_AT)), Form::Unsupported);
    }
}
