//! What a stack is, kept up to date from one instruction of aarch64 to the next: calls put a return address on it, returns take it off.

use profile_recorder_unwind::FrameAddress;

use super::gdb::Cpu;

/// The stacks of a thread.
pub(crate) struct Shadow {
    /// Callers of the current function, root first.
    callers: Vec<Caller>,
    /// Callers of functions that have gone over to another stack, with their stack pointer.
    suspended: Vec<(u64, Vec<Caller>)>,
    /// Where signals have come.
    interrupted: Vec<Cpu>,
    /// The instruction executed last.
    last: u32,
}

struct Caller {
    address: FrameAddress,
    /// The stack pointer when it called or was interrupted.
    sp: u64,
}

/// No function that is stepped through has more on the stack.
const LARGEST_FRAME: u64 = 8 << 20;

pub(crate) const SYSTEM_CALL: u32 = 0xd400_0001;
const SIGRETURN: u64 = 139;

fn is_call(instruction: u32) -> bool {
    // bl; blr, blraaz, blrabz; blraa, blrab
    instruction >> 26 == 0b10_0101
        || instruction & 0xffff_f000 == 0xd63f_0000
        || instruction & 0xffff_f800 == 0xd73f_0800
}

/// Goes to an address in a register: a return, also of the hand-written kind, or a tail call.
fn is_indirect_jump(instruction: u32) -> bool {
    // ret, retaa, retab; br, braaz, brabz; braa, brab
    instruction & 0xffff_f000 == 0xd65f_0000
        || instruction & 0xffff_f000 == 0xd61f_0000
        || instruction & 0xffff_f800 == 0xd71f_0800
}

fn is_return(instruction: u32) -> bool {
    instruction & 0xffff_f000 == 0xd65f_0000
}

impl Shadow {
    /// With these callers, leaf first, of a function that does not return and is at `cpu`.
    pub(crate) fn new(callers: &[FrameAddress], cpu: &Cpu) -> Self {
        let sp = cpu.sp + LARGEST_FRAME;
        let callers = callers.iter().rev().map(|address| Caller { address: *address, sp });
        Self { callers: callers.collect(), suspended: Vec::new(), interrupted: Vec::new(), last: 0 }
    }

    /// The stack of the program that is at `cpu`, leaf first.
    pub(crate) fn stack(&self, cpu: &Cpu) -> Vec<FrameAddress> {
        let callers = self.callers.iter().rev().map(|caller| caller.address);
        std::iter::once(FrameAddress::Instruction(cpu.pc)).chain(callers).collect()
    }

    /// Whether the stack pointer is no longer one of the function that is executed: it is about to leave several frames at once, or for another stack.
    pub(crate) fn is_leaving(&self, cpu: &Cpu) -> bool {
        self.callers.last().is_some_and(|caller| {
            let called = matches!(caller.address, FrameAddress::ReturnAddress(_));
            called && (cpu.sp > caller.sp || caller.sp - cpu.sp > LARGEST_FRAME)
        })
    }

    pub(crate) fn is_in_handler(&self) -> bool {
        !self.interrupted.is_empty()
    }

    /// Whether the head of a linkage table has just called the dynamic linker.
    pub(crate) fn is_bound(&self, cpu: &Cpu) -> bool {
        const BR_X17: u32 = 0xd61f_0220;
        self.last == BR_X17 && self.callers.last().is_some_and(|caller| caller.sp == cpu.sp + 16)
    }

    /// The instruction at `before` has led to `after`. Says from where on it goes on if it was a system call.
    pub(crate) fn executed(&mut self, instruction: u32, before: &Cpu, after: &Cpu) -> Cpu {
        self.last = instruction;
        if is_call(instruction) {
            self.call(FrameAddress::ReturnAddress(before.pc + 4), before.sp);
        } else if is_indirect_jump(instruction) {
            self.jumped(is_return(instruction), after);
        } else if instruction == SYSTEM_CALL && before.x[8] == SIGRETURN {
            self.callers.pop();
            return self.interrupted.pop().expect("a signal has come");
        }
        Cpu { pc: before.pc + 4, ..*before }
    }

    fn jumped(&mut self, returned: bool, after: &Cpu) {
        let here = FrameAddress::ReturnAddress(after.pc);
        let Some(top) = self.callers.last() else { panic!("the root returns to {after:x?}") };
        if top.address == here && top.sp == after.sp {
            self.callers.pop();
        } else if let Some(i) = self.suspended.iter().position(|(sp, _)| *sp == after.sp) {
            self.callers = self.suspended.remove(i).1;
        } else if after.sp.abs_diff(top.sp) > LARGEST_FRAME {
            // For the first time on another stack.
            let sp = top.sp;
            self.callers.pop();
            self.suspended.push((sp, std::mem::take(&mut self.callers)));
            self.call(FrameAddress::ReturnAddress(after.x[30]), after.sp);
        } else if after.sp > top.sp {
            while self.callers.last().is_some_and(|caller| caller.sp <= after.sp) {
                self.callers.pop();
            }
        } else {
            assert!(!returned, "returned to {after:x?} instead of {:x?} with {:#x}", top.address, top.sp);
        }
    }

    /// A signal's handler was called at `after`.
    pub(crate) fn interrupted(&mut self, before: &Cpu, after: &Cpu) {
        self.interrupted.push(*before);
        self.call(FrameAddress::Instruction(before.pc), before.sp);
        self.call(FrameAddress::ReturnAddress(after.x[30]), after.sp);
    }

    fn call(&mut self, address: FrameAddress, sp: u64) {
        self.callers.push(Caller { address, sp });
    }
}
