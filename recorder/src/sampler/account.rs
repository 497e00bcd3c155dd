//! Elapsed time that a thread is asked for and has not answered yet: on a processor, and waiting for one, in nanoseconds.
//!
//! Called from: the sampler, which gives; the handler of the thread, its end, and the end of a session, which take. May: change the thread's two numbers. Nothing else.
//!
//! # Orderings
//!
//! The sampler adds the whole first and then the part of it that was a wait, and takes it back so; all others take the part first (all AcqRel). Who comes between sees a part that is too small.

use capture::thread::ThreadState;
use std::sync::atomic::{AtomicU64, Ordering};

/// In the place of the whole: the thread ends, and is given no more.
const CLOSED: u64 = u64::MAX;

/// Changes a number, unless it is closed or there is nothing to change it to. What it was before.
fn change(number: &AtomicU64, to: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let open = |now: u64| if now == CLOSED { None } else { to(now) };
    number.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).ok()
}

/// Gives a thread elapsed time. Whether it had some before, which it will take with this; `None` if it ends, and is given none.
#[cfg(feature = "server")]
pub(super) fn add(state: &ThreadState, (on_cpu_ns, runnable_ns): (u64, u64)) -> Option<bool> {
    let before = change(&state.pending_wall_ns, |whole| Some(whole + on_cpu_ns + runnable_ns))?;
    state.pending_runnable_ns.fetch_add(runnable_ns, Ordering::AcqRel);
    Some(before != 0)
}

/// Takes back what it was given. False if somebody took it.
#[cfg(feature = "server")]
pub(super) fn take_back(state: &ThreadState, (on_cpu_ns, runnable_ns): (u64, u64)) -> bool {
    let is_back = change(&state.pending_wall_ns, |whole| whole.checked_sub(on_cpu_ns + runnable_ns)).is_some();
    if is_back {
        change(&state.pending_runnable_ns, |part| part.checked_sub(runnable_ns));
    }
    is_back
}

/// Takes what the thread was given.
pub(super) fn take(state: &ThreadState) -> (u64, u64) {
    take_and_leave(state, 0)
}

/// The same on a thread that ends. It may wait for a processor until its state is another's: what it is asked for meanwhile, nobody would answer.
#[cfg(feature = "server")]
pub(super) fn close(state: &ThreadState) -> (u64, u64) {
    take_and_leave(state, CLOSED)
}

fn take_and_leave(state: &ThreadState, left: u64) -> (u64, u64) {
    let runnable_ns = state.pending_runnable_ns.swap(0, Ordering::AcqRel);
    let elapsed_ns = change(&state.pending_wall_ns, |_| Some(left)).unwrap_or(0);
    (elapsed_ns.saturating_sub(runnable_ns), runnable_ns)
}

/// Whether the thread told its end: its state is its own until it is given back.
#[cfg(feature = "server")]
pub(super) fn is_closed(state: &ThreadState) -> bool {
    state.pending_wall_ns.load(Ordering::Acquire) == CLOSED
}

/// Whether it was given any.
pub(super) fn is_asked(state: &ThreadState) -> bool {
    !matches!(state.pending_wall_ns.load(Ordering::Acquire), 0 | CLOSED)
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::super::asking::{When, ask_for};
    use super::*;
    use capture::thread;

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
        assert!(!ask_for(nobody, state, (30, 12), true, When::AtATick));
        assert!(!is_asked(state));
        assert_eq!(add(state, (20, 10)), Some(false));
        assert_eq!((add(state, (10, 2)), is_asked(state)), (Some(true), true));
        assert_eq!((take(state), take(state)), ((30, 12), (0, 0)));
        assert!(!take_back(state, (30, 12)), "it is taken");
        assert!(!is_asked(state));
    }

    #[test]
    fn who_ends_is_given_no_more() {
        let state = state();
        assert_eq!(add(state, (30, 12)), Some(false));
        assert!(!is_closed(state));
        assert_eq!((close(state), is_closed(state)), ((30, 12), true));
        // The signal could be sent.
        assert!(!ask_for(state.tid(), state, (30, 12), true, When::Now));
        assert!(!is_asked(state));
        assert_eq!((take(state), close(state)), ((0, 0), (0, 0)));
        assert_eq!(add(state, (30, 12)), None, "it stays so");
    }
}
