//! The registers of a caller, as the entry points hand them over.
#![allow(unsafe_code)]

/// Where the host called: right after the call behind the malloc family, in the middle of the caller behind Rust's door.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
}

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
    pub(crate) fn caller(self) -> Caller {
        // SAFETY: on entry of a function the return address lies at the stack pointer.
        let pc = unsafe { *(self.sp as *const u64) };
        Caller { pc, sp: self.sp.wrapping_add(8), fp: self.fp }
    }
}

/// The state of the function that this is inlined into.
#[inline(always)]
pub(crate) fn here() -> Caller {
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
    Caller { pc, sp, fp }
}
