use crate::aarch64::{Base, Form, PERF_TRAMPOLINE, Registers, SIGNAL_FRAME, Saved};
use crate::fake::Stack;
use crate::{Caller, FrameAddress, Rule, Slots, Truncated, Unwind as _};

/// The stack pointer of every test; the words of the stacks begin here.
const SP: u64 = 0x7000;
const RETURN: u64 = 0x40_1234;

fn leaf(fp: Option<u64>, lr: Option<u64>) -> Registers {
    Registers { pc: 0x40_0000, sp: SP, fp, lr }
}

fn frame(base: Base, cfa: i32, lr: Saved, fp: Saved) -> Rule {
    Form::Frame { base, cfa, lr, fp, signal: false }.encode()
}

fn caller(rule: Rule, registers: Registers, stack: &[u64]) -> Caller<Registers> {
    registers.step(rule, &mut Stack(SP, stack)).unwrap().unwrap()
}

const LEAF: fn() -> Rule = || frame(Base::StackPointer, 0, Saved::InRegister, Saved::InRegister);

#[test]
fn a_leaf_without_a_frame_returns_to_the_link_register() {
    let caller = caller(LEAF(), leaf(Some(0xbeef), Some(RETURN)), &[]);
    assert_eq!(caller.registers, Registers { pc: RETURN, sp: SP, fp: Some(0xbeef), lr: None });
    assert_eq!(caller.address, FrameAddress::ReturnAddress(RETURN));
    assert_eq!((caller.slots, caller.stack_switch), (Slots::default(), false));
}

#[test]
fn only_a_leaf_returns_to_the_link_register() {
    let reason = leaf(Some(0xbeef), None).step(LEAF(), &mut Stack(SP, &[])).unwrap_err();
    assert_eq!(reason, Truncated::NoProgress, "it was overwritten by the call");
}

#[test]
fn a_frame_record_is_restored_and_its_slots_reported() {
    for (base, offset) in [(Base::StackPointer, 32), (Base::FramePointer, 16)] {
        let rule = frame(base, offset, Saved::AtCfa(-8), Saved::AtCfa(-16));
        let caller = caller(rule, leaf(Some(SP + 16), None), &[0, 0, 0xbeef, RETURN]);
        assert_eq!(caller.registers, Registers { pc: RETURN, sp: SP + 32, fp: Some(0xbeef), lr: None });
        assert_eq!((caller.slots.return_address, caller.slots.frame_pointer), (Some(SP + 24), Some(SP + 16)));
    }
}

#[test]
fn the_pointer_authentication_code_is_no_part_of_the_address() {
    let signed = RETURN | 0x00b5 << 48;
    assert_eq!(caller(LEAF(), leaf(None, Some(signed)), &[]).registers.pc, RETURN);
    let rule = frame(Base::StackPointer, 16, Saved::AtCfa(-8), Saved::InRegister);
    assert_eq!(caller(rule, leaf(None, None), &[0, signed]).registers.pc, RETURN);
    // Without a rule, the code has to be there: it lies behind the stack.
    let signed = (SP + 24) | 0x00b5 << 48;
    assert_eq!(caller(Rule::NONE, leaf(Some(SP), None), &[0, signed, 0]).registers.pc, SP + 24);
}

#[test]
fn a_signal_frame_gives_what_was_interrupted_with_its_link_register() {
    let mut stack = [0; 72];
    (stack[68], stack[69], stack[70], stack[71]) = (0xbeef, RETURN + 4, SP + 4096, RETURN);
    let caller = caller(SIGNAL_FRAME, leaf(None, None), &stack);
    let registers = Registers { pc: RETURN, sp: SP + 4096, fp: Some(0xbeef), lr: Some(RETURN + 4) };
    assert_eq!(caller.registers, registers);
    assert_eq!(caller.address, FrameAddress::Instruction(RETURN));
}

#[test]
fn the_perf_trampoline_of_cpython_is_stepped_over() {
    let caller = caller(PERF_TRAMPOLINE, leaf(Some(SP), None), &[0xbeef, RETURN]);
    assert_eq!(caller.registers, Registers { pc: RETURN, sp: SP + 16, fp: Some(0xbeef), lr: None });
}

#[test]
fn the_root_is_marked_or_has_no_return_address() {
    assert_eq!(leaf(None, None).step(Rule::END_OF_STACK, &mut Stack(SP, &[])), Ok(None));
    assert_eq!(leaf(None, Some(0)).step(LEAF(), &mut Stack(SP, &[])), Ok(None));
}

#[test]
fn the_stack_pointer_may_stay_in_a_leaf_only_and_fall_only_where_stacks_are_switched() {
    let rule = frame(Base::StackPointer, 0, Saved::AtCfa(0), Saved::InRegister);
    assert_eq!(leaf(None, None).step(rule, &mut Stack(SP, &[RETURN])), Err(Truncated::NoProgress));
    let rule = frame(Base::StackPointer, -16, Saved::InRegister, Saved::InRegister);
    assert_eq!(leaf(None, Some(RETURN)).step(rule, &mut Stack(SP, &[])), Err(Truncated::NoProgress));
    let rule = frame(Base::FramePointer, 16, Saved::AtCfa(-8), Saved::AtCfa(-16));
    let caller = leaf(Some(0x100), None).step(rule, &mut Stack(0x100, &[0, RETURN])).unwrap().unwrap();
    assert_eq!((caller.registers.sp, caller.stack_switch), (0x110, true));
}

#[test]
fn what_is_unknown_unreadable_or_unsupported_is_said() {
    let rule = frame(Base::FramePointer, 16, Saved::AtCfa(-8), Saved::AtCfa(-16));
    assert_eq!(leaf(None, None).step(rule, &mut Stack(SP, &[])), Err(Truncated::FramePointerUnknown));
    assert_eq!(leaf(Some(SP), None).step(rule, &mut Stack(SP, &[0])), Err(Truncated::StackUnreadable));
    assert_eq!(leaf(Some(SP), None).step(Rule::UNSUPPORTED, &mut Stack(SP, &[])), Err(Truncated::UnsupportedRule));
    assert_eq!(leaf(Some(SP), None).step(Rule::NONE, &mut Stack(SP, &[SP, RETURN])), Err(Truncated::NoTable));
}
