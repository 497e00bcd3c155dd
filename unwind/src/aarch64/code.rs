//! Rules from the code itself, for the few well-known pieces that have no unwind information.

use crate::aarch64::{Base, Form, Saved};
use crate::{FrameAddress, Memory, Rule};

/// The rule inside CPython's perf trampoline (`python -X perf`), from after its first to before its last instruction.
pub const PERF_TRAMPOLINE: Rule =
    Form::Frame { base: Base::StackPointer, cfa: 16, lr: Saved::AtCfa(-8), fp: Saved::AtCfa(-16), signal: false }
        .encode();

/// The rule where signal handlers return to: the stack pointer is at Linux' `siginfo_t` (128 bytes), then `ucontext_t`.
pub const SIGNAL_FRAME: Rule = Form::Context { sp: 128 + 432, fp: 128 + 416, pc: 128 + 440, lr: 128 + 424 }.encode();

/// Where nothing was saved yet, or everything restored.
const LEAF: Rule =
    Form::Frame { base: Base::StackPointer, cfa: 0, lr: Saved::InRegister, fp: Saved::InRegister, signal: false }
        .encode();

/// In the head of a procedure linkage table, behind its `stp`.
const PUSHED: Rule =
    Form::Frame { base: Base::StackPointer, cfa: 16, lr: Saved::AtCfa(-8), fp: Saved::InRegister, signal: false }
        .encode();

/// Instructions with the bits that count.
type Shape<const N: usize> = [(u32, u32); N];

const ALL: u32 = u32::MAX;
/// `stp x29, x30, [sp, #-16]!; mov x29, sp; blr x3; ldp x29, x30, [sp], #16; ret`: one such run for each Python function.
const TRAMPOLINE: Shape<5> =
    [(0xa9bf_7bfd, ALL), (0x9100_03fd, ALL), (0xd63f_0060, ALL), (0xa8c1_7bfd, ALL), (0xd65f_03c0, ALL)];
/// `mov x8, #139; svc #0`, in the vDSO.
const SIGNAL_RETURN: Shape<2> = [(0xd280_1168, ALL), (0xd400_0001, ALL)];
/// `bti c`, in front of code that is jumped to.
const MARK: Shape<1> = [(0xd503_245f, ALL)];
/// `adrp x16, page; ldr x17, [x16, slot]; add x16, x16, slot; br x17`, an entry of a procedure linkage table.
const LINKAGE: Shape<4> =
    [(0x9000_0010, 0x9f00_001f), (0xf940_0211, 0xffc0_03ff), (0x9100_0210, 0xffc0_03ff), (0xd61f_0220, ALL)];
/// `stp x16, x30, [sp, #-16]!` and the like of an entry: the head of the table, through which functions are bound at their first call.
const HEAD: Shape<5> = [(0xa9bf_7bf0, ALL), LINKAGE[0], LINKAGE[1], LINKAGE[2], LINKAGE[3]];
/// `adrp x16, page; add x16, x16, offset; br x16`: linkers put it between a call and a function that is too far away.
const VENEER: Shape<3> = [LINKAGE[0], LINKAGE[2], (0xd61f_0200, ALL)];
/// `mov x0, x19; cbnz x0, setcontext; b exit`, behind a `nop` or `bti c`: where the function of a `makecontext` returns to.
const CONTEXT_RETURN: Shape<3> = [(0xaa13_03e0, ALL), (0xb500_0000, 0xff00_001f), (0x1400_0000, 0xfc00_0000)];

/// The rule for code that no table covers, if it is one of these: a procedure linkage table, a jump that a linker made for a far function, the return from a signal
/// handler or to the start of a context, CPython's perf trampoline.
///
/// `code` reads instructions here. What it cannot read does not match.
#[cold]
pub fn rule_from_code<M: Memory>(address: FrameAddress, code: &mut M) -> Option<Rule> {
    let pc = address.address();
    // Whether a piece of this shape begins that many instructions from here.
    let mut is = |shape: &[(u32, u32)], distance: i64| {
        let start = pc.wrapping_add_signed(distance.wrapping_mul(4));
        shape.iter().zip((0_u64..).step_by(4)).all(|((bits, mask), offset)| {
            instruction(start.wrapping_add(offset), code).is_some_and(|found| found & mask == *bits)
        })
    };
    if is(&SIGNAL_RETURN, 0) {
        return Some(SIGNAL_FRAME);
    }
    if matches!(address, FrameAddress::ReturnAddress(_)) {
        let root = (0..=1).any(|distance| is(&CONTEXT_RETURN, distance)).then_some(Rule::END_OF_STACK);
        return if is(&TRAMPOLINE, -3) { Some(PERF_TRAMPOLINE) } else { root };
    }
    if is(&SIGNAL_RETURN, -1) {
        return Some(SIGNAL_FRAME);
    }
    if (-3..=-1).any(|distance| is(&TRAMPOLINE, distance)) {
        return Some(PERF_TRAMPOLINE);
    }
    // Before entries: it ends like one.
    if (-4..=-1).any(|distance| is(&HEAD, distance)) {
        return Some(PUSHED);
    }
    let leaf = is(&TRAMPOLINE, 0)
        || is(&TRAMPOLINE, -4)
        || is(&HEAD, 0)
        || (-3..=0).any(|distance| is(&LINKAGE, distance))
        || (-2..=0).any(|distance| is(&VENEER, distance))
        || (is(&MARK, 0) && (is(&HEAD, 1) || is(&LINKAGE, 1) || is(&VENEER, 1)));
    if leaf { Some(LEAF) } else { None }
}

/// The rule at an instruction where code that keeps a frame pointer has its caller's: its first two, `stp x29, x30, [sp, #-n]!; mov x29, sp`, and its last, `ret`.
#[cold]
pub fn rule_without_frame<M: Memory>(address: FrameAddress, code: &mut M) -> Option<Rule> {
    const PUSH: (u32, u32) = (0xa9a0_7bfd, 0xffe0_7fff);
    const FRAME_POINTER: u32 = 0x9100_03fd;
    const RETURN: u32 = 0xd65f_03c0;
    if matches!(address, FrameAddress::ReturnAddress(_)) {
        return None;
    }
    let is_push = |found: u32| found & PUSH.1 == PUSH.0;
    let here = instruction(address.address(), code)?;
    if here == RETURN || is_push(here) {
        return Some(LEAF);
    }
    let before = instruction(address.address().wrapping_sub(4), code).filter(|before| is_push(*before))?;
    // Seven bits, in units of eight bytes, negative.
    let size = (128_i32).wrapping_sub((before >> 15 & 0x7f) as i32).wrapping_mul(8);
    let (lr, fp) = (Saved::AtCfa(8_i32.wrapping_sub(size)), Saved::AtCfa(size.wrapping_neg()));
    (here == FRAME_POINTER).then(|| Form::Frame { base: Base::StackPointer, cfa: size, lr, fp, signal: false }.encode())
}

/// One instruction; read with a neighbour, before it if there is none behind it.
fn instruction<M: Memory>(address: u64, code: &mut M) -> Option<u32> {
    match code.read(address) {
        Some(word) => Some(word as u32),
        None => code.read(address.wrapping_sub(4)).map(|word| (word >> 32) as u32),
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::fake::Stack;

    const START: u64 = 0x1000;
    const NOP: u32 = 0xd503_201f;

    /// The rule at each instruction of a piece of code between other code.
    fn rules<const N: usize>(code: [u32; N], address: fn(u64) -> FrameAddress) -> [Option<Rule>; N] {
        let mut all = Vec::from([NOP; 4]);
        all.extend_from_slice(&code);
        all.resize(16, NOP);
        let words: Vec<u64> = all.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect();
        core::array::from_fn(|i| rule_from_code(address(START + 4 * i as u64), &mut Stack(START - 16, &words)))
    }

    #[test]
    fn the_instructions_of_linkage_tables_are_known() {
        let entry = [0xb000_0110, 0xf947_c611, 0x913e_2210, 0xd61f_0220];
        assert_eq!(rules(entry, FrameAddress::Instruction), [Some(LEAF); 4]);
        let marked = [0xd503_245f, 0xb000_0110, 0xf947_c611, 0x913e_2210, 0xd61f_0220];
        assert_eq!(rules(marked, FrameAddress::Instruction), [Some(LEAF); 5]);
    }

    #[test]
    fn the_head_of_a_linkage_table_has_pushed_from_its_second_instruction_on() {
        let head = [0xa9bf_7bf0, 0x9000_0bd0, 0xf947_fe11, 0x913f_e210, 0xd61f_0220];
        let (leaf, pushed) = (Some(LEAF), Some(PUSHED));
        assert_eq!(rules(head, FrameAddress::Instruction), [leaf, pushed, pushed, pushed, pushed]);
        let marked = [0xd503_245f, 0xa9bf_7bf0, 0x9000_0bd0, 0xf947_fe11, 0x913f_e210, 0xd61f_0220];
        assert_eq!(rules(marked, FrameAddress::Instruction), [leaf, leaf, pushed, pushed, pushed, pushed]);
    }

    #[test]
    fn the_jumps_that_linkers_make_for_far_functions_are_known() {
        let veneer = [0x9018_0010, 0x9100_0210, 0xd61f_0200];
        assert_eq!(rules(veneer, FrameAddress::Instruction), [Some(LEAF); 3]);
        assert_eq!(rules(veneer, FrameAddress::ReturnAddress), [None; 3]);
    }

    #[test]
    fn the_return_from_a_signal_handler_is_known_by_both_kinds_of_address() {
        let code = SIGNAL_RETURN.map(|(bits, _)| bits);
        assert_eq!(rules(code, FrameAddress::Instruction), [Some(SIGNAL_FRAME); 2]);
        assert_eq!(rules(code, FrameAddress::ReturnAddress), [Some(SIGNAL_FRAME), None]);
    }

    #[test]
    fn the_return_to_the_start_of_a_context_is_the_root() {
        let code = [NOP, 0xaa13_03e0, 0xb5ff_f9c0, 0x17ff_f579];
        let root = Some(Rule::END_OF_STACK);
        assert_eq!(rules(code, FrameAddress::ReturnAddress), [root, root, None, None]);
        assert_eq!(rules(code, FrameAddress::Instruction), [None; 4]);
    }

    #[test]
    fn the_perf_trampoline_of_cpython_is_known_at_each_instruction() {
        let code = TRAMPOLINE.map(|(bits, _)| bits);
        let (leaf, inner) = (Some(LEAF), Some(PERF_TRAMPOLINE));
        assert_eq!(rules(code, FrameAddress::Instruction), [leaf, inner, inner, inner, leaf]);
        assert_eq!(rules(code, FrameAddress::ReturnAddress), [None, None, None, inner, None]);
    }

    #[test]
    fn the_last_instruction_before_unreadable_memory_is_read() {
        let words = [u64::from(SIGNAL_RETURN[0].0) | u64::from(SIGNAL_RETURN[1].0) << 32];
        let rule = rule_from_code(FrameAddress::Instruction(START + 4), &mut Stack(START, &words));
        assert_eq!(rule, Some(SIGNAL_FRAME));
    }

    #[test]
    fn other_code_and_unreadable_code_are_unknown() {
        assert_eq!(rules([NOP, 0xd61f_0220, 0xd65f_03c0], FrameAddress::Instruction), [None; 3]);
        assert_eq!(rule_from_code(FrameAddress::Instruction(0), &mut Stack(0, &[])), None);
    }
}
