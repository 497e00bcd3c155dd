//! The tick handler.
//!
//! Called from: the kernel, on the thread that a CPU timer belongs to, with the signal itself masked. May: read clocks by raw system calls, walk the thread's stack,
//! write the thread's own part of the store. May not: allocate, lock, call libc, panic, touch errno (raw system calls do not).
//! Signals that are not ours go to the handler that was there before; a stray one without such a handler is ignored.
//!
//! # Safety
//! The context that the kernel hands over is that of the interrupted thread; the thread's `handler` recording is used here alone, and in
//! [`super::timers`] while the signal is blocked.
#![allow(unsafe_code)]

use capture::rules::Context;
use capture::thread::{self, Current, ThreadState};
use capture::{clock, region, walk};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use layout::{ChunkKind, Lost, RecordId, Root, TimeSample, TimeValues};
use unwind::FrameAddress;
use unwind::arch::Registers;

/// The signal of the timers.
pub(crate) const SIGNAL: i32 = libc::SIGPROF;
/// Comes back in the signal's value: the address of something that only we have.
static COOKIE: u8 = 0;
/// Whether CPU ticks are recorded.
static ARMED: AtomicBool = AtomicBool::new(false);
/// What was installed before us.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(core::ptr::null_mut());

pub(crate) fn cookie() -> usize {
    &raw const COOKIE as usize
}

/// Installs the handler, once in a process. False if the kernel refuses.
pub(crate) fn install() -> bool {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::AcqRel) {
        return true;
    }
    // SAFETY: zeroed is a valid `sigaction`; the handler has the type that SA_SIGINFO asks for; both structures live through the call.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = tick as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        let mut previous: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(SIGNAL, &action, &mut previous) != 0 {
            return false;
        }
        // Kept for ever: a handler may read it at any time.
        PREVIOUS.store(Box::into_raw(Box::new(previous)), Ordering::Release);
    }
    true
}

pub(crate) fn arm(armed: bool) {
    ARMED.store(armed, Ordering::Release);
}

pub(crate) fn is_armed() -> bool {
    ARMED.load(Ordering::Acquire)
}

unsafe extern "C" fn tick(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    let ours = unsafe { (*info).si_code == libc::SI_TIMER && (*info).si_value().sival_ptr as usize == cookie() };
    if !ours {
        // SAFETY: as the kernel called us.
        unsafe { chain(signal, info, context) };
        return;
    }
    if !ARMED.load(Ordering::Acquire) {
        return;
    }
    let Current::Known(thread) = thread::current() else { return };
    // SAFETY: the kernel passes the interrupted context.
    let registers = unsafe { interrupted(context) };
    let weight = weigh(thread);
    record(thread, registers, weight);
}

/// Registers of the interrupted thread.
unsafe fn interrupted(context: *mut libc::c_void) -> Registers {
    // SAFETY: the kernel's context of a signal is a ucontext.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let of = |index: i32| registers.get(index as usize).copied().unwrap_or(0) as u64;
    Registers { pc: of(libc::REG_RIP), sp: of(libc::REG_RSP), fp: Some(of(libc::REG_RBP)) }
}

/// CPU time since the thread's last sample: what this one stands for, however many ticks the kernel merged into it.
fn weigh(thread: &ThreadState) -> u64 {
    let now = clock::thread_cpu_ns();
    let before = thread.sampled_cpu_ns.swap(now, Ordering::Relaxed);
    now.saturating_sub(before)
}

fn record(thread: &'static ThreadState, registers: Registers, weight_ns: u64) {
    // SAFETY: in the handler, its signal is masked.
    let recording = unsafe { thread.handler() };
    walk::capture(recording, thread.stack(), FrameAddress::Instruction(registers.pc), registers, Context::Handler);
    let node = walk::intern(recording, Root::Cpu, thread.record_id(), None);
    if !node.is_some_and(|node| enter(thread, node, weight_ns)) {
        region::lose(Lost::TimeStoreFull, 1, weight_ns);
    }
}

/// Gives time to the node of an earlier sample, without counting another sample.
///
/// Called while the signal is blocked on the calling thread, whose tree this is.
pub(crate) fn enter_tail(thread: &'static ThreadState, node: RecordId, weight_ns: u64) {
    // SAFETY: its signal is blocked.
    let recording = unsafe { thread.handler() };
    // SAFETY: every node of this tree that has values has time values.
    if let Some(values) = unsafe { recording.tree.values::<TimeValues>(node, ChunkKind::TimeValues) } {
        region::add_own(&values.nanos, weight_ns);
    }
    if let Some(record) = thread.thread_record() {
        region::add_own(&record.sampled_cpu_ns, weight_ns);
    }
}

/// Adds a sample to a node of the thread's own tree, and to the log.
///
/// Called in the handler, or while its signal cannot come.
pub(crate) fn enter(thread: &'static ThreadState, node: RecordId, weight_ns: u64) -> bool {
    // SAFETY: in the handler, or its signal cannot come, as the caller promises.
    let recording = unsafe { thread.handler() };
    // SAFETY: every node of this tree that has values has time values.
    let Some(values) = (unsafe { recording.tree.values::<TimeValues>(node, ChunkKind::TimeValues) }) else { return false };
    region::add_own(&values.samples, 1);
    region::add_own(&values.nanos, weight_ns);
    thread.last_node.store(node.0, Ordering::Relaxed);
    if let Some(record) = thread.thread_record() {
        region::add_own(&record.sampled_cpu_ns, weight_ns);
    }
    log(thread, node, weight_ns);
    true
}

fn log(thread: &'static ThreadState, node: RecordId, weight_ns: u64) {
    // SAFETY: as in `enter`.
    let recording = unsafe { thread.handler() };
    let Some(id) = recording.log.allocate_within_half(ChunkKind::TimeSamples, thread.record_id(), size_of::<TimeSample>()) else {
        region::lose(Lost::LogFull, 1, weight_ns);
        return;
    };
    // SAFETY: just allocated for a time sample.
    let sample: &TimeSample = unsafe { region::record(id) };
    sample.thread.store(thread.record_id().0, Ordering::Relaxed);
    sample.monotonic_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
    sample.weight_ns.store(weight_ns, Ordering::Relaxed);
    sample.tid.store(thread.tid(), Ordering::Relaxed);
    sample.node.store(node.0, Ordering::Release);
}

/// Gives a signal that is not ours to whoever was there before.
unsafe fn chain(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.load(Ordering::Acquire);
    // SAFETY: null, or set once by `install` and never freed.
    let Some(previous) = (unsafe { previous.as_ref() }) else { return };
    match previous.sa_sigaction {
        // Its default would end the process: the recorder took the signal, so a stray one is ignored.
        libc::SIG_DFL | libc::SIG_IGN => {}
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the application installed a function of this type.
            unsafe {
                core::mem::transmute::<usize, unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)>(handler)(
                    signal, info, context,
                );
            }
        }
        handler => {
            // SAFETY: as above, without SA_SIGINFO.
            unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(i32)>(handler)(signal) };
        }
    }
}
