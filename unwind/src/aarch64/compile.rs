use crate::Rule;
use crate::aarch64::registers::strip;
use crate::aarch64::{self, Base, Form, Registers};
use crate::cfi::{Compile, Computed, Row, Saved};

const SP: u16 = 31;
const X29: u16 = 29;
const X30: u16 = 30;

impl Compile for Registers {
    const SP: u16 = SP;
    const FP: u16 = X29;
    const RA: u16 = X30;
    // x19 to x29.
    const CALLEE_SAVED: u64 = 0x7ff << 19;

    fn code_address(word: u64) -> u64 {
        strip(word)
    }

    fn rule(row: &Row, signal: bool) -> Rule {
        frame(row, signal).map_or(Rule::UNSUPPORTED, Form::encode)
    }
}

fn frame(row: &Row, signal: bool) -> Option<Form> {
    if !matches!(row.sp, Saved::Unspecified | Saved::CfaPlus(0)) {
        return None;
    }
    let lr = saved(row.ra)?;
    if lr == aarch64::Saved::Undefined {
        return Some(Form::EndOfStack);
    }
    let Computed::Register { register, offset: cfa } = row.cfa else { return None };
    let base = match register {
        SP => Base::StackPointer,
        X29 => Base::FramePointer,
        _ => return None,
    };
    let fp = saved(row.fp)?;
    if lr == RETURN_ADDRESS_ABOVE && base == Base::StackPointer {
        return Some(resolver(cfa, fp, signal));
    }
    Some(Form::Frame { base, cfa, lr, fp, signal })
}

/// A return address in the caller's frame, where none is saved.
const RETURN_ADDRESS_ABOVE: aarch64::Saved = aarch64::Saved::AtCfa(8);

/// What glibc's `_dl_runtime_resolve` says of itself leaves out the two words that the head of the linkage table had pushed, `x30` being the upper one.
fn resolver(cfa: i32, fp: aarch64::Saved, signal: bool) -> Form {
    const PUSHED: i32 = 16;
    let cfa = cfa.wrapping_add(PUSHED);
    // Behind the instruction that pops both, `x30` has it.
    let lr = if cfa == 0 { aarch64::Saved::InRegister } else { aarch64::Saved::AtCfa(-8) };
    let fp = match fp {
        aarch64::Saved::AtCfa(offset) => aarch64::Saved::AtCfa(offset.wrapping_sub(PUSHED)),
        other => other,
    };
    Form::Frame { base: Base::StackPointer, cfa, lr, fp, signal }
}

fn saved(saved: Saved) -> Option<aarch64::Saved> {
    match saved {
        Saved::Unspecified | Saved::Same => Some(aarch64::Saved::InRegister),
        Saved::Undefined => Some(aarch64::Saved::Undefined),
        Saved::AtCfa(offset) => Some(aarch64::Saved::AtCfa(offset)),
        Saved::CfaPlus(_) | Saved::At(_) | Saved::Register(_) | Saved::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cfa: i32, ra: Saved) -> Row {
        Row { cfa: Computed::Register { register: SP, offset: cfa }, ra, ..Row::EMPTY }
    }

    fn form(cfa: i32, lr: aarch64::Saved) -> Form {
        Form::Frame { base: Base::StackPointer, cfa, lr, fp: aarch64::Saved::InRegister, signal: false }
    }

    #[test]
    fn what_the_linkage_table_pushed_is_added_to_the_frame_of_glibcs_resolver() {
        // Before, in and behind its frame; then it has popped what the table had pushed.
        for (described, real) in [(0, 16), (208, 224), (64, 80)] {
            let rule = Registers::rule(&row(described, Saved::AtCfa(8)), false);
            assert_eq!(Form::decode(rule), form(real, aarch64::Saved::AtCfa(-8)));
        }
        let rule = Registers::rule(&row(-16, Saved::AtCfa(8)), false);
        assert_eq!(Form::decode(rule), form(0, aarch64::Saved::InRegister));
    }

    #[test]
    fn a_frame_counted_from_the_frame_pointer_is_taken_at_its_word() {
        let described = Row { cfa: Computed::Register { register: X29, offset: 32 }, ..row(0, Saved::AtCfa(8)) };
        let form = Form::decode(Registers::rule(&described, false));
        assert!(matches!(form, Form::Frame { base: Base::FramePointer, cfa: 32, lr: aarch64::Saved::AtCfa(8), .. }));
    }

    #[test]
    fn registers_that_are_not_kept_are_unsupported() {
        let elsewhere = Row { cfa: Computed::Register { register: 12, offset: 0 }, ..row(0, Saved::AtCfa(-8)) };
        for described in [elsewhere, row(0, Saved::Register(15)), row(0, Saved::Unknown)] {
            assert_eq!(Registers::rule(&described, false), Rule::UNSUPPORTED);
        }
    }
}
