use crate::Rule;
use crate::cfi::{Compile, Computed, Row, Saved};
use crate::x86_64::{Base, Cfa, Form, FramePointer, Registers};

const RSP: u16 = 7;
const RBP: u16 = 6;

impl Compile for Registers {
    const SP: u16 = RSP;
    const FP: u16 = RBP;
    const RA: u16 = 16;
    // rbx, rbp, r12 to r15.
    const CALLEE_SAVED: u64 = 1 << 3 | 1 << 6 | 0xf << 12;

    fn rule(row: &Row, signal: bool) -> Rule {
        if row.ra == Saved::Undefined {
            return Rule::END_OF_STACK;
        }
        context(row, signal).or_else(|| frame(row, signal)).map_or(Rule::UNSUPPORTED, Form::encode)
    }
}

/// A frame made by a signal: glibc describes every register by an expression.
fn context(row: &Row, signal: bool) -> Option<Form> {
    let slot = |saved| match saved {
        Saved::At(Computed::Register { register: RSP, offset }) => Some(offset),
        _ => None,
    };
    let Computed::Load { register: RSP, offset: cfa, add: 0 } = row.cfa else { return None };
    let (sp, fp, pc) = (slot(row.sp)?, slot(row.fp)?, slot(row.ra)?);
    if signal && sp == cfa { Some(Form::Context { sp, fp, pc }) } else { None }
}

fn frame(row: &Row, signal: bool) -> Option<Form> {
    if row.ra != Saved::AtCfa(-8) || !matches!(row.sp, Saved::Unspecified | Saved::CfaPlus(0)) {
        return None;
    }
    let cfa = match row.cfa {
        Computed::Register { register, offset } => Cfa::Offset(base(register)?, offset),
        Computed::Load { register, offset, add } => Cfa::Load { base: base(register)?, offset, add },
        Computed::Plt { register: RSP, offset, ra: Registers::RA, pushed_from } => Cfa::Plt { offset, pushed_from },
        Computed::LoadIndexed { .. } | Computed::Plt { .. } | Computed::Unknown => return None,
    };
    let fp = match row.fp {
        Saved::Unspecified | Saved::Same => FramePointer::Same,
        Saved::Undefined => FramePointer::Undefined,
        Saved::AtCfa(offset) => FramePointer::AtCfa(offset),
        Saved::At(Computed::Register { register, offset }) => FramePointer::At(base(register)?, offset),
        Saved::CfaPlus(_) | Saved::At(_) | Saved::Register(_) | Saved::Unknown => return None,
    };
    Some(Form::Frame { cfa, fp, signal })
}

/// Only two registers are kept while walking. Where another counts (rbx in the dynamic linker, r10 in prologues that align the stack, any in hand-written code), the step is
/// made with all of them: [`full`](crate::full).
fn base(register: u16) -> Option<Base> {
    match register {
        RSP => Some(Base::StackPointer),
        RBP => Some(Base::FramePointer),
        _ => None,
    }
}
