//! Signals that the sampler has sent, to have threads that run take their own stacks.
//!
//! A thread that is to tell where its time on a processor went is sent one when it runs next and the kernel's clock ticks: by a timer of its own CPU time that is due at once. A signal that is sent by another thread reaches
//! it some microseconds later, on a virtual machine, or at the end of the next system call if that comes before: who makes one every few microseconds would be found in its calls. Nor does a timer break off what a
//! thread waits in. Where there can be none, and at the end of a session, a signal is sent at once.
//!
//! Such a signal may wait for a moment, and the process may execute another program in this moment, which has no handler for it: it would end by the signal's default. So the signal says that a
//! timer sent it: those the kernel takes back when a program is executed. Where the user's share of waiting signals (RLIMIT_SIGPENDING) is used up, the kernel sends a signal without anything that it
//! could say, and takes nothing back: before a program is executed through the C library, the preload library has nobody asked any more, and waits for who was.
//!
//! Called from: the sampler; [`be_quiet`] by whoever executes a program.

#[cfg(feature = "server")]
use super::{account, action};
use capture::spin::Spin;
use capture::syscall::CpuTimer;
#[cfg(feature = "server")]
use capture::thread;
use capture::thread::ThreadState;
use capture::{clock, syscall};
#[cfg(feature = "server")]
use std::sync::atomic::fence;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "server")]
use std::time::{Duration, Instant};

/// How long the end of a session waits for answers.
#[cfg(feature = "server")]
const HANDLERS_TAKE: Duration = Duration::from_millis(2);
/// How long it waits for threads that have begun to answer, or to end.
#[cfg(feature = "server")]
pub(super) const PROCESSORS_TAKE: Duration = Duration::from_millis(100);
/// The kernel takes less to replace a program, or refuses at once.
const QUIET_NS: u64 = 1_000_000_000;

/// Held while a signal is sent.
static ASKING: Spin = Spin::new();
/// Until when nobody is asked, by CLOCK_MONOTONIC.
static QUIET_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

/// Asks a thread for its stack, unless it `is_asked` already. False if it cannot be.
#[cfg(feature = "server")]
pub(super) fn ask(tid: u32, is_asked: bool) -> bool {
    let signal = action::signal();
    // Of SIGPROF the kernel keeps one, so that it does no harm to ask again; and another's may have come in the place of ours.
    if is_asked && signal != libc::SIGPROF {
        return true;
    }
    let Some(_asking) = ASKING.lock() else { return false };
    if clock::monotonic_ns() < QUIET_UNTIL_NS.load(Ordering::Acquire) {
        return false;
    }
    // A real-time signal is not sent at all where the user's share of waiting signals is used up.
    let is_sent = |signal| syscall::send_as_timer(tid, signal, super::handler::asked_value()).is_ok();
    is_sent(signal) || (signal != libc::SIGPROF && is_sent(libc::SIGPROF))
}

/// Asks a running thread that has no timer for a sample of its CPU time, as the timer with this slot would.
#[cfg(feature = "server")]
pub(super) fn ask_for_cpu(state: &ThreadState, slot: u32) {
    let is_asked = state.asked_cpu.swap(slot, Ordering::AcqRel) != 0;
    if !ask(state.tid(), is_asked) && !is_asked {
        state.asked_cpu.store(0, Ordering::Release);
    }
}

/// The process executes another program in a moment: nobody is asked for a while, and the calling thread has answered when this returns.
pub(crate) fn be_quiet() {
    QUIET_UNTIL_NS.store(clock::monotonic_ns() + QUIET_NS, Ordering::Release);
    drop(ASKING.lock());
    // A signal that was sent before is handled at the end of a system call.
    syscall::getpid();
}

/// In a child after fork: nobody executes another program in this one yet.
pub(super) fn reset_in_child() {
    QUIET_UNTIL_NS.store(0, Ordering::Relaxed);
}

/// When a thread is asked.
#[cfg(feature = "server")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At the next tick of the kernel's clock at which it runs.
    AtATick,
    /// It runs, and is to answer now.
    Now,
}

/// Asks a thread for the stack at which it runs, which it gives the elapsed time to. If it `runs` now, a signal will do. False if the time is still the caller's: the thread ends, or cannot be asked.
#[cfg(feature = "server")]
pub(super) fn ask_for(tid: u32, state: &ThreadState, elapsed_ns: (u64, u64), runs: bool, when: When) -> bool {
    if elapsed_ns == (0, 0) && !account::is_asked(state) {
        return true;
    }
    let Some(is_asked) = account::add(state, elapsed_ns) else { return false };
    let is_sent = match when {
        When::AtATick => at_a_tick(tid, state) || (runs && ask(tid, is_asked)),
        When::Now => runs && ask(tid, false),
    };
    // The answer to an earlier question, or the thread's end, may take it before it is taken back.
    is_sent || !account::take_back(state, elapsed_ns)
}

/// Has a thread's timer send the signal. False if that cannot be.
#[cfg(feature = "server")]
fn at_a_tick(tid: u32, state: &ThreadState) -> bool {
    let Some(_asking) = ASKING.lock() else { return false };
    if clock::monotonic_ns() < QUIET_UNTIL_NS.load(Ordering::Acquire) {
        return false;
    }
    let timer = match CpuTimer::of_word(state.asking_timer.load(Ordering::Acquire)) {
        Some(timer) => timer,
        None => {
            let Ok(timer) = CpuTimer::new(tid, action::signal(), super::handler::asked_value()) else { return false };
            state.asking_timer.store(timer.word(), Ordering::SeqCst);
            // The thread may end: either it finds the timer, or it has told its end by now.
            fence(Ordering::SeqCst);
            if account::is_closed(state) {
                forget(state);
                return false;
            }
            timer
        }
    };
    timer.set(1, 0).is_ok()
}

/// Ends a thread's timer. It may have one that sends another signal than it would now, or end.
pub(super) fn forget(state: &ThreadState) {
    if let Some(timer) = CpuTimer::of_word(state.asking_timer.swap(0, Ordering::SeqCst)) {
        timer.delete();
    }
}

/// Who was just asked needs a moment. What is not taken then is not theirs.
#[cfg(feature = "server")]
pub(super) fn wait_for_answers() {
    wait_until(HANDLERS_TAKE, || !is_any(account::is_asked));
}

/// Who took what it was asked for enters it in a moment, and may wait for a processor before that.
#[cfg(feature = "server")]
pub(super) fn wait_for_who_answers() {
    wait_until(PROCESSORS_TAKE, || !is_any(|state| state.answers.load(Ordering::Acquire)));
}

#[cfg(feature = "server")]
fn is_any(what: impl Fn(&ThreadState) -> bool) -> bool {
    let mut is_any = false;
    thread::each(|state| is_any |= what(state));
    is_any
}

/// Waits for so long at most.
#[cfg(feature = "server")]
pub(super) fn wait_until(limit: Duration, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < limit {
        std::thread::sleep(HANDLERS_TAKE / 20);
    }
}
