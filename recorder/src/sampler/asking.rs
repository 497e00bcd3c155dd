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
/// How long it waits for threads that have begun to answer, or to end.
#[cfg(feature = "server")]
pub(super) const PROCESSORS_TAKE: Duration = Duration::from_millis(100);
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

/// In the place of elapsed time that is asked for: the thread ends, and takes no more.
const CLOSED: u64 = u64::MAX;

/// Asks a running thread for its stack, which it gives the elapsed time to. False if the time is still the caller's: the thread has no state to keep it in, ends, or cannot be asked.
#[cfg(feature = "server")]
pub(super) fn ask_for(tid: u32, state: Option<&'static ThreadState>, (on_cpu_ns, runnable_ns): (u64, u64)) -> bool {
    let Some(state) = state else {
        ask(tid);
        return false;
    };
    let change = |pending: &AtomicU64, changed: &dyn Fn(u64) -> Option<u64>| {
        pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).is_ok()
    };
    let elapsed_ns = on_cpu_ns + runnable_ns;
    // In this order: the handler takes the part first, and then the whole.
    if !change(&state.pending_wall_ns, &|pending| (pending != CLOSED).then(|| pending + elapsed_ns)) {
        return false;
    }
    state.pending_runnable_ns.fetch_add(runnable_ns, Ordering::AcqRel);
    if ask(tid) {
        return true;
    }
    // The answer to an earlier question, or the thread's end, may have taken it.
    let take_back = |ns: u64| move |pending: u64| pending.checked_sub(ns).filter(|_| pending != CLOSED);
    let is_back = change(&state.pending_wall_ns, &take_back(elapsed_ns));
    if is_back {
        change(&state.pending_runnable_ns, &take_back(runnable_ns));
    }
    !is_back
}

/// Takes the elapsed time that a thread was asked for and did not answer yet: on a processor, and waiting for one.
pub(super) fn unanswered(state: &ThreadState) -> (u64, u64) {
    take(state, 0)
}

/// The same on a thread that ends, which is given no more. It may wait for a processor until its state is another's: what it is asked for meanwhile, nobody would answer.
#[cfg(feature = "server")]
pub(super) fn last_unanswered(state: &ThreadState) -> (u64, u64) {
    take(state, CLOSED)
}

fn take(state: &ThreadState, left: u64) -> (u64, u64) {
    // In this order: the sampler adds the whole first, and then the part.
    let runnable_ns = state.pending_runnable_ns.swap(0, Ordering::AcqRel);
    let open = |pending: u64| (pending != CLOSED).then_some(left);
    let elapsed_ns = state.pending_wall_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).unwrap_or(0);
    (elapsed_ns.saturating_sub(runnable_ns), runnable_ns)
}

/// Whether a thread was asked for elapsed time and did not answer yet.
pub(super) fn is_asked(state: &ThreadState) -> bool {
    !matches!(state.pending_wall_ns.load(Ordering::Acquire), 0 | CLOSED)
}

/// Who was just asked needs a moment. What is not taken then is not theirs.
#[cfg(feature = "server")]
pub(super) fn wait_for_answers() {
    wait_until(HANDLERS_TAKE, || !is_any(is_asked));
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

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;

    /// A test has a thread of its own.
    fn state() -> &'static ThreadState {
        assert!(crate::start::in_library(0));
        let thread::Current::Known(state) = thread::current() else { panic!("it is registered") };
        state
    }

    #[test]
    fn who_is_asked_has_the_time_or_gives_it_back() {
        let (state, nobody) = (state(), 0);
        // There is no such thread: what it is asked for is the caller's again.
        assert!(!ask_for(nobody, Some(state), (30, 12)));
        assert!(!is_asked(state));
        state.pending_wall_ns.store(42, Ordering::Relaxed);
        state.pending_runnable_ns.store(12, Ordering::Relaxed);
        assert!(is_asked(state));
        assert_eq!((unanswered(state), unanswered(state)), ((30, 12), (0, 0)));
        assert!(!is_asked(state));
    }

    #[test]
    fn who_ends_is_given_no_more() {
        let state = state();
        state.pending_wall_ns.store(42, Ordering::Relaxed);
        assert_eq!(last_unanswered(state), (42, 0));
        // The signal could be sent.
        assert!(!ask_for(state.tid(), Some(state), (30, 12)));
        assert!(!is_asked(state));
        assert_eq!((unanswered(state), last_unanswered(state)), ((0, 0), (0, 0)));
        assert!(!ask_for(state.tid(), Some(state), (30, 12)), "it stays so");
    }
}
