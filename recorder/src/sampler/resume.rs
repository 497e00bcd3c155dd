//! Calls that a tick broke off are made again, so that the application never sees an EINTR that is ours.
//!
//! Called from: the tick handler, last. May: read the interrupted code, ask which signals wait, change the context that the kernel returns to. May not: allocate, lock, block.
//!
//! Most calls go on by themselves after a handler (SA_RESTART); some never do (signal(7)): waiting for descriptors, sleeping, System V messages and semaphores, sockets with a time limit. The
//! sampler sends no signal to a thread that waits in one of them, and a timer of CPU time finds none there; but a thread can begin to wait between the moment when a tick is sent and the
//! moment when it comes. Then the call was begun just now, and has done nothing: the handler has the thread make it again. It waits as long as it was asked to, and longer by what it had
//! waited: the way of a signal. Where another signal waits for the thread, EINTR is that one's, and stays.
//!
//! The number of the call is gone from the registers by then. It is read from the code, where the instruction before sets it, which is how compilers place it; a thread that comes by way of
//! `syscall(2)`, which takes the number as an argument, is let go with its EINTR.

use capture::probed::Probed;
use capture::syscall::pending_signals;
use unwind::cfi::Source as _;

const EINTR: i64 = 4;
/// A call that libc does not name here.
const IO_PGETEVENTS: i64 = 333;
/// Bytes of the system-call instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What a handler may change in the context that it interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The instruction after the call; to make it again, the call itself.
    pub(super) pc: u64,
    /// The call's result; to make it again, its number.
    pub(super) rax: u64,
}

/// What to return to, if the thread was broken off in a call that can be made again. `mask` are the signals that it blocks.
pub(super) fn resumed(at: Call, mask: u64) -> Option<Call> {
    if at.rax as i64 != -EINTR {
        return None;
    }
    let code: [u8; LOOKED_AT] = Probed::new().read(at.pc.checked_sub(LOOKED_AT as u64)?)?;
    let number = number_before(&code).filter(|number| is_broken_off(*number))?;
    let others = pending_signals() & !mask;
    (others == 0).then_some(Call { pc: at.pc - SYSCALL.len() as u64, rax: number })
}

/// Bytes of code that are looked at.
const LOOKED_AT: usize = 14;

/// The number that the instruction `mov eax, number` sets before the call that `code` ends with; an instruction that fetches an argument from the stack may lie between.
fn number_before(code: &[u8]) -> Option<u64> {
    let before = code.strip_suffix(&SYSCALL)?;
    [Some(before), without_load(before)].into_iter().flatten().find_map(|before| {
        let (start, [a, b, c, d]) = before.split_last_chunk()?;
        // The same byte behind a prefix would name another register.
        let is_set = matches!(start, [.., before, 0xb8] if before & 0xf0 != 0x40);
        is_set.then(|| u64::from(u32::from_le_bytes([*a, *b, *c, *d])))
    })
}

/// The code before `mov edi, [rsp + N]`, or `mov rdi, [rsp + N]`, if it ends with that.
fn without_load(code: &[u8]) -> Option<&[u8]> {
    match code {
        [rest @ .., 0x8b, 0x7c, 0x24, _] | [rest @ .., 0x8b, 0x3c, 0x24] => {
            Some(rest.strip_suffix(&[0x48]).unwrap_or(rest))
        }
        _ => None,
    }
}

/// Whether a call ends with EINTR after a handler, and did nothing then, so that it can be made again. (`close` is not among them: its descriptor is gone.)
fn is_broken_off(number: u64) -> bool {
    matches!(
        number as i64,
        libc::SYS_read
            | libc::SYS_write
            | libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_poll
            | libc::SYS_ppoll
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_pause
            | libc::SYS_rt_sigsuspend
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_futex
            | libc::SYS_semop
            | libc::SYS_semtimedop
            | libc::SYS_msgsnd
            | libc::SYS_msgrcv
            | libc::SYS_connect
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_io_getevents
            | IO_PGETEVENTS
            | libc::SYS_io_uring_enter
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(code: &[u8]) -> Option<u64> {
        let mut padded = vec![0x90; LOOKED_AT - code.len()];
        padded.extend(code);
        number_before(&padded)
    }

    #[test]
    fn the_number_is_read_from_the_instruction_before() {
        // mov eax, 7; syscall
        assert_eq!(number(&[0xb8, 7, 0, 0, 0, 0x0f, 0x05]), Some(7));
        // mov eax, 0x119; mov edi, [rsp+4]; syscall
        assert_eq!(number(&[0xb8, 0x19, 1, 0, 0, 0x8b, 0x7c, 0x24, 4, 0x0f, 0x05]), Some(0x119));
        // mov eax, 0xe6; mov rdi, [rsp+0x7c]; syscall: the offset looks like another form of the same instruction.
        assert_eq!(number(&[0xb8, 0xe6, 0, 0, 0, 0x48, 0x8b, 0x7c, 0x24, 0x7c, 0x0f, 0x05]), Some(0xe6));
        // mov eax, 0xe6; mov edi, [rsp]; syscall
        assert_eq!(number(&[0xb8, 0xe6, 0, 0, 0, 0x8b, 0x3c, 0x24, 0x0f, 0x05]), Some(0xe6));
    }

    #[test]
    fn what_is_not_certain_is_not_read() {
        // mov r8d, 7; syscall: the number is in a register that was set elsewhere.
        assert_eq!(number(&[0x41, 0xb8, 7, 0, 0, 0, 0x0f, 0x05]), None);
        // mov r9, [rsp+8]; syscall: glibc's `syscall`.
        assert_eq!(number(&[0x4c, 0x8b, 0x4c, 0x24, 8, 0x0f, 0x05]), None);
        assert_eq!(number(&[0xb8, 7, 0, 0, 0, 0x90, 0x90]), None, "not a call");
        assert_eq!(number_before(&[0x0f, 0x05]), None);
    }

    #[test]
    fn calls_that_did_something_are_not_made_again() {
        assert!(is_broken_off(libc::SYS_poll as u64) && is_broken_off(libc::SYS_epoll_wait as u64));
        for number in [libc::SYS_close, libc::SYS_rt_sigreturn, libc::SYS_exit_group, libc::SYS_clone, libc::SYS_wait4]
        {
            assert!(!is_broken_off(number as u64), "{number}");
        }
    }

    /// The code of a call that this very process could be in.
    fn at(code: &'static [u8; LOOKED_AT], rax: i64) -> Call {
        Call { pc: code.as_ptr() as u64 + LOOKED_AT as u64, rax: rax as u64 }
    }

    #[test]
    fn a_broken_call_is_made_again_and_no_other() {
        static POLL: [u8; LOOKED_AT] = [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xb8, 7, 0, 0, 0, 0x0f, 0x05];
        let broken = at(&POLL, -4);
        assert_eq!(resumed(broken, u64::MAX), Some(Call { pc: broken.pc - 2, rax: 7 }));
        assert_eq!(resumed(at(&POLL, -11), u64::MAX), None, "EAGAIN");
        assert_eq!(resumed(at(&POLL, 0), u64::MAX), None, "done");
        assert_eq!(resumed(Call { pc: 0x10, rax: -4_i64 as u64 }, u64::MAX), None, "no code there");
    }
}
