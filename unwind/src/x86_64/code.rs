//! Rules from the code itself, for the few well-known pieces that have no unwind information.

use crate::x86_64::{Base, Cfa, Form, FramePointer};
use crate::{FrameAddress, Memory, Rule};

/// The rule inside CPython's perf trampoline (`python -X perf`), from after its first to before its last instruction.
pub const PERF_TRAMPOLINE: Rule = frame(16);

/// The rule where signal handlers return to: the stack pointer is at Linux' `ucontext_t`.
pub const SIGNAL_FRAME: Rule = Form::Context { sp: 160, fp: 120, pc: 168 }.encode();

/// The rule where the caller's frame begins that far above the stack pointer, and `rbp` is its own.
pub(super) const fn frame(size: i32) -> Rule {
    Form::Frame { cfa: Cfa::Offset(Base::StackPointer, size), fp: FramePointer::Same, signal: false }.encode()
}

/// `sub rsp, 8; call rcx; add rsp, 8; ret`: one such run for each Python function.
const TRAMPOLINE: [u8; 11] = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];
/// `mov rax, 15; syscall`, as glibc has it.
const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
/// `mov eax, 15; syscall`, as musl has it.
const SHORT_SIGNAL_RETURN: [u8; 7] = [0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// `mov rsp, rbx; mov rdi, [rsp]`: where the function of a `makecontext` returns to. glibc describes it as if the next context were a return address.
const CONTEXT_RETURN: [u8; 7] = [0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24];

/// `mov edi, eax; xor eax, eax; mov al, 60; syscall`: where a thread's function returns to in musl's `clone`, and where the thread ends.
const THREAD_RETURN: [u8; 8] = [0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05];

/// The rule for code that no table covers, if it is one of these: an entry of a procedure linkage table (lld describes none), the
/// return from a signal handler, from a thread or to the start of a context, CPython's perf trampoline.
///
/// `code` reads instructions here. What it cannot read does not match.
#[cold]
pub fn rule_from_code<M: Memory>(address: FrameAddress, code: &mut M) -> Option<Rule> {
    let window = Window::around(address.address(), code);
    if window.has(0, &SIGNAL_RETURN) || window.has(0, &SHORT_SIGNAL_RETURN) {
        return Some(SIGNAL_FRAME);
    }
    match address {
        FrameAddress::ReturnAddress(_) if window.has(-6, &TRAMPOLINE) => Some(PERF_TRAMPOLINE),
        FrameAddress::ReturnAddress(_) if window.has(0, &THREAD_RETURN) => Some(Rule::END_OF_STACK),
        FrameAddress::ReturnAddress(_) => {
            let start = if window.has(0, ENDBR64) { 4 } else { 0 };
            window.has(start, &CONTEXT_RETURN).then_some(Rule::END_OF_STACK)
        }
        FrameAddress::Instruction(_) if window.has(-7, &SIGNAL_RETURN) || window.has(-5, &SHORT_SIGNAL_RETURN) => {
            Some(SIGNAL_FRAME)
        }
        FrameAddress::Instruction(_) if window.has(0, &TRAMPOLINE) || window.has(-10, &TRAMPOLINE) => Some(frame(8)),
        FrameAddress::Instruction(_) if window.has(-4, &TRAMPOLINE) || window.has(-6, &TRAMPOLINE) => {
            Some(PERF_TRAMPOLINE)
        }
        FrameAddress::Instruction(_) => linkage_table(&window),
    }
}

/// The rule at an instruction where code that keeps a frame pointer has its caller's: its first two, `push rbp; mov rbp, rsp`, and its last, `ret`.
#[cold]
pub fn rule_without_frame<M: Memory>(address: FrameAddress, code: &mut M) -> Option<Rule> {
    const ENTRY: &[u8] = &[0x55, 0x48, 0x89, 0xe5];
    if matches!(address, FrameAddress::ReturnAddress(_)) {
        return None;
    }
    let window = Window::around(address.address(), code);
    if window.has(0, ENTRY) || window.has(0, &[0xc3]) || window.has(0, &[0xc2]) {
        return Some(frame(8));
    }
    window.has(-1, ENTRY).then_some(frame(16))
}

const PUSH: &[u8] = &[0x68]; // and four bytes
const PUSH_INDIRECT: &[u8] = &[0xff, 0x35]; // and four bytes
const JUMP_INDIRECT: &[u8] = &[0xff, 0x25]; // and four bytes
const JUMP: &[u8] = &[0xe9];
const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// `bnd`, before the jumps of tables for control-flow enforcement.
const BND: &[u8] = &[0xf2];

/// The instructions of linkage tables: `jmp [slot]` calls; the first time it goes on to `push index; jmp first entry`; that does
/// `push [object]; jmp [resolver]`.
fn linkage_table(window: &Window) -> Option<Rule> {
    let at = i32::from(window.has(0, ENDBR64)).wrapping_mul(4);
    let jump = at.wrapping_add(i32::from(window.has(at, BND)));
    let after_push = |at: i32| window.has(at.wrapping_sub(5), PUSH);
    if window.has(jump, JUMP_INDIRECT) {
        return Some(frame(if at == 0 && window.has(-6, PUSH_INDIRECT) { 24 } else { 8 }));
    }
    if window.has(at, PUSH) && (window.has(at.wrapping_add(5), JUMP) || window.has(at.wrapping_add(6), JUMP)) {
        return Some(frame(8));
    }
    if at == 0 && window.has(jump, JUMP) && after_push(0) {
        return Some(frame(16));
    }
    if window.has(0, PUSH_INDIRECT) && (window.has(6, JUMP_INDIRECT) || window.has(7, JUMP_INDIRECT)) {
        return Some(frame(16));
    }
    None
}

/// The bytes around an address; those that cannot be read are no instructions of the above.
struct Window([u8; 2 * Window::REACH as usize]);

impl Window {
    const REACH: u64 = 16;

    fn around<M: Memory>(address: u64, code: &mut M) -> Self {
        // By aligned words: one that began on the page before the first of the code could not be read.
        let from = address.wrapping_sub(Self::REACH);
        let mut words = [0; 2 * Self::REACH as usize + 8];
        for (chunk, offset) in words.chunks_exact_mut(8).zip((0_u64..).step_by(8)) {
            let word = code.read((from & !7).wrapping_add(offset)).unwrap_or(0);
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let mut bytes = [0; 2 * Self::REACH as usize];
        bytes.iter_mut().zip(words.iter().skip((from & 7) as usize)).for_each(|(byte, read)| *byte = *read);
        Self(bytes)
    }

    /// Whether these bytes begin that far from the address.
    fn has(&self, from: i32, bytes: &[u8]) -> bool {
        usize::try_from(from.wrapping_add(Self::REACH as i32))
            .ok()
            .and_then(|at| self.0.get(at..))
            .is_some_and(|rest| rest.starts_with(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::fake::Stack;

    const START: u64 = 0x1000;

    /// The rule at each offset into a piece of code between other code.
    fn rules(code: &[u8], offsets: &[u64], address: fn(u64) -> FrameAddress) -> Vec<Option<Rule>> {
        let mut bytes = Vec::from([0xcc; 16]);
        bytes.extend_from_slice(code);
        bytes.resize(64, 0xcc);
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect();
        offsets.iter().map(|at| rule_from_code(address(START + at), &mut Stack(START - 16, &words))).collect()
    }

    #[test]
    fn the_instructions_of_a_lazy_linkage_table_are_known() {
        let entry = [0xff, 0x25, 1, 2, 3, 4, 0x68, 1, 0, 0, 0, 0xe9, 0xd0, 0xff, 0xff, 0xff];
        let sizes = [Some(frame(8)), Some(frame(8)), Some(frame(16))];
        assert_eq!(rules(&entry, &[0, 6, 11], FrameAddress::Instruction), sizes);
        let first = [0xff, 0x35, 1, 2, 3, 4, 0xff, 0x25, 1, 2, 3, 4, 0x0f, 0x1f, 0x40, 0];
        assert_eq!(rules(&first, &[0, 6], FrameAddress::Instruction), [Some(frame(16)), Some(frame(24))]);
    }

    #[test]
    fn the_instructions_of_linkage_tables_for_control_flow_enforcement_are_known() {
        let lazy = [0xf3, 0x0f, 0x1e, 0xfa, 0x68, 1, 0, 0, 0, 0xf2, 0xe9, 0xd0, 0xff, 0xff, 0xff, 0x90];
        let sizes = [Some(frame(8)), Some(frame(8)), Some(frame(16))];
        assert_eq!(rules(&lazy, &[0, 4, 9], FrameAddress::Instruction), sizes);
        let second = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 1, 2, 3, 4, 0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(rules(&second, &[0, 4], FrameAddress::Instruction), [Some(frame(8)), Some(frame(8))]);
        let first = [0xff, 0x35, 1, 2, 3, 4, 0xf2, 0xff, 0x25, 1, 2, 3, 4, 0x0f, 0x1f, 0];
        assert_eq!(rules(&first, &[0, 6], FrameAddress::Instruction), [Some(frame(16)), Some(frame(24))]);
    }

    #[test]
    fn the_return_from_a_signal_handler_is_known_by_both_kinds_of_address() {
        assert_eq!(rules(&SIGNAL_RETURN, &[0, 7], FrameAddress::Instruction), [Some(SIGNAL_FRAME); 2]);
        assert_eq!(rules(&SHORT_SIGNAL_RETURN, &[0, 5], FrameAddress::Instruction), [Some(SIGNAL_FRAME); 2]);
        assert_eq!(rules(&SIGNAL_RETURN, &[0, 7], FrameAddress::ReturnAddress), [Some(SIGNAL_FRAME), None]);
    }

    #[test]
    fn the_start_of_a_context_is_a_root() {
        let marked: Vec<u8> = [0xf3, 0x0f, 0x1e, 0xfa].into_iter().chain(CONTEXT_RETURN).collect();
        for code in [&CONTEXT_RETURN[..], &marked] {
            assert_eq!(rules(code, &[0], FrameAddress::ReturnAddress), [Some(Rule::END_OF_STACK)]);
            assert_eq!(rules(code, &[0], FrameAddress::Instruction), [None]);
        }
    }

    #[test]
    fn the_return_from_a_threads_function_is_a_root() {
        // From `xor ebp, ebp; pop rdi; call r9` on, as in musl 1.2.
        let code: Vec<u8> = [0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1].into_iter().chain(THREAD_RETURN).collect();
        assert_eq!(rules(&code, &[6], FrameAddress::ReturnAddress), [Some(Rule::END_OF_STACK)]);
        assert_eq!(rules(&code, &[0, 2, 3, 6], FrameAddress::Instruction), [None; 4]);
    }

    #[test]
    fn the_perf_trampoline_of_cpython_is_known_at_each_instruction() {
        let [outer, inner] = [Some(frame(8)), Some(PERF_TRAMPOLINE)];
        assert_eq!(rules(&TRAMPOLINE, &[0, 4, 6, 10], FrameAddress::Instruction), [outer, inner, inner, outer]);
        assert_eq!(rules(&TRAMPOLINE, &[0, 6], FrameAddress::ReturnAddress), [None, inner]);
    }

    #[test]
    fn the_first_and_the_last_instructions_of_a_function_have_no_frame_of_its_own() {
        let at = |at, address: fn(u64) -> FrameAddress| {
            let words =
                [u64::MAX, u64::MAX, u64::from_le_bytes([0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0xcc, 0xcc]), 0, 0, 0];
            rule_without_frame(address(START + at), &mut Stack(START - 16, &words))
        };
        assert_eq!(
            [0, 1, 4, 5].map(|i| at(i, FrameAddress::Instruction)),
            [Some(frame(8)), Some(frame(16)), None, Some(frame(8))]
        );
        assert_eq!(at(5, FrameAddress::ReturnAddress), None);
    }

    #[test]
    fn other_code_and_unreadable_code_are_unknown() {
        let call = [0xe8, 1, 2, 3, 4, 0xe9, 1, 2, 3, 4, 0x68, 1, 2, 3, 4, 0x90];
        assert_eq!(rules(&call, &[0, 5, 10, 15], FrameAddress::Instruction), [None; 4]);
        assert_eq!(rules(&[], &[0, 1000, u64::MAX - START], FrameAddress::Instruction), [None; 3]);
        assert_eq!(rule_from_code(FrameAddress::Instruction(0), &mut Stack(0, &[])), None);
    }
}
