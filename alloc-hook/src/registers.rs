//! The registers of a caller, as the entry points hand them over.
#![allow(unsafe_code)]

use unwind::FrameAddress;
use unwind::arch::Registers;

/// Stack pointer and frame pointer at the entry of an exported function: the return address lies at `sp`.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Stack pointer on entry.
    pub sp: u64,
    /// Frame pointer register on entry, the caller's.
    pub fp: u64,
}

impl Entry {
    /// The caller's state right after the call.
    #[inline(always)]
    pub(crate) fn caller(self) -> (FrameAddress, Registers) {
        // SAFETY: on entry of a function the return address lies at the stack pointer.
        let pc = unsafe { *(self.sp as *const u64) };
        (FrameAddress::ReturnAddress(pc), Registers { pc, sp: self.sp.wrapping_add(8), fp: Some(self.fp) })
    }
}

/// The state of the function that this is inlined into.
#[inline(always)]
pub(crate) fn here() -> (FrameAddress, Registers) {
    let (pc, sp, fp): (u64, u64, u64);
    // SAFETY: copies registers.
    unsafe {
        core::arch::asm!(
            "lea {pc}, [rip]",
            "mov {sp}, rsp",
            "mov {fp}, rbp",
            pc = out(reg) pc,
            sp = out(reg) sp,
            fp = out(reg) fp,
            options(nomem, nostack, preserves_flags),
        );
    }
    (FrameAddress::Instruction(pc), Registers { pc, sp, fp: Some(fp) })
}
