//! A shadow stack: who called whom, learnt from the instructions that ran. No unwind information is read.
//!
//! It is told the program counter and the stack pointer before each instruction. A call is an instruction with that opcode; it pushed
//! the address of the next one. What lies below the stack pointer has returned, by whatever means: `ret`, `longjmp`, an
//! exception. Tail calls, linkage tables and the dynamic linker's resolver jump, so they change nothing.

use super::instruction::{Kind, SYSTEM_CALL, ends_handlers, is_never_reached};
use std::ops::Range;

/// Most calls at a time.
const MAX_DEPTH: usize = 1024;

/// How the stepped code's memory is read. It was just executed, or lies above the stack pointer.
pub(crate) trait Memory {
    /// The byte at an address.
    fn byte(&self, address: u64) -> u8;

    /// The eight bytes at an address.
    fn word(&self, address: u64) -> u64 {
        u64::from_le_bytes(core::array::from_fn(|i| self.byte(address + i as u64)))
    }
}

/// Where the code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The instruction about to run.
    pub(crate) pc: u64,
    /// The stack pointer.
    pub(crate) sp: u64,
}

/// One that waits for its callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// It called, and goes on at this address.
    Called(u64),
    /// A signal interrupted it before this instruction.
    Interrupted(u64),
}

/// A stack. Everything that is no other one is the thread's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stack {
    Own,
    Signals,
    Coroutine,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the address lies at which the caller goes on, and on which stack.
    slot: u64,
    stack: Stack,
    /// The word that was put there.
    address: u64,
    /// If a signal interrupted the caller: the stack that this was on.
    interrupted_on: Option<Stack>,
    /// The steps in which the callee itself called last.
    calls: [u64; 2],
}

/// What an instruction did, as far as what to expect of a walk depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Nothing to tell.
    Other,
    /// A function was called.
    Call,
    /// A signal's handler was entered.
    Signal,
    /// A function took its return address off the stack without returning, or went to another stack: `longjmp` and `swapcontext` do. Until it jumps,
    /// only the jump will tell where to.
    Leaving,
    /// It jumped.
    Left {
        /// If its return address was replaced: from this step on. Done by the last but one function that it called; the last one tells debuggers.
        replaced_since: Option<u64>,
    },
}

/// The calls that have not returned.
pub(crate) struct Shadow {
    entries: Vec<Entry>,
    base: Vec<u64>,
    signals: Range<u64>,
    coroutine: Range<u64>,
    last: Option<Position>,
    steps: u64,
    /// What the function that leaves did before.
    leaving: Option<Event>,
}

impl Shadow {
    /// No calls yet, but those whose return addresses are in `base`, newest first. `signals` is the alternate stack for handlers; `coroutine`
    /// that of one coroutine, if there is one.
    pub(crate) fn new(base: Vec<u64>, signals: Range<u64>, coroutine: Range<u64>) -> Self {
        let entries = Vec::with_capacity(MAX_DEPTH);
        Self { entries, base, signals, coroutine, last: None, steps: 0, leaving: None }
    }

    fn stack_of(&self, address: u64) -> Stack {
        match address {
            _ if self.signals.contains(&address) => Stack::Signals,
            _ if self.coroutine.contains(&address) => Stack::Coroutine,
            _ => Stack::Own,
        }
    }

    /// The instruction before `now` ran. Does not allocate.
    ///
    /// # Panics
    /// If there are too many calls.
    pub(crate) fn step(&mut self, now: Position, memory: &impl Memory) -> Event {
        self.steps += 1;
        let Some(before) = self.last.replace(now) else { return Event::Other };
        let ran = Kind::of(before.pc, memory);
        let (from, to) = (self.stack_of(before.sp), self.stack_of(now.sp));
        if self.signal(before, now, ran, memory) {
            return Event::Signal;
        }
        let callee = self.newest(from).copied();
        let is_gone = |entry: &Entry| match entry.stack {
            stack if stack == to => entry.slot < now.sp,
            stack => stack == Stack::Signals,
        };
        self.entries.retain(|entry| !is_gone(entry));
        if let Some(left) = self.leaving {
            let jumped = matches!(ran, Kind::Jump | Kind::Return);
            self.leaving = (!jumped).then_some(left);
            return if jumped { left } else { Event::Leaving };
        }
        let callee = callee.filter(is_gone);
        if from != to || callee.is_some() {
            // The return of a signal handler is a system call.
            if matches!(ran, Kind::Return | Kind::SystemCall) {
                return Event::Other;
            }
            // A coroutine that never ran: its first function returns to where the word on its stack says.
            if to == Stack::Coroutine && self.newest(to).is_none() {
                self.push(now.sp, memory.word(now.sp), None);
            }
            let replaced = callee.filter(|callee| memory.word(callee.slot) != callee.address);
            self.leaving = Some(Event::Left { replaced_since: replaced.map(|callee| callee.calls[0]) });
            return Event::Leaving;
        }
        // A system call traps only behind the instruction that follows it.
        let pc = before.pc + if ran == Kind::SystemCall { SYSTEM_CALL } else { 0 };
        if Kind::of(pc, memory) != Kind::Call || now.sp != before.sp.wrapping_sub(8) {
            return Event::Other;
        }
        let address = memory.word(now.sp);
        // Position-independent code of old calls its next instruction, and retpolines one that replaces the address: to push, not to call.
        let is_call = (pc + 2..=pc + 15).contains(&address) && now.pc != address && !is_never_reached(address, memory);
        if is_call {
            self.push(now.sp, address, None);
            return Event::Call;
        }
        Event::Other
    }

    /// Enters what the kernel pushed, if it started a handler: the stack pointer is at the address of code that ends handlers, above that lies the `ucontext`.
    fn signal(&mut self, before: Position, now: Position, ran: Kind, memory: &impl Memory) -> bool {
        /// In the kernel's frame: behind the return address, in `uc_mcontext`.
        const SP: u64 = 8 + 40 + 15 * 8;
        const PC: u64 = 8 + 40 + 16 * 8;
        const RED_ZONE: u64 = 128;
        if now.sp.abs_diff(before.sp) <= RED_ZONE || memory.word(now.sp + SP) != before.sp {
            return false;
        }
        let [returns_to, interrupted] = [now.sp, now.sp + PC].map(|slot| memory.word(slot));
        let behind_call = ran == Kind::SystemCall && interrupted == before.pc + SYSTEM_CALL;
        if !ends_handlers(returns_to, memory) || (interrupted != before.pc && !behind_call) {
            return false;
        }
        self.push(now.sp + PC, interrupted, Some(self.stack_of(before.sp)));
        self.push(now.sp, returns_to, None);
        true
    }

    fn newest(&self, stack: Stack) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.stack == stack)
    }

    fn push(&mut self, slot: u64, address: u64, interrupted_on: Option<Stack>) {
        assert!(self.entries.len() < MAX_DEPTH, "too many calls");
        let (stack, steps) = (self.stack_of(slot), self.steps);
        if let Some(caller) = self.entries.iter_mut().rev().find(|entry| entry.stack == stack) {
            caller.calls = [caller.calls[1], steps];
        }
        self.entries.push(Entry { slot, stack, address, interrupted_on, calls: [0; 2] });
    }

    /// Those that wait, newest first: where each will go on. A handler may have changed where what it interrupted will.
    pub(crate) fn callers<'a>(&'a self, memory: &'a impl Memory) -> impl Iterator<Item = Caller> + Clone + 'a {
        let mut stack = self.last.map_or(Stack::Own, |last| self.stack_of(last.sp));
        let mut newest_first = self.entries.iter().rev();
        let mut base = self.base.iter();
        core::iter::from_fn(move || {
            if let Some(entry) = newest_first.find(|entry| entry.stack == stack) {
                let Some(interrupted_on) = entry.interrupted_on else { return Some(Caller::Called(entry.address)) };
                stack = interrupted_on;
                return Some(Caller::Interrupted(memory.word(entry.slot)));
            }
            if stack == Stack::Own { base.next().map(|address| Caller::Called(*address)) } else { None }
        })
    }

    /// Number of calls.
    pub(crate) fn depth(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u64 = 0x1000;
    const STACK: u64 = 0x8000;

    /// Code from [`CODE`] on, and a stack of sixteen words from [`STACK`] on.
    struct Fake(Vec<u8>, [u64; 16]);

    impl Memory for Fake {
        fn byte(&self, address: u64) -> u8 {
            match address.checked_sub(STACK) {
                Some(at) => self.1[at as usize / 8].to_le_bytes()[at as usize % 8],
                None => self.0.get((address - CODE) as usize).copied().unwrap_or(0xcc),
            }
        }
    }

    /// The events of steps through the code, and who waits at the end. Of each step: offset in the code, word of the stack, and what is there then.
    fn events(code: &[u8], steps: &[(u64, u64, u64)]) -> (Vec<Event>, Vec<Caller>) {
        let mut memory = Fake(code.to_vec(), [0; 16]);
        let mut shadow = Shadow::new(vec![7], 0..0, STACK..STACK + 24);
        let mut step = |(pc, slot, word): (u64, u64, u64)| {
            memory.1[slot as usize] = word;
            shadow.step(Position { pc: CODE + pc, sp: STACK + 8 * slot }, &memory)
        };
        let events = steps.iter().map(|at| step(*at)).collect();
        let callers = shadow.callers(&memory).collect();
        (events, callers)
    }

    #[test]
    fn a_call_waits_until_its_slot_lies_below_the_stack_pointer() {
        use Event::{Call, Other};
        let forms = [&[0xe8, 11, 0, 0, 0][..], &[0xff, 0xd0], &[0x66, 0x66, 0x48, 0xe8, 8, 0, 0, 0]];
        for call in forms {
            let len = call.len() as u64;
            let mut code = call.to_vec();
            code.resize(16, 0x90);
            code.push(0xc3);
            let steps = [(0, 9, 1), (16, 8, CODE + len), (len, 9, 1)];
            assert_eq!(
                events(&code, &steps[..2]),
                (vec![Other, Call], vec![Caller::Called(CODE + len), Caller::Called(7)])
            );
            assert_eq!(events(&code, &steps), (vec![Other, Call, Other], vec![Caller::Called(7)]));
        }
    }

    #[test]
    fn a_call_that_only_pushes_is_none() {
        let old_style = ([0xe8, 0, 0, 0, 0, 0x58].to_vec(), [(0, 9, 1), (5, 8, CODE + 5)]);
        let push = ([0x6a, 5].to_vec(), [(0, 9, 1), (2, 8, CODE + 5)]);
        let retpoline =
            ([0xe8, 7, 0, 0, 0, 0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9].to_vec(), [(0, 9, 1), (12, 8, CODE + 5)]);
        for (code, steps) in [old_style, push, retpoline] {
            assert_eq!(events(&code, &steps).1, [Caller::Called(7)]);
        }
    }

    #[test]
    fn who_drops_its_return_address_leaves_with_its_next_jump() {
        use Event::{Call, Leaving, Left, Other};
        // call 16; ...; 16: mov rsp, r8; nop; jmp rdx
        let mut code = vec![0xe8, 11, 0, 0, 0];
        code.resize(16, 0x90);
        code.extend([0x4c, 0x89, 0xc4, 0x90, 0xff, 0xe2]);
        let steps = [(0, 9, 1), (16, 8, CODE + 5), (19, 12, 1), (20, 12, 1), (7, 12, 1)];
        let left = Left { replaced_since: None };
        assert_eq!(events(&code, &steps), (vec![Other, Call, Leaving, Leaving, left], vec![Caller::Called(7)]));
    }

    #[test]
    fn a_coroutine_has_callers_of_its_own_and_the_others_wait() {
        // call 16; ...; 16: mov rsp, r8; ret; ...; 24: mov rsp, r8; ret
        let mut code = vec![0xe8, 11, 0, 0, 0];
        code.resize(16, 0x90);
        code.extend([0x4c, 0x89, 0xc4, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x4c, 0x89, 0xc4, 0xc3]);
        let there = [(0, 9, 1), (16, 8, CODE + 5), (19, 1, 5), (24, 2, 0)];
        // The word on top of the coroutine's stack, which its first function took.
        assert_eq!(events(&code, &there[..3]).1, [Caller::Called(5)]);
        assert_eq!(events(&code, &there).1, []);
        let and_back = [&there[..], &[(27, 8, CODE + 5), (5, 9, 1)]].concat();
        assert_eq!(events(&code, &and_back[..5]).1, [Caller::Called(CODE + 5), Caller::Called(7)]);
        assert_eq!(events(&code, &and_back).1, [Caller::Called(7)]);
    }
}
