//! Calls that a tick broke off are made again, so that the application never sees an EINTR that is ours.
//!
//! Called from: the tick handler, last. May: read the interrupted code, ask which signals wait, change the context that the kernel returns to. May not: allocate, lock, block.
//!
//! Most calls go on by themselves after a handler (SA_RESTART); some never do (signal(7)): waiting for descriptors, sleeping, System V messages and semaphores, sockets with a time limit. The
//! sampler sends no signal to a thread that waits in one of them, and a timer of CPU time finds none there; but a thread can begin to wait between the moment when a tick is sent and the
//! moment when it comes. Then the call was begun just now, and has done nothing: the handler has the thread make it again. It waits as long as it was asked to, and longer by what it had
//! waited: the way of a signal. Where another signal waits for the thread, EINTR is that one's, and stays.
//!
//! The number of the call is gone from the registers by then. The instruction before shows where it was: it sets the number, which is how compilers place it, or loads it from the stack, where it
//! still is. glibc 2.41 and later make every call that ends a cancelled thread in one function, which takes the number as an argument and leaves it nowhere; its caller has it as an argument of
//! its own, above its return address. The C library's `syscall(2)` keeps it nowhere at all, so the preload library has one that does; a thread that comes by the C library's own is let go with
//! its EINTR.

use capture::probed::Probed;
use capture::rules::InHandler;
use capture::syscall::pending_signals;
use capture::walk;
use unwind::arch::Registers;
use unwind::cfi::Source as _;

const EINTR: i64 = 4;
/// A call that libc does not name here.
const IO_PGETEVENTS: i64 = 333;
/// Bytes of the system-call instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What a handler changes in the context that it interrupted, to have a call made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The call's instruction.
    pub(super) pc: u64,
    /// Its number, for `rax`.
    pub(super) number: u64,
}

/// What to return to, if the thread was broken off in a call that can be made again: it is behind the call with these registers and this result (`rax`). `mask` are the signals that it blocks.
/// `arguments` are the fourth to the sixth of the call.
pub(super) fn resumed(at: &Registers, result: u64, arguments: [u64; 3], mask: u64) -> Option<Call> {
    if result as i64 != -EINTR {
        return None;
    }
    let mut memory = Probed::new();
    let code: [u8; LOOKED_AT] = memory.read(at.pc.checked_sub(LOOKED_AT as u64)?)?;
    let number = number_before(&code)?.read(at, &mut memory).filter(|number| is_broken_off(*number))?;
    if awaits_signals(number, arguments, &mut memory) {
        return None;
    }
    let others = pending_signals() & !mask;
    (others == 0).then_some(Call { pc: at.pc - SYSCALL.len() as u64, number })
}

/// Bytes of code that are looked at.
const LOOKED_AT: usize = 14;

/// Where the number of a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Is(u64),
    /// Loaded from here, by the stack pointer or by the frame pointer.
    OnStack(i8),
    InFrame(i8),
    /// The seventh argument of the caller.
    OfCaller,
}

impl Number {
    fn read(self, at: &Registers, memory: &mut Probed) -> Option<u64> {
        let address = match self {
            Self::Is(number) => return Some(number),
            Self::OnStack(offset) => at.sp.checked_add_signed(offset.into())?,
            Self::InFrame(offset) => at.fp?.checked_add_signed(offset.into())?,
            Self::OfCaller => {
                let pc = word(memory, at.sp)?;
                // It was called, and has pushed nothing.
                let caller = Registers { pc, sp: at.sp.checked_add(8)?, fp: at.fp };
                walk::frame_address::<InHandler>(&mut *memory, caller)?
            }
        };
        word(memory, address)
    }
}

fn word(memory: &mut Probed, address: u64) -> Option<u64> {
    memory.read(address).map(u64::from_le_bytes)
}

/// The number that `mov eax, number` sets, or `mov rax, [...]` loads, before the call that `code` ends with. An instruction that fetches an argument from the stack may lie between.
fn number_before(code: &[u8]) -> Option<Number> {
    let before = code.strip_suffix(&SYSCALL)?;
    match before {
        [.., 0x48, 0x8b, 0x44, 0x24, offset] => return Some(Number::OnStack(offset.cast_signed())),
        [.., 0x48, 0x8b, 0x04, 0x24] => return Some(Number::OnStack(0)),
        [.., 0x48, 0x8b, 0x45, offset] => return Some(Number::InFrame(offset.cast_signed())),
        // mov [rsp+8], r11: what glibc's `__syscall_cancel_arch` does last, over one of its arguments.
        [.., 0x4c, 0x89, 0x5c, 0x24, 8] => return Some(Number::OfCaller),
        _ => {}
    }
    [Some(before), without_load(before)].into_iter().flatten().find_map(|before| {
        let (start, [a, b, c, d]) = before.split_last_chunk()?;
        // The same byte behind a prefix would name another register.
        let is_set = matches!(start, [.., before, 0xb8] if before & 0xf0 != 0x40);
        is_set.then(|| Number::Is(u32::from_le_bytes([*a, *b, *c, *d]).into()))
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

/// Whether a call waits with another mask than the thread's: for signals, then, with no moment between in which one could be missed. If one has come, and its handler returned just before the tick's began,
/// nothing tells that; made again, the call would wait for the next. So it keeps its EINTR: who waits so is prepared for signals that mean nothing to it. (`sigsuspend` and `pause` are not made
/// again for the same reason.)
fn awaits_signals(number: u64, [fourth, fifth, sixth]: [u64; 3], memory: &mut Probed) -> bool {
    match number as i64 {
        libc::SYS_ppoll => fourth != 0,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => fifth != 0,
        // The address of the mask's, and of its length.
        libc::SYS_pselect6 | IO_PGETEVENTS => sixth != 0 && word(memory, sixth) != Some(0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(code: &[u8]) -> Option<Number> {
        let mut padded = vec![0x90; LOOKED_AT - code.len()];
        padded.extend(code);
        number_before(&padded)
    }

    #[test]
    fn the_number_is_read_from_the_instruction_before() {
        // mov eax, 7; syscall
        assert_eq!(number(&[0xb8, 7, 0, 0, 0, 0x0f, 0x05]), Some(Number::Is(7)));
        // mov eax, 0x119; mov edi, [rsp+4]; syscall
        assert_eq!(number(&[0xb8, 0x19, 1, 0, 0, 0x8b, 0x7c, 0x24, 4, 0x0f, 0x05]), Some(Number::Is(0x119)));
        // mov eax, 0xe6; mov rdi, [rsp+0x7c]; syscall: the offset looks like another form of the same instruction.
        assert_eq!(number(&[0xb8, 0xe6, 0, 0, 0, 0x48, 0x8b, 0x7c, 0x24, 0x7c, 0x0f, 0x05]), Some(Number::Is(0xe6)));
        // mov eax, 0xe6; mov edi, [rsp]; syscall
        assert_eq!(number(&[0xb8, 0xe6, 0, 0, 0, 0x8b, 0x3c, 0x24, 0x0f, 0x05]), Some(Number::Is(0xe6)));
    }

    #[test]
    fn the_number_is_where_it_was_loaded_from() {
        // mov rax, [rsp+16]; syscall: a process with one thread, in glibc 2.41.
        assert_eq!(number(&[0x48, 0x8b, 0x44, 0x24, 16, 0x0f, 0x05]), Some(Number::OnStack(16)));
        // mov rax, [rsp-8]; syscall: the preload library's `syscall`.
        assert_eq!(number(&[0x48, 0x8b, 0x44, 0x24, 0xf8, 0x0f, 0x05]), Some(Number::OnStack(-8)));
        assert_eq!(number(&[0x48, 0x8b, 0x04, 0x24, 0x0f, 0x05]), Some(Number::OnStack(0)));
        // mov rax, [rbp+16]; syscall: the same with frame pointers.
        assert_eq!(number(&[0x48, 0x8b, 0x45, 16, 0x0f, 0x05]), Some(Number::InFrame(16)));

        let stack = [1_u64, 2, 3, 4];
        let middle = &raw const stack[1] as u64;
        let at = Registers { pc: 0, sp: middle, fp: Some(middle) };
        for (place, number) in
            [(Number::OnStack(0), 2), (Number::OnStack(16), 4), (Number::OnStack(-8), 1), (Number::InFrame(8), 3)]
        {
            assert_eq!(place.read(&at, &mut Probed::new()), Some(number), "{place:?}");
        }
        assert_eq!(Number::InFrame(8).read(&Registers { fp: None, ..at }, &mut Probed::new()), None);
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

    /// Behind a call that this very process could be in.
    fn behind(code: &'static [u8; LOOKED_AT]) -> Registers {
        Registers { pc: code.as_ptr() as u64 + LOOKED_AT as u64, sp: 0x1000, fp: None }
    }

    #[test]
    fn who_waits_for_signals_is_not_made_to_wait_again() {
        let mut memory = Probed::new();
        let mut awaits = |number: i64, arguments| awaits_signals(number as u64, arguments, &mut memory);
        // The address and the length of a mask; of none.
        let (mask, none) = ([0x1000_u64, 8], [0_u64, 8]);
        let (mask, none) = (mask.as_ptr() as u64, none.as_ptr() as u64);
        assert!(awaits(libc::SYS_ppoll, [mask, 0, 0]) && !awaits(libc::SYS_ppoll, [0, 8, 8]));
        assert!(awaits(libc::SYS_epoll_pwait, [0, mask, 8]) && !awaits(libc::SYS_epoll_pwait, [100, 0, 8]));
        assert!(awaits(libc::SYS_pselect6, [0, 0, mask]) && !awaits(libc::SYS_pselect6, [0, 0, 0]));
        assert!(!awaits(libc::SYS_pselect6, [0, 0, none]), "as `pselect` without a mask");
        assert!(!awaits(libc::SYS_poll, [mask; 3]));
        assert!(!is_broken_off(libc::SYS_rt_sigsuspend as u64) && !is_broken_off(libc::SYS_pause as u64));
    }

    #[test]
    fn a_broken_call_is_made_again_and_no_other() {
        static POLL: [u8; LOOKED_AT] = [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xb8, 7, 0, 0, 0, 0x0f, 0x05];
        let broken = behind(&POLL);
        let resumed = |at: &Registers, result: i64| resumed(at, result as u64, [0; 3], u64::MAX);
        assert_eq!(resumed(&broken, -4), Some(Call { pc: broken.pc - 2, number: 7 }));
        assert_eq!(resumed(&broken, -11), None, "EAGAIN");
        assert_eq!(resumed(&broken, 0), None, "done");
        assert_eq!(resumed(&Registers { pc: 0x10, ..broken }, -4), None, "no code there");
        static BY_ARGUMENT: [u8; LOOKED_AT] =
            [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x4c, 0x89, 0x5c, 0x24, 8, 0x0f, 0x05];
        assert_eq!(resumed(&behind(&BY_ARGUMENT), -4), None, "no stack there");
    }
}
