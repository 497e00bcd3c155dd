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
    /// An ordinary frame. The return address lies in the word below the CFA, which is the caller's stack pointer.
    Frame {
        /// The canonical frame address.
        cfa: Cfa,
        /// The caller's `rbp`.
        fp: FramePointer,
        /// The frame was made by a signal: the caller's address is that of an interrupted instruction.
        signal: bool,
    },
    /// A frame made by a signal, on top of which lies what the kernel saved. Bytes from the stack pointer to the slots.
    Context {
        /// Slot of `rsp`.
        sp: i32,
        /// Slot of `rbp`.
        fp: i32,
        /// Slot of `rip`.
        pc: i32,
    },
}

/// A register that addresses are counted from. Others are not kept while walking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// `rsp`.
    StackPointer,
    /// `rbp`.
    FramePointer,
}

/// How the canonical frame address is computed; offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// `base + offset`.
    Offset(Base, i32),
    /// `*(base + offset) + add`: frames whose stack was aligned or switched, after they kept the old stack pointer.
    Load {
        /// The register.
        base: Base,
        /// To the slot.
        offset: i32,
        /// Added to what was loaded.
        add: i32,
    },
    /// `rsp + offset`, and 8 more if the address modulo 16 is at least `pushed_from`: entries of a procedure linkage table.
    Plt {
        /// From `rsp`.
        offset: i32,
        /// Where in an entry of 16 bytes the instruction behind the `push` begins.
        pushed_from: u8,
    },
}

/// Where the caller's `rbp` is; offsets in bytes, multiples of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePointer {
    /// Still in `rbp`.
    Same,
    /// Lost.
    Undefined,
    /// At this offset from the CFA.
    AtCfa(i32),
    /// At this offset from a register of this frame.
    At(Base, i32),
}

// Bits 0 to 3: the kind.
const SP_OFFSET: u64 = 4;
const FP_OFFSET: u64 = 5;
const SP_LOAD: u64 = 6;
const FP_LOAD: u64 = 7;
const PLT: u64 = 8;
const CONTEXT: u64 = 9;

// Bits 4 to 6 of frames: where the caller's `rbp` is; bit 7: made by a signal.
const FP_KIND_AT: u32 = KIND_BITS;
const SAME: u64 = 0;
const UNDEFINED: u64 = 1;
const AT_CFA: u64 = 2;
const AT_SP: u64 = 3;
const AT_FP: u64 = 4;
const SIGNAL: u64 = 1 << 7;

// Bits 8 to 47 by kind. A frame of 8 MiB or more does not fit, nor does a saved rbp 256 KiB away.
type Offset = Field<8, 24, 1>;
type OffsetSlot = Field<32, 16, 8>;
type LoadOffset = Field<8, 16, 1>;
type LoadAdd = Field<24, 10, 8>;
type LoadSlot = Field<34, 14, 8>;
type PltOffset = LoadOffset;
type PltPushedFrom = Field<24, 5, 1>;
type PltSlot = LoadSlot;
type ContextSp = Field<8, 12, 8>;
type ContextFp = Field<20, 12, 8>;
type ContextPc = Field<32, 12, 8>;

impl Form {
    /// The rule that says this; [`Rule::UNSUPPORTED`] if a number does not fit.
    pub const fn encode(self) -> Rule {
        match self.try_encode() {
            Some(bits) => Rule::from_bits(bits),
            None => Rule::UNSUPPORTED,
        }
    }

    const fn try_encode(self) -> Option<u64> {
        let (cfa, fp, signal) = match self {
            Self::None => return Some(Rule::NONE.to_bits()),
            Self::EndOfStack => return Some(END_OF_STACK),
            Self::Unsupported => return Some(UNSUPPORTED),
            Self::NoTable => return Some(NO_TABLE),
            Self::Frame { cfa, fp, signal } => (cfa, fp, signal),
            Self::Context { sp, fp, pc } => {
                return match (
                    ContextSp::unsigned(sp as i64),
                    ContextFp::unsigned(fp as i64),
                    ContextPc::unsigned(pc as i64),
                ) {
                    (Some(sp), Some(fp), Some(pc)) => Some(CONTEXT | sp | fp | pc),
                    _ => None,
                };
            }
        };
        let (fp_kind, slot) = match fp {
            FramePointer::Same => (SAME, 0),
            FramePointer::Undefined => (UNDEFINED, 0),
            FramePointer::AtCfa(slot) => (AT_CFA, slot as i64),
            FramePointer::At(Base::StackPointer, slot) => (AT_SP, slot as i64),
            FramePointer::At(Base::FramePointer, slot) => (AT_FP, slot as i64),
        };
        let head = (fp_kind << FP_KIND_AT) | if signal { SIGNAL } else { 0 };
        match cfa {
            Cfa::Offset(base, offset) => {
                let kind = match base {
                    Base::StackPointer => SP_OFFSET,
                    Base::FramePointer => FP_OFFSET,
                };
                match (Offset::signed(offset as i64), OffsetSlot::signed(slot)) {
                    (Some(offset), Some(slot)) => Some(head | kind | offset | slot),
                    _ => None,
                }
            }
            Cfa::Load { base, offset, add } => {
                let kind = match base {
                    Base::StackPointer => SP_LOAD,
                    Base::FramePointer => FP_LOAD,
                };
                match (LoadOffset::signed(offset as i64), LoadAdd::signed(add as i64), LoadSlot::signed(slot)) {
                    (Some(offset), Some(add), Some(slot)) => Some(head | kind | offset | add | slot),
                    _ => None,
                }
            }
            Cfa::Plt { offset, pushed_from } => {
                match (
                    PltOffset::signed(offset as i64),
                    PltPushedFrom::unsigned(pushed_from as i64),
                    PltSlot::signed(slot),
                ) {
                    (Some(offset), Some(from), Some(slot)) => Some(head | PLT | offset | from | slot),
                    _ => None,
                }
            }
        }
    }

    /// What the rule says; [`Form::Unsupported`] if its bits mean nothing.
    #[inline]
    pub const fn decode(rule: Rule) -> Self {
        let bits = rule.to_bits();
        let kind = bits & ((1 << KIND_BITS) - 1);
        let (cfa, slot) = match kind {
            SP_OFFSET => (Cfa::Offset(Base::StackPointer, Offset::read_signed(bits)), OffsetSlot::read_signed(bits)),
            FP_OFFSET => (Cfa::Offset(Base::FramePointer, Offset::read_signed(bits)), OffsetSlot::read_signed(bits)),
            SP_LOAD | FP_LOAD => {
                let base = if kind == SP_LOAD { Base::StackPointer } else { Base::FramePointer };
                let offset = LoadOffset::read_signed(bits);
                (Cfa::Load { base, offset, add: LoadAdd::read_signed(bits) }, LoadSlot::read_signed(bits))
            }
            PLT => {
                let pushed_from = PltPushedFrom::read_unsigned(bits) as u8;
                (Cfa::Plt { offset: PltOffset::read_signed(bits), pushed_from }, PltSlot::read_signed(bits))
            }
            CONTEXT => {
                let (sp, fp) = (ContextSp::read_unsigned(bits), ContextFp::read_unsigned(bits));
                return Self::Context { sp, fp, pc: ContextPc::read_unsigned(bits) };
            }
            END_OF_STACK => return Self::EndOfStack,
            NO_TABLE => return Self::NoTable,
            _ if bits == 0 => return Self::None,
            _ => return Self::Unsupported,
        };
        let fp = match (bits >> FP_KIND_AT) & 7 {
            SAME => FramePointer::Same,
            UNDEFINED => FramePointer::Undefined,
            AT_CFA => FramePointer::AtCfa(slot),
            AT_SP => FramePointer::At(Base::StackPointer, slot),
            AT_FP => FramePointer::At(Base::FramePointer, slot),
            _ => return Self::Unsupported,
        };
        Self::Frame { cfa, fp, signal: bits & SIGNAL != 0 }
    }
}

/// What nearly all rules say: the CFA is `rsp` or `rbp` plus an offset, the caller's `rbp` is where it was or saved at an offset from the CFA, and no signal made the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Common {
    SpFpSame,
    SpFpSaved,
    FpFpSame,
    FpFpSaved,
}

impl Common {
    /// `None` if the rule says something else.
    #[inline(always)]
    pub(super) const fn of(rule: Rule) -> Option<Self> {
        const SAVED: u64 = AT_CFA << FP_KIND_AT;
        const FROM_SP_SAVED: u64 = SP_OFFSET | SAVED;
        const FROM_FP_SAVED: u64 = FP_OFFSET | SAVED;
        match rule.to_bits() & 0xff {
            SP_OFFSET => Some(Self::SpFpSame),
            FROM_SP_SAVED => Some(Self::SpFpSaved),
            FP_OFFSET => Some(Self::FpFpSame),
            FROM_FP_SAVED => Some(Self::FpFpSaved),
            _ => None,
        }
    }
}

/// The offsets in such a rule: to the CFA, and from there to the slot of `rbp`.
#[inline(always)]
pub(super) const fn common_offsets(rule: Rule) -> (i32, i32) {
    (Offset::read_signed(rule.to_bits()), OffsetSlot::read_signed(rule.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Base::{FramePointer as Fp, StackPointer as Sp};

    #[test]
    fn every_form_survives_packing() {
        let cfas = [
            Cfa::Offset(Sp, 8),
            Cfa::Offset(Sp, 0x7f_ffff),
            Cfa::Offset(Fp, 16),
            Cfa::Offset(Fp, -0x80_0000),
            Cfa::Load { base: Sp, offset: 0x7fff, add: 8 },
            Cfa::Load { base: Fp, offset: -8, add: 0 },
            Cfa::Load { base: Fp, offset: -0x8000, add: -4096 },
            Cfa::Plt { offset: 8, pushed_from: 11 },
        ];
        let fps = [
            FramePointer::Same,
            FramePointer::Undefined,
            FramePointer::AtCfa(-16),
            FramePointer::AtCfa(-65536),
            FramePointer::At(Sp, 65528),
            FramePointer::At(Fp, 0),
        ];
        for cfa in cfas {
            for fp in fps {
                for signal in [false, true] {
                    let form = Form::Frame { cfa, fp, signal };
                    assert_eq!(Form::decode(form.encode()), form);
                }
            }
        }
        for form in [
            Form::None,
            Form::NoTable,
            Form::EndOfStack,
            Form::Unsupported,
            Form::Context { sp: 160, fp: 0, pc: 32760 },
        ] {
            assert_eq!(Form::decode(form.encode()), form);
        }
    }

    #[test]
    fn what_does_not_fit_is_unsupported() {
        let frame = |cfa, fp| Form::Frame { cfa, fp, signal: false }.encode();
        assert_eq!(frame(Cfa::Offset(Sp, 0x80_0000), FramePointer::Same), Rule::UNSUPPORTED);
        assert_eq!(frame(Cfa::Offset(Sp, 16), FramePointer::AtCfa(-12)), Rule::UNSUPPORTED);
        assert_eq!(frame(Cfa::Load { base: Sp, offset: 0, add: 4 }, FramePointer::Same), Rule::UNSUPPORTED);
        assert_eq!(Form::Context { sp: -8, fp: 0, pc: 0 }.encode(), Rule::UNSUPPORTED);
    }

    #[test]
    fn bits_that_mean_nothing_are_unsupported() {
        assert_eq!(Form::decode(Rule::from_bits(0xf)), Form::Unsupported);
        assert_eq!(Form::decode(Rule::from_bits(0x10)), Form::Unsupported, "no kind, but not empty either");
        assert_eq!(Form::decode(Rule::from_bits(SP_OFFSET | 7 << FP_KIND_AT)), Form::Unsupported);
    }
}
