//! Signals that the sampler sends, to have threads that run take their own stacks.
//!
//! Such a signal may wait for a moment, and the process may execute another program in this moment, which has no handler for it: it would end by the signal's default. So the signal says that a
//! timer sent it: those the kernel takes back when a program is executed. Where the user's share of waiting signals (RLIMIT_SIGPENDING) is used up, the kernel sends a signal without anything that it
//! could say, and takes nothing back: before a program is executed through the C library, the preload library has nobody asked any more, and waits for who was.
//!
//! Called from: the sampler; [`be_quiet`] by whoever executes a program.

use capture::spin::Spin;
#[cfg(feature = "server")]
use capture::thread;
use capture::thread::ThreadState;
use capture::{clock, syscall};
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "server")]
use std::time::{Duration, Instant};

/// How long the end of a session waits for answers.
#[cfg(feature = "server")]
const HANDLERS_TAKE: Duration = Duration::from_millis(2);
/// The kernel takes less to replace a program, or refuses at once.
const QUIET_NS: u64 = 1_000_000_000;

/// Held while a signal is sent.
static ASKING: Spin = Spin::new();
/// Until when nobody is asked, by CLOCK_MONOTONIC.
static QUIET_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

/// Asks a thread for its stack; one that is asked already is not asked twice. False if it cannot be.
#[cfg(feature = "server")]
pub(super) fn ask(tid: u32) -> bool {
    let Some(_asking) = ASKING.lock() else { return false };
    clock::monotonic_ns() >= QUIET_UNTIL_NS.load(Ordering::Acquire)
        && syscall::send_as_timer(tid, super::handler::SIGNAL, super::handler::asked_value()).is_ok()
}

/// The process executes another program in a moment: nobody is asked for a while, and the calling thread has answered when this returns.
pub(crate) fn be_quiet() {
    QUIET_UNTIL_NS.store(clock::monotonic_ns() + QUIET_NS, Ordering::Release);
    drop(ASKING.lock());
    // A signal that was sent before is handled at the end of a system call.
    syscall::getpid();
}

/// In a child after fork: who was asking is not here.
pub(super) fn reset_in_child() {
    ASKING.reset();
    QUIET_UNTIL_NS.store(0, Ordering::Relaxed);
}

/// Asks a running thread for its stack, which it gives the elapsed time to. False if the time is still the caller's: the thread has no state to keep it in, or cannot be asked.
#[cfg(feature = "server")]
pub(super) fn ask_for(tid: u32, state: Option<&'static ThreadState>, (on_cpu_ns, runnable_ns): (u64, u64)) -> bool {
    let Some(state) = state else {
        ask(tid);
        return false;
    };
    // In this order: the handler takes the part first, and then the whole.
    state.pending_wall_ns.fetch_add(on_cpu_ns + runnable_ns, Ordering::AcqRel);
    state.pending_runnable_ns.fetch_add(runnable_ns, Ordering::AcqRel);
    if ask(tid) {
        return true;
    }
    let take_back = |pending: &AtomicU64, ns| {
        pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, |pending| pending.checked_sub(ns)).is_ok()
    };
    // The answer to an earlier question, or the thread's end, may have taken it.
    let is_back = take_back(&state.pending_wall_ns, on_cpu_ns + runnable_ns);
    if is_back {
        take_back(&state.pending_runnable_ns, runnable_ns);
    }
    !is_back
}

/// Takes the elapsed time that a thread was asked for and did not answer yet: on a processor, and waiting for one.
pub(super) fn unanswered(state: &ThreadState) -> (u64, u64) {
    // In this order: the sampler adds the whole first, and then the part.
    let runnable_ns = state.pending_runnable_ns.swap(0, Ordering::AcqRel);
    (state.pending_wall_ns.swap(0, Ordering::AcqRel).saturating_sub(runnable_ns), runnable_ns)
}

/// Who was just asked needs a moment. What is not taken then is not theirs.
#[cfg(feature = "server")]
pub(super) fn wait_for_answers() {
    let begun = Instant::now();
    let mut are_asked = true;
    while are_asked && begun.elapsed() < HANDLERS_TAKE {
        are_asked = false;
        thread::each(|state| are_asked |= state.pending_wall_ns.load(Ordering::Acquire) != 0);
        if are_asked {
            std::thread::sleep(HANDLERS_TAKE / 20);
        }
    }
}
