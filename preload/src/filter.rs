//! `prctl` and `syscall`, through which a program confines itself (seccomp): what its filter would punish the recorder does not do any more. Other calls that the recorder minds come by them, too.
//!
//! # Safety
//! Both do what the C library's functions of their names do: a system call, and errno.

use crate::{credentials, execute, namespaces, signal};
use core::arch::naked_asm;
use core::ffi::{c_int, c_long};
use profile_recorder::preload::{self, Change};

/// A system call as the C library's `syscall` makes it: its number, and its arguments.
///
/// # Safety
/// As the call demands.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn kernel(number: c_long, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> c_long {
    extern "C" fn fail(result: c_long) -> c_long {
        // SAFETY: the address of the calling thread's errno.
        unsafe { *libc::__errno_location() = -result as c_int };
        -1
    }
    naked_asm!(
        ".cfi_startproc",
        // The number stays where the handler finds it that has a call made again (`sampler::resume`): nothing writes this close below the stack pointer.
        "mov qword ptr [rsp - 8], rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, qword ptr [rsp + 8]",
        "mov rax, qword ptr [rsp - 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 2f",
        "ret",
        "2:",
        "mov rdi, rax",
        "jmp {fail}",
        ".cfi_endproc",
        fail = sym fail,
    )
}

/// `syscall` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(number: c_long, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> c_long {
    // The number is compared as a whole: what the kernel makes of other bits is its own matter.
    naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {seccomp}",
        "je {confine}",
        "cmp rdi, {prctl}",
        "je {confine}",
        "cmp rdi, {execve}",
        "je {execute}",
        "cmp rdi, {execveat}",
        "je {execute}",
        "cmp rdi, {rt_sigaction}",
        "je {act}",
        "cmp rdi, {sigaltstack}",
        "je {stack}",
        "cmp rdi, {unshare}",
        "je {change}",
        "cmp rdi, {setns}",
        "je {change}",
        "cmp rdi, {capset}",
        "je {of_thread}",
        "cmp rdi, {setuid}",
        "je {of_thread}",
        "cmp rdi, {setgid}",
        "je {of_thread}",
        "cmp rdi, {setreuid}",
        "je {of_thread}",
        "cmp rdi, {setregid}",
        "je {of_thread}",
        "cmp rdi, {setresuid}",
        "je {of_thread}",
        "cmp rdi, {setresgid}",
        "je {of_thread}",
        "cmp rdi, {setgroups}",
        "je {of_thread}",
        "cmp rdi, {exit}",
        "je {end_thread}",
        "jmp {kernel}",
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        execve = const libc::SYS_execve,
        execveat = const libc::SYS_execveat,
        rt_sigaction = const libc::SYS_rt_sigaction,
        confine = sym confine,
        execute = sym execute::by_number,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        act = sym signal::by_number,
        sigaltstack = const libc::SYS_sigaltstack,
        stack = sym signal::stack_by_number,
        change = sym namespaces::change,
        capset = const libc::SYS_capset,
        setuid = const libc::SYS_setuid,
        setgid = const libc::SYS_setgid,
        setreuid = const libc::SYS_setreuid,
        setregid = const libc::SYS_setregid,
        setresuid = const libc::SYS_setresuid,
        setresgid = const libc::SYS_setresgid,
        setgroups = const libc::SYS_setgroups,
        of_thread = sym credentials::of_thread,
        exit = const libc::SYS_exit,
        end_thread = sym end_thread,
        kernel = sym kernel,
    )
}

/// `prctl` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: u64, b: u64, c: u64, d: u64) -> c_int {
    // SAFETY: as the host calls it.
    (unsafe { confine(libc::SYS_prctl, option as u64, a, b, c, d) }) as c_int
}

/// Ends the calling thread, and with the last the process.
unsafe extern "C" fn end_thread(number: c_long, code: u64) -> c_long {
    let number = if preload::thread_exits() { libc::SYS_exit_group } else { number };
    // SAFETY: no memory is involved.
    unsafe { kernel(number, code, 0, 0, 0, 0, 0) }
}

/// Makes one of the two calls that may install a filter. One of them also says what the thread keeps of its rights when it becomes another user's.
unsafe extern "C" fn confine(number: c_long, a: u64, b: u64, c: u64, d: u64, e: u64) -> c_long {
    const PR_SET_SECCOMP: u64 = libc::PR_SET_SECCOMP as u64;
    /// All threads take the filter. If one cannot, the call returns its number.
    const TSYNC: u64 = libc::SECCOMP_FILTER_FLAG_TSYNC;
    // SAFETY: as the host calls it; neither call has a sixth argument.
    let call = |program: u64| unsafe { kernel(number, a, b, program, d, e, 0) };
    let begun = errno();
    let refuses = |program: u64| call(program) != -1 || errno() != libc::EFAULT;
    let before = match (number, a, b) {
        // With anything else in their places the kernel refuses.
        (libc::SYS_seccomp, 0, 0) if c == 0 => preload::before_filter(None, refuses),
        (libc::SYS_prctl, PR_SET_SECCOMP, 1) => preload::before_filter(None, refuses),
        (libc::SYS_seccomp, 1, _) | (libc::SYS_prctl, PR_SET_SECCOMP, 2) => preload::before_filter(Some(c), refuses),
        _ => None,
    };
    set_errno(begun);
    let result = call(c);
    if number == libc::SYS_prctl
        && result == 0
        && let Some(change) = Change::of_setting(a as usize, b as usize)
    {
        credentials::changed(Some(change));
    }
    if let Some(before) = before {
        let errno = errno();
        let is_refused = result == -1 || (number == libc::SYS_seccomp && b == TSYNC && result > 0);
        preload::after_filter(before, !is_refused);
        set_errno(errno);
    }
    result
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the address of the calling thread's errno.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
