use crate::input::Input;
use std::fmt::Debug;
use unwind::{Rule, Unwind, aarch64, x86_64};

/// What making registers and rules needs to know of an architecture.
pub(super) trait Machine: Unwind + PartialEq + Debug {
    /// Registers; what an architecture does not have is ignored.
    fn new(pc: u64, sp: u64, fp: Option<u64>, lr: Option<u64>) -> Self;
    fn with_sp(self, sp: u64) -> Self;
    /// A rule as compilers make them, with small numbers.
    fn rule(kind: u8, input: &mut Input<'_>) -> Rule;
}

/// Rules of one word.
fn plain_rule(kind: u8) -> Rule {
    match kind >> 2 & 3 {
        0 => Rule::NONE,
        1 => Rule::NO_TABLE,
        2 => Rule::UNSUPPORTED,
        _ => Rule::END_OF_STACK,
    }
}

fn small(input: &mut Input<'_>) -> i32 {
    8 * i32::from(input.u8() as i8)
}

impl Machine for x86_64::Registers {
    fn new(pc: u64, sp: u64, fp: Option<u64>, _lr: Option<u64>) -> Self {
        Self { pc, sp, fp }
    }

    fn with_sp(self, sp: u64) -> Self {
        Self { sp, ..self }
    }

    fn rule(kind: u8, input: &mut Input<'_>) -> Rule {
        use x86_64::{Base, Cfa, Form, FramePointer};
        if kind >= 0xf0 {
            return plain_rule(kind);
        }
        if kind >= 0xe0 {
            let mut slot = || 8 * i32::from(input.u8());
            return Form::Context { sp: slot(), fp: slot(), pc: slot() }.encode();
        }
        let base = if kind & 4 == 0 { Base::StackPointer } else { Base::FramePointer };
        let cfa = match kind >> 3 & 7 {
            0 => Cfa::Load { base, offset: small(input), add: small(input) },
            1 => Cfa::Plt { offset: small(input), pushed_from: input.u8() & 15 },
            2 => Cfa::Offset(base, i32::from(input.i16())),
            _ => Cfa::Offset(base, small(input)),
        };
        let fp = match kind >> 6 {
            0 => FramePointer::Same,
            1 => FramePointer::AtCfa(small(input)),
            2 => FramePointer::At(base, small(input)),
            _ => FramePointer::Undefined,
        };
        Form::Frame { cfa, fp, signal: kind % 32 == 1 }.encode()
    }
}

impl Machine for aarch64::Registers {
    fn new(pc: u64, sp: u64, fp: Option<u64>, lr: Option<u64>) -> Self {
        Self { pc, sp, fp, lr }
    }

    fn with_sp(self, sp: u64) -> Self {
        Self { sp, ..self }
    }

    fn rule(kind: u8, input: &mut Input<'_>) -> Rule {
        use aarch64::{Base, Form, Saved};
        if kind >= 0xf0 {
            return plain_rule(kind);
        }
        if kind >= 0xe0 {
            let mut slot = || 8 * i32::from(input.u8());
            return Form::Context { sp: slot(), fp: slot(), pc: slot(), lr: slot() }.encode();
        }
        let base = if kind & 4 == 0 { Base::StackPointer } else { Base::FramePointer };
        let mut saved = |kind| match kind & 3 {
            0 => Saved::InRegister,
            1 => Saved::Undefined,
            _ => Saved::AtCfa(small(input)),
        };
        let (lr, fp) = (saved(kind >> 3), saved(kind >> 5));
        Form::Frame { base, cfa: small(input), lr, fp, signal: kind % 32 == 1 }.encode()
    }
}
