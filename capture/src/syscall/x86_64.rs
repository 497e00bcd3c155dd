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

/// Whether valgrind runs the process, which knows these instructions by their order; any processor does nothing by them (valgrind.h, `RUNNING_ON_VALGRIND`).
pub(super) fn is_in_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: usize = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let depth: usize;
    // SAFETY: 128 bits around, `rdi` is what it was; the request is read, and answered in `rdx`.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inlateout("rdx") 0_usize => depth,
            options(nostack),
        );
    }
    depth != 0
}

/// Ends the process by an illegal instruction.
#[cfg(feature = "oracle")]
pub fn trap() -> ! {
    // SAFETY: the instruction does nothing but raise its exception.
    unsafe { asm!("ud2", options(noreturn)) }
}

/// Defines the numbers, and the list of them.
macro_rules! numbers {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// System-call numbers.
        #[allow(missing_docs, reason = "each is the number of the call of that name")]
        pub mod number {
            $(pub const $name: usize = $number;)*
            /// All of them.
            #[cfg(test)]
            pub const ALL: &[usize] = &[$($number),*];
        }
    };
}

numbers! {
    READ = 0,
    CLOSE = 3,
    FSTAT = 5,
    MMAP = 9,
    MPROTECT = 10,
    MUNMAP = 11,
    RT_SIGPROCMASK = 14,
    PREAD64 = 17,
    PWRITE64 = 18,
    ACCESS = 21,
    SCHED_YIELD = 24,
    MADVISE = 28,
    GETPID = 39,
    FTRUNCATE = 77,
    GETRLIMIT = 97,
    SETUID = 105,
    SETGID = 106,
    GETPPID = 110,
    SETREUID = 113,
    SETREGID = 114,
    SETRESUID = 117,
    SETRESGID = 119,
    CAPSET = 126,
    RT_SIGPENDING = 127,
    SIGALTSTACK = 131,
    PRCTL = 157,
    ARCH_PRCTL = 158,
    GETTID = 186,
    GETDENTS64 = 217,
    TIMER_CREATE = 222,
    TIMER_SETTIME = 223,
    TIMER_DELETE = 226,
    CLOCK_GETTIME = 228,
    EXIT_GROUP = 231,
    OPENAT = 257,
    NEWFSTATAT = 262,
    UNLINKAT = 263,
    READLINKAT = 267,
    GET_ROBUST_LIST = 274,
    FALLOCATE = 285,
    RT_TGSIGQUEUEINFO = 297,
    PROCESS_VM_READV = 310,
}
