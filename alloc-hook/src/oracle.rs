//! For tests: compares the stack of every allocation with what libgcc's unwinder finds. A difference is printed, and ends the process by an illegal instruction, which no test
//! can miss.
//!
//! Called from: allocation hooks, under their guard. May: call libgcc, which reads frame information without a lock (glibc 2.35 and later) and does not allocate.
//! What was compared is counted in the file that `PROFILE_RECORDER_ORACLE` names, which all recorded processes share: see [`Counts`].
#![allow(unsafe_code)]

use capture::modules::{self, Found};
use capture::rules::InHook;
use capture::stack::Bounds;
use capture::thread::Recording;
use capture::walk;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use layout::{Frame, ModuleIndex, Pseudo, Truncated};
use unwind::FrameAddress;
use unwind::arch::Registers;

/// Counters in the shared file, each of eight bytes.
#[derive(Debug)]
#[repr(C)]
pub struct Counts {
    /// Stacks that are equal, frame by frame, to the root.
    pub equal: AtomicU64,
    /// Stacks that libgcc leaves at code without frame information (made at run time, or entries of linkage tables), equal so far.
    pub libgcc_ends_earlier: AtomicU64,
    /// Stacks that ours leaves earlier, with a reason, equal so far.
    pub ours_ends_earlier: AtomicU64,
    /// Frames compared.
    pub frames: AtomicU64,
}

/// Frames compared of one stack.
const MOST: usize = 1024;

struct Trace {
    frames: [u64; MOST],
    depth: usize,
    /// Frames from here on count: the hook's own lie before.
    from: u64,
}

unsafe extern "C" {
    fn dprintf(file: c_int, format: *const c_char, ...) -> c_int;
}

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(visit: extern "C-unwind" fn(*mut c_void, *mut c_void) -> c_int, data: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> u64;
}

extern "C-unwind" fn visit(context: *mut c_void, data: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const STOP: c_int = 5;
    // SAFETY: the trace that `libgcc` below passes; the context is the unwinder's.
    let (trace, ip) = unsafe { (&mut *data.cast::<Trace>(), _Unwind_GetIP(context)) };
    if ip == 0 || (trace.depth == 0 && ip != trace.from) || is_own(ip) {
        return GO_ON;
    }
    let Some(slot) = trace.frames.get_mut(trace.depth) else { return STOP };
    *slot = ip;
    trace.depth += 1;
    GO_ON
}

fn is_own(ip: u64) -> bool {
    matches!(modules::find(ip.wrapping_sub(1)), Found::Module(module) if modules::is_own(module))
}

/// Walks the stack of an allocation whose caller has these registers in both ways. By itself: what it takes of the stack is taken where there is room.
#[inline(never)]
pub(crate) fn compare(recording: &mut Recording, stack: Bounds, at: FrameAddress, registers: Registers) {
    let all = capture::registers_here!();
    walk::capture::<InHook>(recording, stack, at, registers, Some(&all));
    let mut trace = Trace { frames: [0; MOST], depth: 0, from: registers.pc };
    // SAFETY: the trace lives through the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut trace).cast()) };
    let captured = recording.frames.get(..recording.depth).unwrap_or_default();
    let (ours, end) = match captured.split_last() {
        Some((last, rest)) if *last >> 48 & 0x3fff == 0x3fff => (rest, Some(*last)),
        _ => (captured, None),
    };
    let theirs = trace.frames.get(..trace.depth).unwrap_or_default();
    let common = ours.len().min(theirs.len());
    let equal = ours.iter().zip(theirs).all(|(ours, theirs)| Frame::from_bits(*ours).avma() == *theirs);
    let too_deep = Some(Frame::pseudo(Pseudo::Truncated(Truncated::TooDeep)).to_bits());
    let count = match ours.len().cmp(&theirs.len()) {
        _ if !equal => None,
        core::cmp::Ordering::Equal => counts().map(|counts| &counts.equal),
        _ if common >= MOST || end == too_deep => counts().map(|counts| &counts.equal),
        // libgcc stops where it finds no frame information: the frame it came to last has none.
        core::cmp::Ordering::Greater if theirs.last().is_none_or(|ip| !is_described(*ip)) => {
            counts().map(|counts| &counts.libgcc_ends_earlier)
        }
        core::cmp::Ordering::Less if end.is_some() => counts().map(|counts| &counts.ours_ends_earlier),
        _ => None,
    };
    let Some(count) = count else {
        report(ours, theirs, end);
        capture::syscall::trap()
    };
    count.fetch_add(1, Ordering::Relaxed);
    if let Some(counts) = counts() {
        counts.frames.fetch_add(common as u64, Ordering::Relaxed);
    }
}

/// Whether frame information in memory describes the code before a return address.
fn is_described(ip: u64) -> bool {
    match modules::find(ip.wrapping_sub(1)) {
        Found::Module(module) => is_in_table(module, ip),
        Found::Anonymous | Found::Nowhere => false,
    }
}

fn is_in_table(module: ModuleIndex, ip: u64) -> bool {
    modules::function_start(module, ip.wrapping_sub(1)).is_some()
}

/// The shared counters; without a file, some that nobody reads.
fn counts() -> Option<&'static Counts> {
    static MAPPED: AtomicPtr<Counts> = AtomicPtr::new(core::ptr::null_mut());
    let mut counts = MAPPED.load(Ordering::Acquire);
    if counts.is_null() {
        counts = map();
        MAPPED.store(counts, Ordering::Release);
    }
    // SAFETY: a mapping of the counters that is never unmapped.
    unsafe { counts.as_ref() }
}

fn map() -> *mut Counts {
    let length = size_of::<Counts>();
    // SAFETY: plain system calls; the file is as long as the counters, and they are atomic.
    unsafe {
        let path = libc::getenv(c"PROFILE_RECORDER_ORACLE".as_ptr());
        let (file, flags) = if path.is_null() {
            (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
        } else {
            (libc::open(path, libc::O_RDWR | libc::O_CLOEXEC), libc::MAP_SHARED)
        };
        let mapped = libc::mmap(core::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0);
        libc::close(file);
        if mapped == libc::MAP_FAILED {
            capture::syscall::trap();
        }
        mapped.cast()
    }
}

/// Prints both stacks, leaf first.
fn report(ours: &[u64], theirs: &[u64], end: Option<u64>) {
    // SAFETY: formats numbers by the C library, which has room for them on its own stack.
    unsafe {
        dprintf(2, c"a stack differs from libgcc's; ours ends with %lx\n".as_ptr(), end.unwrap_or(0));
        for i in 0..ours.len().max(theirs.len()) {
            let ours = ours.get(i).map_or(0, |bits| Frame::from_bits(*bits).avma());
            let theirs = theirs.get(i).copied().unwrap_or(0);
            let mark = if ours == theirs { c"" } else { c" <" };
            dprintf(2, c"%12lx %12lx%s\n".as_ptr(), ours, theirs, mark.as_ptr());
        }
        let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY);
        let mut bytes = [0_u8; 4096];
        loop {
            let read = libc::read(maps, bytes.as_mut_ptr().cast(), bytes.len());
            if read <= 0 {
                break;
            }
            libc::write(2, bytes.as_ptr().cast(), read as usize);
        }
    }
}
