//! The caller of a frame whose rule cannot be packed: by all registers, from the leaf, where they are known.
//!
//! Called from: hooks and handlers, for the rare frame that needs it: the dynamic linker binding a function, hand-written and over-aligned code. Costs some microseconds
//! a frame.

use crate::modules::{self, All, Found};
use crate::rules::{self, Context};
use unwind::arch::Registers;
use unwind::cfi::Compile as _;
use unwind::{FrameAddress, Memory, Unwind as _};

/// Most frames between the leaf and the one that is looked for.
const MOST_FRAMES: usize = 256;

const RSP: u16 = Registers::SP;
const RBP: u16 = Registers::FP;

/// All registers at this place, in a frame that stays until the walk from them is over: hence a macro.
#[macro_export]
macro_rules! registers_here {
    () => {{
        let (pc, values): (u64, [u64; 7]);
        {
            let mut saved = [0_u64; 7];
            let here: u64;
            // SAFETY: stores the registers that functions keep for their callers into the array.
            #[allow(unsafe_code)]
            unsafe {
                core::arch::asm!(
                    "mov qword ptr [{to}], rbx",
                    "mov qword ptr [{to} + 8], rbp",
                    "mov qword ptr [{to} + 16], rsp",
                    "mov qword ptr [{to} + 24], r12",
                    "mov qword ptr [{to} + 32], r13",
                    "mov qword ptr [{to} + 40], r14",
                    "mov qword ptr [{to} + 48], r15",
                    "lea {pc}, [rip]",
                    to = in(reg) saved.as_mut_ptr(),
                    pc = lateout(reg) here,
                    options(nostack, preserves_flags),
                );
            }
            (pc, values) = (here, saved);
        }
        let mut all = $crate::modules::All::at(unwind::FrameAddress::Instruction(pc));
        for (register, value) in [3_u16, 6, 7, 12, 13, 14, 15].into_iter().zip(values) {
            all.set(register, Some(value));
        }
        all
    }};
}

/// The caller of `frame`, which is reached from the registers of the leaf; its address says what it means.
pub(crate) fn caller<C: Context>(
    leaf: &All,
    frame: &Registers,
    memory: &mut impl Memory,
) -> Option<(FrameAddress, Registers)> {
    let mut at = *leaf;
    for _ in 0..MOST_FRAMES {
        let wanted = at.address.address() == frame.pc && at.get(RSP) == Some(frame.sp);
        at = step::<C>(&at, memory)?;
        if wanted {
            let sp = at.get(RSP).filter(|sp| *sp != frame.sp || frame.pc == leaf.address.address())?;
            return Some((at.address, Registers { pc: at.address.address(), sp, fp: at.get(RBP) }));
        }
    }
    None
}

fn step<C: Context>(at: &All, memory: &mut impl Memory) -> Option<All> {
    match step_described::<C>(at, memory) {
        Some(result) => result,
        None => step_by_rule::<C>(at, memory),
    }
}

/// By what the frame information says about all registers; `None` if it says nothing. Not inlined, like the one below: what they need on the stack is much, and shall be gone
/// when the walk goes on.
#[inline(never)]
fn step_described<C: Context>(at: &All, memory: &mut impl Memory) -> Option<Option<All>> {
    let Found::Module(module) = modules::find(at.address.for_lookup()) else { return None };
    let (rules, signal) = modules::all_rules::<C>(module, at.address.for_lookup())?;
    Some(at.step::<Registers>(&rules, signal, memory).ok().flatten())
}

#[inline(never)]
fn step_by_rule<C: Context>(at: &All, memory: &mut impl Memory) -> Option<All> {
    // Linkage tables keep every register; JIT code, whatever its compiler likes.
    let registers = Registers { pc: at.address.address(), sp: at.get(RSP)?, fp: at.get(RBP) };
    let rule = rules::resolve::<C>(at.address).rule;
    let caller = registers.step(rule, memory).ok().flatten()?;
    let mut next = if rule.is_none() { All::at(caller.address) } else { *at };
    next.keep_callee_saved::<Registers>();
    next.address = caller.address;
    next.set(RSP, Some(caller.registers.sp));
    next.set(RBP, caller.registers.fp);
    Some(next)
}
