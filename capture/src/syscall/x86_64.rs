//! The system-call instruction and its numbers on x86_64.
#![allow(unsafe_code)]

use super::filter::is_forbidden;
use core::arch::asm;

const EPERM: isize = 1;
/// How filters name this architecture.
pub(super) const AUDIT_ARCHITECTURE: u32 = 0xc000_003e;

/// Makes a system call with up to six arguments, unless a filter would answer it with a signal.
///
/// # Safety
/// As the call demands of its arguments.
#[inline]
pub unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    if is_forbidden(number) {
        return -EPERM;
    }
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the kernel keeps every register but rax, rcx and r11; memory effects are the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Ends the process by an illegal instruction.
#[cfg(feature = "oracle")]
pub fn trap() -> ! {
    // SAFETY: the instruction does nothing but raise its exception.
    unsafe { asm!("ud2", options(noreturn)) }
}

/// System-call numbers.
#[allow(missing_docs, reason = "each is the number of the call of that name")]
pub mod number {
    pub const READ: usize = 0;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const PREAD64: usize = 17;
    pub const PWRITE64: usize = 18;
    pub const SCHED_YIELD: usize = 24;
    pub const MADVISE: usize = 28;
    pub const GETPID: usize = 39;
    pub const FTRUNCATE: usize = 77;
    pub const GETRLIMIT: usize = 97;
    pub const GETPPID: usize = 110;
    pub const RT_SIGPENDING: usize = 127;
    pub const PRCTL: usize = 157;
    pub const ARCH_PRCTL: usize = 158;
    pub const GETTID: usize = 186;
    pub const GETDENTS64: usize = 217;
    pub const TIMER_CREATE: usize = 222;
    pub const TIMER_SETTIME: usize = 223;
    pub const TIMER_DELETE: usize = 226;
    pub const CLOCK_GETTIME: usize = 228;
    pub const OPENAT: usize = 257;
    pub const READLINKAT: usize = 267;
    pub const GET_ROBUST_LIST: usize = 274;
    pub const FALLOCATE: usize = 285;
    pub const RT_TGSIGQUEUEINFO: usize = 297;
    pub const PROCESS_VM_READV: usize = 310;
}
