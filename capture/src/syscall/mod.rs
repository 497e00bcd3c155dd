//! Raw system calls: no libc, so no errno, no cancellation points and nothing that another library could interpose.
//!
//! Each returns what the kernel returns, with errors as [`Errno`]. May be called anywhere, signal handlers included.
#![allow(unsafe_code)]

mod file;
pub mod filter;
mod x86_64;
pub use file::{File, Status, identity_of_file, may_read, read_link, remove_file};
#[cfg(feature = "oracle")]
pub use x86_64::trap;
use x86_64::{AUDIT_ARCHITECTURE, is_in_valgrind};
pub use x86_64::{number, syscall};

/// A way to change the signal mask that does not exist.
const NO_SUCH_OPERATION: usize = 0x7fff;
/// The operation of `rt_sigprocmask` that replaces the mask.
const SET_MASK: usize = 2;
const POPULATE_WRITE: usize = 23;
const PR_GET_NAME: usize = 16;
const PR_GET_SECCOMP: usize = 21;
const ARCH_GET_FS: usize = 0x1003;

/// Error number of a failed system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Interrupted by a signal.
    pub const INTR: Self = Self(4);
    /// No such file.
    pub const NOENT: Self = Self(2);
    /// No such process.
    pub const SRCH: Self = Self(3);
    /// Permission denied.
    pub const ACCES: Self = Self(13);
    /// Bad address.
    pub const FAULT: Self = Self(14);
    /// Nothing to read where a file was asked for memory.
    pub const IO: Self = Self(5);
    /// Something that is no directory where one should be.
    pub const NOTDIR: Self = Self(20);
    /// Invalid argument.
    pub const INVAL: Self = Self(22);
    /// A file would be larger than it may be.
    pub const FBIG: Self = Self(27);
    /// Operation not supported.
    pub const OPNOTSUPP: Self = Self(95);
}

fn check(result: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// How large a file this process may write (RLIMIT_FSIZE).
pub fn file_size_limit() -> u64 {
    const RLIMIT_FSIZE: usize = 1;
    limit(RLIMIT_FSIZE)
}

/// Bytes that the main thread's stack may grow to (RLIMIT_STACK).
pub fn stack_limit() -> u64 {
    const RLIMIT_STACK: usize = 3;
    limit(RLIMIT_STACK)
}

/// Bytes of address space that this process may still map (RLIMIT_AS); the largest number where that is not limited, or `/proc` does not tell what it has.
pub fn address_space_left() -> u64 {
    const RLIMIT_AS: usize = 9;
    left_of(RLIMIT_AS, 0)
}

/// The same of private memory that can be written (RLIMIT_DATA).
pub fn data_left() -> u64 {
    const RLIMIT_DATA: usize = 2;
    left_of(RLIMIT_DATA, 5)
}

/// What a limit leaves of that of which `/proc/self/statm` says in this field how much there is, in pages (proc_pid_statm(5)).
fn left_of(which: usize, field: usize) -> u64 {
    const PAGE: u64 = 4096;
    let limit = limit(which);
    if limit == u64::MAX {
        return u64::MAX;
    }
    let mut line = [0; 160];
    let mut pages = || -> Option<u64> {
        let length = File::open(b"/proc/self/statm\0", File::READ).ok()?.read(&mut line).ok()?;
        core::str::from_utf8(line.get(..length)?).ok()?.split_ascii_whitespace().nth(field)?.parse().ok()
    };
    pages().map_or(u64::MAX, |pages| limit.saturating_sub(pages.saturating_mul(PAGE)))
}

/// A limit that is in force.
fn limit(which: usize) -> u64 {
    // struct rlimit: the limit in force, the highest that it can be raised to.
    let mut limits = [u64::MAX; 2];
    // SAFETY: the kernel writes one struct rlimit.
    unsafe { syscall(number::GETRLIMIT, [which, limits.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    let [limit, _] = limits;
    limit
}

/// Inode of the PID namespace of this process; `None` where `/proc` does not tell.
pub fn pid_namespace() -> Option<u64> {
    // "pid:[4026531836]"
    let mut target = [0; 32];
    let digits = read_link(b"/proc/self/ns/pid\0", &mut target).ok()?.strip_prefix(b"pid:[")?.strip_suffix(b"]")?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// This process.
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(number::GETPID, [0; 6]) as u32 }
}

/// The parent of this process.
pub fn getppid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(number::GETPPID, [0; 6]) as u32 }
}

/// Ends the process at once; returns where a filter forbids it.
pub fn exit_group(code: i32) {
    // SAFETY: no memory is involved.
    unsafe { syscall(number::EXIT_GROUP, [code as usize, 0, 0, 0, 0, 0]) };
}

/// The calling thread.
pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(number::GETTID, [0; 6]) as u32 }
}

/// Where the calling thread notes its robust mutexes (get_robust_list(2)); 0: it told the kernel of no such place.
pub fn robust_list() -> Result<u64, Errno> {
    let (mut head, mut length) = (0_u64, 0_u64);
    // SAFETY: the kernel writes an address and a length.
    check(unsafe { syscall(number::GET_ROBUST_LIST, [0, &raw mut head as usize, &raw mut length as usize, 0, 0, 0]) })?;
    Ok(head)
}

/// The calling thread's thread pointer, which may point to anything.
pub fn thread_pointer() -> Result<u64, Errno> {
    let mut pointer = 0_u64;
    // SAFETY: the kernel writes one word.
    check(unsafe { syscall(number::ARCH_PRCTL, [ARCH_GET_FS, &raw mut pointer as usize, 0, 0, 0, 0]) })?;
    Ok(pointer)
}

/// Lets other threads run.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { syscall(number::SCHED_YIELD, [0; 6]) };
}

/// The calling thread's name (comm), zero-padded.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { syscall(number::PRCTL, [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// Whether the calling thread is under a filter of system calls, by its own doing or, as a service or in a container, by that of whoever started it.
pub fn is_filtered() -> bool {
    // SAFETY: no memory is involved.
    unsafe { syscall(number::PRCTL, [PR_GET_SECCOMP, 0, 0, 0, 0, 0]) != 0 }
}

/// The name of any thread of this process, zero-padded; `None` if it is gone, or the kernel does not tell.
pub fn name_of_thread(tid: u32) -> Option<[u8; 16]> {
    let mut path = *b"/proc/self/task/..........\0\0\0\0\0\0";
    let (_, digits) = path.split_at_mut_checked(b"/proc/self/task/".len())?;
    let count = tid.checked_ilog10().map_or(1, |log| log as usize + 1);
    let mut left = tid;
    for digit in digits.get_mut(..count)?.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    digits.get_mut(count..count + 6)?.copy_from_slice(b"/comm\0");
    let mut line = [0; 16];
    let end = path.iter().position(|byte| *byte == 0)?;
    let read = File::open(path.get(..=end)?, File::READ).ok()?.read(&mut line).ok()?;
    // Fifteen characters and the end of the line at most.
    *line.get_mut(read.checked_sub(1)?)? = 0;
    Some(line)
}

/// Nanoseconds of a clock; 0 if the clock is gone (a thread that ended).
pub fn clock_ns(clock: i32) -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: the kernel writes one timespec.
    let result = unsafe { syscall(number::CLOCK_GETTIME, [clock as usize, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if result != 0 {
        return 0;
    }
    let [seconds, nanos] = time;
    (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanos as u64)
}

/// Whether the page at `address` can be read: a signal mask read from it, with an operation that does not exist, is refused either way,
/// as EFAULT or as EINVAL. Changes nothing.
pub fn is_readable(address: u64) -> bool {
    // It would complain of the operation on the program's standard error.
    if is_in_valgrind() {
        return read_own(address, &mut [0]) == Ok(1);
    }
    // SAFETY: the kernel checks the address itself, and an unknown operation never changes the mask.
    let result =
        check(unsafe { syscall(number::RT_SIGPROCMASK, [NO_SUCH_OPERATION, (address & !7) as usize, 0, 8, 0, 0]) });
    result == Err(Errno::INVAL)
}

/// Signals that wait for the calling thread, blocked ones among them, a bit each. None if the kernel does not tell.
pub fn pending_signals() -> u64 {
    let mut pending = 0_u64;
    // SAFETY: the kernel writes one set of eight bytes.
    unsafe { syscall(number::RT_SIGPENDING, [&raw mut pending as usize, 8, 0, 0, 0, 0]) };
    pending
}

/// Sets the calling thread's mask of signals; what it was.
pub fn set_signal_mask(bits: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: the kernel reads one set of eight bytes and writes another.
    unsafe { syscall(number::RT_SIGPROCMASK, [SET_MASK, &raw const bits as usize, &raw mut before as usize, 8, 0, 0]) };
    before
}

/// What the kernel knows of the calling thread's signal stack: `stack_t`, which is its address, flags (32 bits) and size.
fn told_of_signal_stack() -> Option<[u64; 3]> {
    let mut stack = [0_u64; 3];
    // SAFETY: the kernel writes one structure of these three words.
    let told = check(unsafe { syscall(number::SIGALTSTACK, [0, &raw mut stack as usize, 0, 0, 0, 0]) });
    told.is_ok().then_some(stack)
}

/// Where the stack begins that the calling thread set aside for signal handlers, if it did and the kernel tells.
pub fn signal_stack() -> Option<u64> {
    told_of_signal_stack().map(|[low, ..]| low).filter(|low| *low != 0)
}

/// Sets a stack aside for the signal handlers of the calling thread; `flags` as those of `sigaltstack`.
///
/// # Safety
/// Nothing else is there, and it stays as long as the thread may have signals.
pub unsafe fn set_signal_stack(low: u64, bytes: usize, flags: i32) -> Result<(), Errno> {
    let stack = [low, u64::from(flags.cast_unsigned()), bytes as u64];
    // SAFETY: the kernel reads one structure of these three words; the rest is as the caller promises.
    check(unsafe { syscall(number::SIGALTSTACK, [&raw const stack as usize, 0, 0, 0, 0, 0]) }).map(drop)
}

/// Whether the calling thread runs on that stack. True where the kernel does not tell.
pub fn is_on_alternate_stack() -> bool {
    const ON_STACK: u64 = 1;
    told_of_signal_stack().is_none_or(|[_, flags, _]| flags & ON_STACK != 0)
}

/// Copies memory of this process that may vanish meanwhile; returns how many bytes could be read, 0 if nothing is there. An error: the kernel refuses to copy.
pub fn copy_memory(address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut result = read_own(address, buffer);
    if result.is_err_and(|error| error != Errno::FAULT) {
        // Refused by a filter of system calls: the process's own memory file says the same.
        result = File::open(b"/proc/self/mem\0", File::READ).and_then(|file| file.read_at(buffer, address));
    }
    match result {
        Err(Errno::FAULT | Errno::IO) => Ok(0),
        result => result,
    }
}

/// The same by the one call that is made for it.
fn read_own(address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let local = [buffer.as_mut_ptr() as usize, buffer.len()];
    let remote = [address as usize, buffer.len()];
    // SAFETY: the kernel writes into `buffer` alone, and checks the remote address itself.
    check(unsafe {
        syscall(
            number::PROCESS_VM_READV,
            [getpid() as usize, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0],
        )
    })
}

/// Bits of memory protection and of mapping flags that [`map`] takes.
pub mod mm {
    /// Pages may not be used at all.
    pub const NONE: usize = 0;
    /// Pages may be read.
    pub const READ: usize = 1;
    /// Pages may be read and written.
    pub const READ_WRITE: usize = 3;
    /// Shared with other processes that map the file.
    pub const SHARED: usize = 1;
    /// Private, not a file, no swap reserved.
    pub const ANONYMOUS: usize = 0x2 | 0x20 | 0x4000;
    /// Advice: zero the pages in a child after fork.
    pub const WIPE_ON_FORK: usize = 18;
    /// Advice: use large pages.
    pub const HUGE_PAGES: usize = 14;
    /// Advice: use no large pages.
    pub const NO_HUGE_PAGES: usize = 15;
}

/// Maps memory; `file` gives it its content.
pub fn map(length: usize, protection: usize, flags: usize, file: Option<&File>) -> Result<*mut u8, Errno> {
    let fd = file.map_or(usize::MAX, |f| f.0 as usize);
    // SAFETY: the kernel chooses an address where nothing is mapped.
    check(unsafe { syscall(number::MMAP, [0, length, protection, flags, fd, 0]) }).map(|address| address as *mut u8)
}

/// Unmaps memory.
///
/// # Safety
/// The range was mapped by [`map`], and nothing refers to it any more.
pub unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: the caller gives up the range.
    unsafe { syscall(number::MUNMAP, [address as usize, length, 0, 0, 0, 0]) };
}

/// Changes how mapped memory may be used: bits of [`mm`].
///
/// # Safety
/// Nobody uses the range in a way that is forbidden from now on.
pub unsafe fn protect(address: u64, length: usize, protection: usize) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    check(unsafe { syscall(number::MPROTECT, [address as usize, length, protection, 0, 0, 0]) }).map(drop)
}

/// Gives advice about mapped memory.
///
/// # Safety
/// The range was mapped by [`map`], and the advice does not discard anything that is still needed.
pub unsafe fn advise(address: *mut u8, length: usize, advice: usize) -> Result<(), Errno> {
    // SAFETY: as the caller promises.
    check(unsafe { syscall(number::MADVISE, [address as usize, length, advice, 0, 0, 0]) }).map(drop)
}

/// Makes the pages of a mapping writable now: where a write to them would raise SIGBUS, this fails instead.
///
/// # Safety
/// The range was mapped by [`map`] to be written.
pub unsafe fn populate(address: *mut u8, length: usize) -> Result<(), Errno> {
    // SAFETY: as the caller promises; no content changes.
    check(unsafe { syscall(number::MADVISE, [address as usize, length, POPULATE_WRITE, 0, 0, 0]) }).map(drop)
}

/// Sends a signal with a value to a thread of this process, as one that a timer sent (`si_code` is `SI_TIMER`): as long as it waits to be handled, `execve` takes it back.
pub fn send_as_timer(tid: u32, signal: i32, value: usize) -> Result<(), Errno> {
    const SI_TIMER: i32 = -2;
    // struct siginfo: signo, errno, code, padding, timer, overruns, value, up to 128 bytes.
    let mut info = [0_u64; 16];
    let [first, second, _, fourth, ..] = &mut info;
    *first = u64::from(signal as u32);
    *second = u64::from(SI_TIMER as u32);
    *fourth = value as u64;
    // SAFETY: the kernel reads one siginfo.
    check(unsafe {
        syscall(
            number::RT_TGSIGQUEUEINFO,
            [getpid() as usize, tid as usize, signal as usize, info.as_ptr() as usize, 0, 0],
        )
    })
    .map(drop)
}

/// Whether this process has a thread with this number. True where the kernel does not tell.
pub fn is_thread(tid: u32) -> bool {
    // No signal.
    send_as_timer(tid, 0, 0) != Err(Errno::SRCH)
}

/// A timer that sends `signal` to the thread `tid` on ticks of that thread's CPU clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimer(i32);

impl CpuTimer {
    /// Makes the timer and starts it: one signal every `period_ns` of CPU time of `tid`, the first after `first_ns`.
    ///
    /// `value` comes back in the signal's `si_value`.
    pub fn start(tid: u32, signal: i32, value: usize, first_ns: u64, period_ns: u64) -> Result<Self, Errno> {
        let timer = Self::new(tid, signal, value)?;
        timer.set(first_ns, period_ns).inspect_err(|_| timer.delete())?;
        Ok(timer)
    }

    /// Makes the timer, which sends nothing yet.
    pub fn new(tid: u32, signal: i32, value: usize) -> Result<Self, Errno> {
        const SIGEV_THREAD_ID: i32 = 4;
        // struct sigevent: value, signo, notify, tid, padding to 64 bytes.
        let notify = u64::from(signal as u32) | ((SIGEV_THREAD_ID as u64) << 32);
        let event = [value as u64, notify, u64::from(tid), 0, 0, 0, 0, 0];
        let mut id = 0_i32;
        // SAFETY: the kernel reads one sigevent and writes one timer id.
        check(unsafe {
            syscall(
                number::TIMER_CREATE,
                [thread_cpu_clock(tid) as usize, event.as_ptr() as usize, &raw mut id as usize, 0, 0, 0],
            )
        })?;
        Ok(Self(id))
    }

    /// Has it send a signal after `first_ns` of the thread's CPU time, and then every `period_ns`; 0: no more.
    pub fn set(self, first_ns: u64, period_ns: u64) -> Result<(), Errno> {
        let period = [(period_ns / 1_000_000_000) as i64, (period_ns % 1_000_000_000) as i64];
        let first = [(first_ns / 1_000_000_000) as i64, (first_ns % 1_000_000_000) as i64];
        let spec = [period, first];
        // SAFETY: the kernel reads one itimerspec.
        check(unsafe { syscall(number::TIMER_SETTIME, [self.0 as usize, 0, spec.as_ptr() as usize, 0, 0, 0]) })
            .map(drop)
    }

    /// Ends the timer.
    pub fn delete(self) {
        // SAFETY: no memory is involved.
        unsafe { syscall(number::TIMER_DELETE, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }

    /// The word that stands for it in memory, in which 0 is none: the kernel's number for it, plus 1.
    pub fn word(self) -> i32 {
        self.0 + 1
    }

    /// The timer for which this word stands, made in this process.
    pub fn of_word(word: i32) -> Option<Self> {
        (word > 0).then(|| Self(word - 1))
    }
}

/// The clock id of a thread's CPU time, of any thread of this process (clock_gettime(2), per-thread scheduler clock).
pub const fn thread_cpu_clock(tid: u32) -> i32 {
    (!(tid as i32) << 3) | 6
}
