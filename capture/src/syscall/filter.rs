//! Filters of system calls that the host installs for itself (seccomp): a call of ours that a filter would answer with a signal is not made any more, and fails as
//! if it had been refused.
//!
//! Called from: `foresee` and `forbid` before the host installs a filter; `is_forbidden` before every system call of ours. A filter is run here as the kernel would run it, once
//! for each of our calls, so one that lets them pass or refuses them changes nothing.
//!
//! # Orderings
//!
//! A bit of `FORBIDDEN` is set before the filter is in force, by the thread that installs it.

use super::file::{AT_SYMLINK_NOFOLLOW, R_OK};
use super::{mm, number};
use core::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 6;
static FORBIDDEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// A set of system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Calls([u64; WORDS]);

impl Calls {
    fn insert(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }
}

/// What a filter does to our calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// Answered with a signal, or by somebody else.
    punished: Calls,
    /// These, and the ones that fail.
    refused: Calls,
}

impl Foreseen {
    /// Whether the store can no longer grow.
    pub fn stops_growth(&self) -> bool {
        let refused = |number| self.refused.contains(number);
        refused(number::MADVISE) && (refused(number::OPENAT) || refused(number::FALLOCATE))
    }

    /// Whether a tick would be the process's end: a handler that cannot return runs on into nothing.
    pub fn stops_ticks(&self) -> bool {
        self.refused.contains(RETURN_FROM_SIGNAL)
    }
}

/// What was forbidden at some time.
#[derive(Clone, Copy, Debug)]
pub struct Before([u64; WORDS]);

/// One instruction of a filter, as it lies in memory: `struct sock_filter`.
pub type RawInstruction = [u8; 8];

struct Instruction {
    /// Class, size and mode, or operation and source.
    code: u16,
    /// Instructions skipped if a comparison holds.
    then: u8,
    /// Instructions skipped if it does not.
    otherwise: u8,
    /// Constant, offset or distance.
    k: u32,
}

impl Instruction {
    fn read([c, d, then, otherwise, k @ ..]: &RawInstruction) -> Self {
        let (code, k) = (u16::from_ne_bytes([*c, *d]), u32::from_ne_bytes(*k));
        Self { code, then: *then, otherwise: *otherwise, k }
    }
}

/// Longest filter that the kernel takes.
pub const MAX_INSTRUCTIONS: usize = 4096;
/// What a handler returns through: no call of ours, but without it no tick can be taken.
const RETURN_FROM_SIGNAL: usize = 15;

/// Whether a call of this number must not be made.
#[inline]
pub fn is_forbidden(number: usize) -> bool {
    let word = FORBIDDEN.get(number / 64).map_or(0, |word| word.load(Ordering::Relaxed));
    word >> (number % 64) & 1 != 0
}

/// What this filter does to our calls; `None` is the strict mode, which knows reading, writing and the end.
pub fn foresee(filter: Option<&[RawInstruction]>) -> Foreseen {
    let mut foreseen = Foreseen::default();
    for (number, arguments) in calls() {
        let answer = match filter {
            None if number == RETURN_FROM_SIGNAL => ALLOW,
            None => KILL,
            Some(filter) => answer(filter, &data(number, arguments)).unwrap_or(KILL),
        };
        match answer & 0xffff_0000 {
            ALLOW | LOG => {}
            ERRNO => foreseen.refused.insert(number),
            _ => {
                foreseen.refused.insert(number);
                foreseen.punished.insert(number);
            }
        }
    }
    foreseen
}

/// Makes no call from now on that would be punished. Returns what was forbidden before, for [`restore`] if the filter is not taken.
pub fn forbid(foreseen: &Foreseen) -> Before {
    let mut before = Before([0; WORDS]);
    for ((word, new), before) in FORBIDDEN.iter().zip(foreseen.punished.0).zip(&mut before.0) {
        *before = word.fetch_or(new, Ordering::Relaxed);
    }
    before
}

/// The filter was not taken.
pub fn restore(before: &Before) {
    for (word, before) in FORBIDDEN.iter().zip(before.0) {
        word.store(before, Ordering::Relaxed);
    }
}

const KILL: u32 = 0;
const ERRNO: u32 = 0x0005_0000;
const LOG: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;

/// Our calls, with arguments as we pass them; addresses and descriptors are any.
fn calls() -> [(usize, [u64; 6]); 45] {
    const AT_FDCWD: u64 = -100_i64 as u64;
    const CLOEXEC: u64 = 0o2_000_000;
    let (read_write, anonymous) = (mm::READ_WRITE as u64, mm::ANONYMOUS as u64);
    [
        (number::READ, [3, 0, 4096, 0, 0, 0]),
        (number::CLOSE, [3, 0, 0, 0, 0, 0]),
        (number::FSTAT, [3, 0, 0, 0, 0, 0]),
        (number::MMAP, [0, 4096, read_write, anonymous, u64::MAX, 0]),
        (number::MPROTECT, [0, 4096, mm::READ as u64, 0, 0, 0]),
        (number::MUNMAP, [0, 4096, 0, 0, 0, 0]),
        (number::RT_SIGPROCMASK, [super::NO_SUCH_OPERATION as u64, 0, 0, 8, 0, 0]),
        (number::RT_SIGPROCMASK, [super::SET_MASK as u64, 0, 0, 8, 0, 0]),
        (number::RT_SIGPENDING, [0, 8, 0, 0, 0, 0]),
        (number::SIGALTSTACK, [0; 6]),
        (RETURN_FROM_SIGNAL, [0; 6]),
        (number::PREAD64, [3, 0, 4096, 0, 0, 0]),
        (number::PWRITE64, [3, 0, 4096, 0, 0, 0]),
        (number::ACCESS, [0, R_OK as u64, 0, 0, 0, 0]),
        (number::SCHED_YIELD, [0; 6]),
        (number::MADVISE, [0, 4096, super::POPULATE_WRITE as u64, 0, 0, 0]),
        (number::MADVISE, [0, 4096, mm::WIPE_ON_FORK as u64, 0, 0, 0]),
        (number::GETPID, [0; 6]),
        (number::FTRUNCATE, [3, 4096, 0, 0, 0, 0]),
        (number::GETRLIMIT, [1, 0, 0, 0, 0, 0]),
        (number::GETPPID, [0; 6]),
        (number::PRCTL, [super::PR_GET_NAME as u64, 0, 0, 0, 0, 0]),
        (number::ARCH_PRCTL, [super::ARCH_GET_FS as u64, 0, 0, 0, 0, 0]),
        (number::GETTID, [0; 6]),
        (number::SETUID, [0; 6]),
        (number::SETGID, [0; 6]),
        (number::SETREUID, [0; 6]),
        (number::SETREGID, [0; 6]),
        (number::SETRESUID, [0; 6]),
        (number::SETRESGID, [0; 6]),
        (number::CAPSET, [0; 6]),
        (number::EXIT_GROUP, [0; 6]),
        (number::GETDENTS64, [3, 0, 4096, 0, 0, 0]),
        (number::TIMER_CREATE, [6, 0, 0, 0, 0, 0]),
        (number::TIMER_SETTIME, [0; 6]),
        (number::TIMER_DELETE, [0; 6]),
        (number::CLOCK_GETTIME, [3, 0, 0, 0, 0, 0]),
        (number::OPENAT, [AT_FDCWD, 0, CLOEXEC, 0o600, 0, 0]),
        (number::NEWFSTATAT, [AT_FDCWD, 0, 0, AT_SYMLINK_NOFOLLOW as u64, 0, 0]),
        (number::UNLINKAT, [AT_FDCWD, 0, 0, 0, 0, 0]),
        (number::READLINKAT, [AT_FDCWD, 0, 0, 4096, 0, 0]),
        (number::GET_ROBUST_LIST, [0; 6]),
        (number::FALLOCATE, [3, 0, 0, 4096, 0, 0]),
        (number::RT_TGSIGQUEUEINFO, [1, 1, 27, 0, 0, 0]),
        (number::PROCESS_VM_READV, [1, 0, 1, 0, 1, 0]),
    ]
}

/// `struct seccomp_data`, in words.
type Data = [u32; 16];

fn data(number: usize, arguments: [u64; 6]) -> Data {
    let mut data = [0; 16];
    let [call, architecture, _, _, rest @ ..] = &mut data;
    (*call, *architecture) = (number as u32, super::AUDIT_ARCHITECTURE);
    for (words, argument) in rest.chunks_exact_mut(2).zip(arguments) {
        if let [low, high] = words {
            (*low, *high) = (argument as u32, (argument >> 32) as u32);
        }
    }
    data
}

/// What the filter returns. `None` if it does not end as a filter that the kernel takes does.
fn answer(filter: &[RawInstruction], data: &Data) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; 16]);
    let mut at = 0_usize;
    // Jumps lead forward alone.
    for _ in 0..filter.len() {
        let instruction = Instruction::read(filter.get(at)?);
        at += 1;
        let (code, k) = (instruction.code, instruction.k);
        let operand = if code & 0x08 == 0 { k } else { x };
        match code & 0x07 {
            class @ (0 | 1) => {
                let value = match code & 0xe0 {
                    0x00 => k,
                    0x20 if k.is_multiple_of(4) => *data.get(k as usize / 4)?,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => size_of::<Data>() as u32,
                    _ => return None,
                };
                *(if class == 0 { &mut a } else { &mut x }) = value;
            }
            2 => *memory.get_mut(k as usize)? = a,
            3 => *memory.get_mut(k as usize)? = x,
            4 => a = calculate(code & 0xf0, a, operand)?,
            5 => {
                let holds = match code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if holds { instruction.then } else { instruction.otherwise });
            }
            6 => return Some(if code & 0x18 == 0x10 { a } else { k }),
            _ if code & 0x80 == 0 => x = a,
            _ => a = x,
        }
    }
    None
}

fn calculate(operation: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.checked_shl(operand).unwrap_or(0),
        0x70 => a.checked_shr(operand).unwrap_or(0),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(operand)?,
        0xa0 => a ^ operand,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(code: u16, then: u8, otherwise: u8, k: u32) -> RawInstruction {
        let ([c, d], [e, f, g, h]) = (code.to_ne_bytes(), k.to_ne_bytes());
        [c, d, then, otherwise, e, f, g, h]
    }
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;

    fn of(filter: &[RawInstruction], number: usize, arguments: [u64; 6]) -> Option<u32> {
        answer(filter, &data(number, arguments))
    }

    #[test]
    fn a_list_of_numbers_is_followed_to_its_answer() {
        let filter = [
            op(LOAD, 0, 0, 0),
            op(EQUAL, 1, 0, number::READ as u32),
            op(EQUAL, 0, 1, number::OPENAT as u32),
            op(RETURN, 0, 0, ALLOW),
            op(RETURN, 0, 0, 0x8000_0000),
        ];
        assert_eq!(of(&filter, number::READ, [0; 6]), Some(ALLOW));
        assert_eq!(of(&filter, number::OPENAT, [0; 6]), Some(ALLOW));
        assert_eq!(of(&filter, number::MADVISE, [0; 6]), Some(0x8000_0000));
    }

    #[test]
    fn arguments_are_compared_half_by_half() {
        // The third argument's low half has the bit 4 (execution): killed.
        let filter =
            [op(LOAD, 0, 0, 32), op(0x45, 0, 1, 4), op(RETURN, 0, 0, 0), op(LOAD, 0, 0, 36), op(0x16, 0, 0, 0)];
        assert_eq!(of(&filter, number::MMAP, [0, 0, 7, 0, 0, 0]), Some(0));
        assert_eq!(of(&filter, number::MMAP, [0, 0, 5 << 32, 0, 0, 0]), Some(5));
    }

    #[test]
    fn calculations_are_those_of_the_kernel() {
        // x = 3; a = ((nr + 5) * x ^ 1) - x, kept and loaded again.
        let filter = [
            op(0x01, 0, 0, 3),
            op(LOAD, 0, 0, 0),
            op(0x04, 0, 0, 5),
            op(0x2c, 0, 0, 0),
            op(0xa4, 0, 0, 1),
            op(0x1c, 0, 0, 0),
            op(0x02, 0, 0, 7),
            op(0x00, 0, 0, 9),
            op(0x60, 0, 0, 7),
            op(0x16, 0, 0, 0),
        ];
        assert_eq!(of(&filter, 10, [0; 6]), Some((45 ^ 1) - 3));
    }

    #[test]
    fn a_filter_that_the_kernel_would_not_take_has_no_answer() {
        assert_eq!(of(&[], 0, [0; 6]), None);
        assert_eq!(of(&[op(LOAD, 0, 0, 64), op(RETURN, 0, 0, 0)], 0, [0; 6]), None);
        assert_eq!(of(&[op(LOAD, 0, 0, 1), op(RETURN, 0, 0, 0)], 0, [0; 6]), None);
        assert_eq!(of(&[op(0x05, 0, 0, u32::MAX)], 0, [0; 6]), None);
        assert_eq!(of(&[op(0x34, 0, 0, 0), op(RETURN, 0, 0, 0)], 0, [0; 6]), None);
    }

    #[test]
    fn every_call_of_ours_is_foreseen() {
        for number in number::ALL {
            assert!(calls().iter().any(|(foreseen, _)| foreseen == number), "call {number} would be made unforeseen");
        }
    }

    #[test]
    fn what_a_filter_punishes_and_refuses_is_foreseen() {
        let all = foresee(Some(&[op(RETURN, 0, 0, ALLOW)]));
        assert_eq!((all, all.stops_growth()), (Foreseen::default(), false));
        for (answer, punished) in
            [(ERRNO | 1, false), (LOG, false), (0x0003_0000, true), (0x7fc0_0000, true), (0x8000_0000, true)]
        {
            // Numbers above 20 are answered like this.
            let filter = [op(LOAD, 0, 0, 0), op(0x25, 0, 1, 20), op(RETURN, 0, 0, answer), op(RETURN, 0, 0, ALLOW)];
            let foreseen = foresee(Some(&filter));
            assert_eq!(foreseen.punished.contains(number::OPENAT), punished, "{answer:#x}");
            assert_eq!(foreseen.stops_growth(), answer != LOG, "{answer:#x}");
            assert!(!foreseen.punished.contains(number::MMAP) && !foreseen.stops_ticks());
        }
        let strict = foresee(None);
        assert!(strict.stops_growth() && !strict.stops_ticks() && strict.punished.contains(number::MMAP));
    }
}
