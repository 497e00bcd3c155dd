use crate::fake::Stack;
use crate::x86_64::{Base, Cfa, Form, FramePointer, PERF_TRAMPOLINE, Registers, SIGNAL_FRAME};
use crate::{Caller, FrameAddress, Rule, Slots, Truncated, Unwind as _};

/// The stack pointer of every test; the words of the stacks begin here unless said otherwise.
const SP: u64 = 0x7000;
const RETURN: u64 = 0x40_1234;

fn leaf(fp: Option<u64>) -> Registers {
    Registers { pc: 0x40_0000, sp: SP, fp }
}

fn frame(cfa: Cfa, fp: FramePointer) -> Rule {
    Form::Frame { cfa, fp, signal: false }.encode()
}

fn caller(rule: Rule, fp: Option<u64>, stack: &[u64]) -> Caller<Registers> {
    leaf(fp).step(rule, &mut Stack(SP, stack)).unwrap().unwrap()
}

fn reason(rule: Rule, fp: Option<u64>, stack: &[u64]) -> Truncated {
    leaf(fp).step(rule, &mut Stack(SP, stack)).unwrap_err()
}

#[test]
fn at_the_first_instruction_the_return_address_is_on_top() {
    let caller = caller(frame(Cfa::Offset(Base::StackPointer, 8), FramePointer::Same), Some(0xabc), &[RETURN]);
    assert_eq!(caller.registers, Registers { pc: RETURN, sp: SP + 8, fp: Some(0xabc) });
    assert_eq!(caller.address, FrameAddress::ReturnAddress(RETURN));
    assert_eq!(caller.slots, Slots { return_address: Some(SP), ..Slots::default() });
    assert!(!caller.stack_switch);
}

#[test]
fn a_saved_frame_pointer_is_restored_and_its_slot_reported() {
    let rule = frame(Cfa::Offset(Base::StackPointer, 32), FramePointer::AtCfa(-16));
    let caller = caller(rule, None, &[1, 2, 0xbeef, RETURN]);
    assert_eq!(caller.registers, Registers { pc: RETURN, sp: SP + 32, fp: Some(0xbeef) });
    assert_eq!((caller.slots.return_address, caller.slots.frame_pointer), (Some(SP + 24), Some(SP + 16)));
}

#[test]
fn a_frame_is_found_by_its_frame_pointer() {
    let rule = frame(Cfa::Offset(Base::FramePointer, 16), FramePointer::AtCfa(-16));
    let caller = caller(rule, Some(SP + 16), &[1, 2, 0xbeef, RETURN]);
    assert_eq!(caller.registers, Registers { pc: RETURN, sp: SP + 32, fp: Some(0xbeef) });
}

#[test]
fn a_frame_pointer_that_is_lost_ends_the_walk_where_it_is_needed() {
    let lost = caller(frame(Cfa::Offset(Base::StackPointer, 8), FramePointer::Undefined), Some(SP), &[RETURN]);
    assert_eq!(lost.registers.fp, None);
    let needed = frame(Cfa::Offset(Base::FramePointer, 16), FramePointer::Same);
    assert_eq!(reason(needed, None, &[RETURN, RETURN]), Truncated::FramePointerUnknown);
    let needed = frame(Cfa::Offset(Base::StackPointer, 8), FramePointer::At(Base::FramePointer, 0));
    assert_eq!(reason(needed, None, &[RETURN, RETURN]), Truncated::FramePointerUnknown);
}

#[test]
fn a_frame_that_aligned_its_stack_keeps_the_cfa_in_memory() {
    // push rbp; mov rbp, rsp; push r10, which holds the CFA: breg6 -8, deref; rbp at breg6 0.
    let rule =
        frame(Cfa::Load { base: Base::FramePointer, offset: -8, add: 0 }, FramePointer::At(Base::FramePointer, 0));
    let stack = [0, SP + 48, 0xbeef, RETURN, 0, RETURN + 1];
    let caller = caller(rule, Some(SP + 16), &stack);
    assert_eq!(caller.registers, Registers { pc: RETURN + 1, sp: SP + 48, fp: Some(0xbeef) });
    let slots =
        Slots { return_address: Some(SP + 40), frame_pointer: Some(SP + 16), cfa: Some(SP + 8), link_register: None };
    assert_eq!(caller.slots, slots);
}

#[test]
fn a_frame_that_keeps_the_old_stack_pointer_on_its_new_stack_is_left_by_it() {
    let rule = frame(Cfa::Load { base: Base::StackPointer, offset: 8, add: 8 }, FramePointer::AtCfa(-16));
    let caller = caller(rule, None, &[0, SP + 32, 0, 0xbeef, RETURN]);
    assert_eq!(caller.registers, Registers { pc: RETURN, sp: SP + 40, fp: Some(0xbeef) });
}

#[test]
fn an_entry_of_the_linkage_table_has_pushed_from_its_second_instruction_on() {
    let rule = frame(Cfa::Plt { offset: 8, pushed_from: 11 }, FramePointer::Same);
    let mut stack = Stack(SP, &[1, RETURN]);
    for (pc, sp) in [(0x1000, 8), (0x100a, 8), (0x100b, 16), (0x100f, 16), (0x1010, 8)] {
        let caller = Registers { pc, ..leaf(None) }.step(rule, &mut stack).unwrap().unwrap();
        assert_eq!(caller.registers.sp, SP + sp, "{pc:#x}");
    }
}

#[test]
fn a_signal_frame_gives_what_was_interrupted() {
    let mut stack = [0; 30];
    (stack[15], stack[20], stack[21]) = (0xbeef, SP + 1024, RETURN);
    let below = caller(SIGNAL_FRAME, None, &stack);
    assert_eq!(below.registers, Registers { pc: RETURN, sp: SP + 1024, fp: Some(0xbeef) });
    assert_eq!(below.address, FrameAddress::Instruction(RETURN), "nothing was called there");
    assert!(!below.stack_switch);

    stack[20] = 0x3000;
    assert!(caller(SIGNAL_FRAME, None, &stack).stack_switch, "the handler ran on a stack of its own");
    assert_eq!(reason(SIGNAL_FRAME, None, &stack[..21]), Truncated::StackUnreadable);
}

#[test]
fn an_ordinary_rule_of_a_signal_frame_gives_an_instruction() {
    let rule = Form::Frame { cfa: Cfa::Offset(Base::StackPointer, 8), fp: FramePointer::Same, signal: true };
    assert_eq!(caller(rule.encode(), None, &[RETURN]).address, FrameAddress::Instruction(RETURN));
}

#[test]
fn the_perf_trampoline_of_cpython_is_stepped_over() {
    let caller = caller(PERF_TRAMPOLINE, Some(0xbeef), &[0, RETURN]);
    assert_eq!(caller.registers, Registers { pc: RETURN, sp: SP + 16, fp: Some(0xbeef) });
}

#[test]
fn the_root_is_marked_or_has_no_return_address() {
    assert_eq!(leaf(None).step(Rule::END_OF_STACK, &mut Stack(SP, &[])), Ok(None));
    let rule = frame(Cfa::Offset(Base::StackPointer, 8), FramePointer::Same);
    assert_eq!(leaf(None).step(rule, &mut Stack(SP, &[0])), Ok(None));
}

#[test]
fn the_stack_pointer_may_fall_only_where_stacks_are_switched() {
    for rule in [
        frame(Cfa::Offset(Base::StackPointer, 0), FramePointer::Same),
        frame(Cfa::Offset(Base::StackPointer, -8), FramePointer::Same),
        frame(Cfa::Plt { offset: -8, pushed_from: 11 }, FramePointer::Same),
        frame(Cfa::Offset(Base::FramePointer, 16), FramePointer::Same),
    ] {
        assert_eq!(reason(rule, Some(SP - 16), &[RETURN]), Truncated::NoProgress);
    }
    let rule = frame(Cfa::Offset(Base::FramePointer, 16), FramePointer::Same);
    let caller = leaf(Some(0x100)).step(rule, &mut Stack(0x100, &[0, RETURN])).unwrap().unwrap();
    assert_eq!((caller.registers.sp, caller.stack_switch), (0x110, true));
}

#[test]
fn what_cannot_be_read_or_expressed_is_said() {
    let rule = frame(Cfa::Offset(Base::StackPointer, 16), FramePointer::AtCfa(-24));
    assert_eq!(reason(rule, None, &[0]), Truncated::StackUnreadable, "the return address");
    assert_eq!(reason(rule, None, &[0, RETURN]), Truncated::StackUnreadable, "the frame pointer");
    let rule = frame(Cfa::Load { base: Base::StackPointer, offset: 8, add: 0 }, FramePointer::Same);
    assert_eq!(reason(rule, None, &[0]), Truncated::StackUnreadable, "the CFA");
    assert_eq!(reason(Rule::UNSUPPORTED, Some(SP), &[0, RETURN]), Truncated::UnsupportedRule);
    assert_eq!(reason(Rule::NO_TABLE, Some(SP), &[0, RETURN]), Truncated::NoTable, "the plausible chain is not tried");
}

#[test]
fn without_a_rule_a_plausible_chain_of_frame_pointers_is_followed() {
    // Code that can be read lies behind the stack.
    let code = SP + 32;
    let caller = caller(Rule::NONE, Some(SP + 8), &[0, SP + 64, code, 0]);
    assert_eq!(caller.registers, Registers { pc: code, sp: SP + 24, fp: Some(SP + 64) });
    assert_eq!((caller.slots.return_address, caller.slots.frame_pointer), (Some(SP + 16), Some(SP + 8)));
}

#[test]
fn without_a_rule_anything_may_be_in_the_callers_frame_pointer_if_a_call_leads_on() {
    let relative = u64::from_le_bytes([0, 0, 0, 0xe8, 1, 2, 3, 4]);
    let indirect =
        [[0xff, 0xd1, 0], [0xff, 0x55, 8]].map(|call| u64::from_le_bytes([0, 0, 0, 0, 0, call[0], call[1], call[2]]));
    for (code, follows) in [(relative, true), (indirect[0].rotate_left(8), true), (indirect[1], true), (0, false)] {
        for saved in [5, SP, SP + 8] {
            let stepped = leaf(Some(SP + 8)).step(Rule::NONE, &mut Stack(SP, &[0, saved, SP + 32, code]));
            assert_eq!(stepped.is_ok(), follows, "{code:#x}");
        }
    }
}

#[test]
fn an_implausible_chain_of_frame_pointers_is_not_followed() {
    let stack = [0, SP + 64, SP + 32, 0];
    for (fp, stack, why) in [
        (None, stack, "unknown"),
        (Some(SP + 9), stack, "not aligned"),
        (Some(SP - 8), stack, "below the stack pointer"),
        (Some(SP + 24), stack, "return address unreadable"),
        (Some(SP + 32), stack, "unreadable"),
        (Some(u64::MAX - 7), stack, "at the end of the address space"),
        (Some(SP + 8), [0, SP + 8, SP + 32, 0], "points to itself"),
        (Some(SP + 8), [0, SP, SP + 32, 0], "goes down"),
        (Some(SP + 8), [0, SP + 64, 0, 0], "no return address"),
        (Some(SP + 8), [0, SP + 64, 4095, 0], "no code there"),
        (Some(SP + 8), [0, SP + 64, RETURN, 0], "no memory there"),
    ] {
        assert_eq!(reason(Rule::NONE, fp, &stack), Truncated::NoTable, "{why}");
    }
}
