use crate::Rule;
use crate::build::{Compile, Computed, Row, Saved};
use crate::x86_64::{Base, Cfa, Form, FramePointer, Registers};

const RSP: u16 = 7;
const RBP: u16 = 6;

impl Compile for Registers {
    const SP: u16 = RSP;
    const FP: u16 = RBP;
    const RA: u16 = 16;
    const VENDOR: gimli::Vendor = gimli::Vendor::Default;

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
        Saved::At(Computed::Register { register: RSP, offset }) => i32::try_from(offset).ok(),
        _ => None,
    };
    let Computed::Load { register: RSP, offset: cfa, add: 0 } = row.cfa else { return None };
    let (sp, fp, pc) = (slot(row.sp)?, slot(row.fp)?, slot(row.ra)?);
    if signal && i64::from(sp) == cfa { Some(Form::Context { sp, fp, pc }) } else { None }
}

fn frame(row: &Row, signal: bool) -> Option<Form> {
    if row.ra != Saved::AtCfa(-8) || !matches!(row.sp, Saved::Unspecified | Saved::CfaPlus(0)) {
        return None;
    }
    let cfa = match row.cfa {
        Computed::Register { register, offset } => Cfa::Offset(base(register)?, i32::try_from(offset).ok()?),
        Computed::Load { register, offset, add } => {
            Cfa::Load { base: base(register)?, offset: i32::try_from(offset).ok()?, add: i32::try_from(add).ok()? }
        }
        Computed::Plt { register: RSP, offset, ra: Registers::RA, pushed_from } => {
            Cfa::Plt { offset: i32::try_from(offset).ok()?, pushed_from: u8::try_from(pushed_from).ok()? }
        }
        Computed::Plt { .. } | Computed::Unknown => return None,
    };
    let fp = match row.fp {
        Saved::Unspecified | Saved::Same => FramePointer::Same,
        Saved::Undefined => FramePointer::Undefined,
        Saved::AtCfa(offset) => FramePointer::AtCfa(i32::try_from(offset).ok()?),
        Saved::At(Computed::Register { register, offset }) => {
            FramePointer::At(base(register)?, i32::try_from(offset).ok()?)
        }
        Saved::CfaPlus(_) | Saved::At(_) | Saved::Unknown => return None,
    };
    Some(Form::Frame { cfa, fp, signal })
}

/// Only two registers are kept. Another (r10 in prologues that align the stack, rdi in `setcontext`) would have to be kept from a
/// signal's context to the leaf's step, and from the slots of callee-saved registers for the rest.
fn base(register: u16) -> Option<Base> {
    match register {
        RSP => Some(Base::StackPointer),
        RBP => Some(Base::FramePointer),
        _ => None,
    }
}
