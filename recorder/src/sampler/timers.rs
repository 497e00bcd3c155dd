//! One CPU timer a thread.
//!
//! In a process that is recorded from its start, each thread starts its own timer when it is registered: at its first allocation, or before, where
//! the preload library sees `pthread_create`. One that gets none, because the user's share of them is used up, is asked by a thread of the recorder. A session in a running process starts them from outside, for all threads that it finds.
//!
//! # Safety
//! A thread's `handler` recording is used outside its handler only while the signal is blocked on that thread.
#![allow(unsafe_code)]

use super::{action, asking, handler, spent};
use alloc_hook::thread_end;
use capture::blocked::Blocked;
use capture::syscall::{CpuTimer, clock_ns, thread_cpu_clock};
use capture::thread::{self, ThreadState};
use capture::{clock, region, syscall};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use layout::{Lost, RecordId};

/// Whether each thread arms itself when it is registered.
static SELF_ARM: AtomicBool = AtomicBool::new(false);
/// Threads that wanted to arm themselves, and could not: the user's share of timers (RLIMIT_SIGPENDING) is used up. They are asked ([`ask`]) as long as somebody does it.
static REFUSED: AtomicU32 = AtomicU32::new(0);
static ARE_ASKED: AtomicBool = AtomicBool::new(false);
static PERIOD_NS: AtomicU64 = AtomicU64::new(0);
/// The same during a session in a running process: threads that are registered then start their own timers, at this period; 0: they do not.
static SESSION_PERIOD_NS: AtomicU64 = AtomicU64::new(0);

/// Records the CPU time of every thread from now on, one tick every `period_ns` of CPU time. For a process that is recorded from its start.
pub(crate) fn start_from_the_beginning(period_ns: u64) -> bool {
    if !action::install() {
        return false;
    }
    // A handler cannot open files.
    capture::modules::prepare_for_handlers();
    PERIOD_NS.store(period_ns, Ordering::Relaxed);
    handler::arm_cpu(true);
    SELF_ARM.store(true, Ordering::Release);
    // The calling thread may be registered already; then it is armed here.
    if let thread::Current::Known(thread) = thread::current() {
        arm_self(thread, period_ns);
    }
    true
}

/// Has the end of each thread told.
pub(crate) fn set_up_exit_hook() {
    thread_end::set_up();
    thread_end::set_on_end(thread_ends);
}

/// A thread was registered: by its first allocation, its start or a tick. Called on that thread.
pub(crate) fn thread_registered(thread: &'static ThreadState) {
    if !thread.is_guest() {
        thread_end::watch(thread);
    }
    if SELF_ARM.load(Ordering::Acquire) {
        arm_self(thread, PERIOD_NS.load(Ordering::Relaxed));
        return;
    }
    let period_ns = SESSION_PERIOD_NS.load(Ordering::Acquire);
    // One that was there before the session is in its list, and has a timer.
    if period_ns != 0 && clock::thread_cpu_ns() < period_ns {
        arm_self(thread, period_ns);
    }
}

/// Has threads that are registered from now on start their own timers, for a session.
#[cfg(feature = "server")]
pub(crate) fn arm_new_threads(period_ns: u64) {
    SESSION_PERIOD_NS.store(period_ns, Ordering::Release);
}

/// Ends the timers that threads started themselves in a session.
#[cfg(feature = "server")]
pub(crate) fn disarm_new_threads() {
    SESSION_PERIOD_NS.store(0, Ordering::Release);
    fence(Ordering::SeqCst);
    thread::each(disarm);
}

/// Threads that have timers of their own.
#[cfg(feature = "server")]
pub(crate) fn armed_by_themselves() -> std::collections::HashSet<u32> {
    let mut armed = std::collections::HashSet::new();
    thread::each(|thread| {
        if thread.timer.load(Ordering::Relaxed) != 0 {
            armed.insert(thread.tid());
        }
    });
    armed
}

/// A tick of a timer from the list came to a thread that has one of its own: it was registered only now, by this tick or in an allocation. One timer is enough.
pub(super) fn give_up_own(thread: &ThreadState) {
    if !is_self_arming() && thread.timer.load(Ordering::Relaxed) != 0 {
        disarm(thread);
        if RecordId(thread.last_node.load(Ordering::Relaxed)).is_none() {
            // What it used before is known from the list.
            thread.session.store(0, Ordering::Relaxed);
        }
    }
}

/// When a thread's first tick comes, of its CPU time: anywhere in a period, so that a thread that lives shorter than one is found as often as its share of it says.
pub(crate) fn first_tick(period_ns: u64, tid: u32, cpu_ns: u64) -> u64 {
    let mixed = (u64::from(tid) << 32 ^ cpu_ns ^ clock::monotonic_ns()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
    // The upper half of a product of two halves: in 0 to period.
    (mixed.wrapping_mul(period_ns.min(u64::from(u32::MAX))) >> 32).max(1)
}

/// Whether every thread arms itself.
pub(crate) fn is_self_arming() -> bool {
    SELF_ARM.load(Ordering::Relaxed)
}

/// The rate at which every thread records itself, if it does.
#[cfg(feature = "server")]
pub(crate) fn self_armed_period_ns() -> Option<u64> {
    SELF_ARM.load(Ordering::Acquire).then(|| PERIOD_NS.load(Ordering::Relaxed))
}

/// From where on a thread's CPU clock, which is at `cpu_ns`, is explained by samples.
fn begun_at(thread: &ThreadState, cpu_ns: u64, period: u64) -> u64 {
    // What the first thread did before the recording began is known of the process; in a session, a thread may have been there before.
    if !is_self_arming() || thread.tid() == syscall::getpid() {
        return cpu_ns;
    }
    // A thread that just began is where it will be found first. One that worked unseen, because it allocates nothing and was started without the C library, is not.
    if cpu_ns < period {
        return 0;
    }
    note_unsampled(thread, cpu_ns);
    cpu_ns
}

/// The period of timers that threads start themselves; 0: none does.
fn period_in_force() -> u64 {
    if is_self_arming() { PERIOD_NS.load(Ordering::Relaxed) } else { SESSION_PERIOD_NS.load(Ordering::Acquire) }
}

fn arm_self(thread: &'static ThreadState, period: u64) {
    if thread.timer.load(Ordering::Relaxed) != 0 {
        return;
    }
    let cpu_ns = clock::thread_cpu_ns();
    thread.sampled_cpu_ns.store(begun_at(thread, cpu_ns, period), Ordering::Relaxed);
    thread.session.store(handler::session(), Ordering::Relaxed);
    let first = first_tick(period, thread.tid(), cpu_ns);
    match CpuTimer::start(thread.tid(), action::signal(), handler::value(0), first, period) {
        Ok(timer) => {
            thread.timer.store(timer.word(), Ordering::Relaxed);
            // The session may have ended meanwhile: either whoever ended it finds the timer, or it is found here.
            fence(Ordering::SeqCst);
            if period_in_force() != period {
                disarm(thread);
            }
        }
        Err(_) => {
            REFUSED.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Our signal is another now: the timers that threads started themselves send it from now on. Called on any thread, in its handlers too.
pub(super) fn renew() {
    thread::each(asking::forget);
    let period = period_in_force();
    if period == 0 {
        return;
    }
    thread::each(|thread| {
        let Some(old) = CpuTimer::of_word(thread.timer.load(Ordering::Acquire)) else { return };
        let first = first_tick(period, thread.tid(), clock_ns(thread_cpu_clock(thread.tid())));
        let Ok(new) = CpuTimer::start(thread.tid(), action::signal(), handler::value(0), first, period) else { return };
        // Its thread may end it at any time.
        let is_replaced =
            thread.timer.compare_exchange(old.word(), new.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_replaced { old } else { new }.delete();
    });
}

/// Whether there are threads to [`ask`].
#[cfg(feature = "server")]
pub(crate) fn has_refused() -> bool {
    is_self_arming() && REFUSED.load(Ordering::Acquire) != 0
}

/// From now on [`ask`] is called, once in a period.
#[cfg(feature = "server")]
pub(crate) fn are_asked() {
    ARE_ASKED.store(true, Ordering::Relaxed);
}

/// Asks each thread without a timer that ran for a period since its last sample.
#[cfg(feature = "server")]
pub(crate) fn ask() {
    if !has_refused() {
        return;
    }
    let period_ns = PERIOD_NS.load(Ordering::Relaxed);
    thread::each(|thread| {
        let cpu_ns = clock_ns(thread_cpu_clock(thread.tid()));
        let is_due = cpu_ns.saturating_sub(thread.sampled_cpu_ns.load(Ordering::Relaxed)) >= period_ns;
        if is_due && thread.timer.load(Ordering::Relaxed) == 0 {
            // Its answer is a sample like its own timer's.
            asking::ask_for_cpu(thread, handler::SLOTS as u32);
        }
    });
}

/// On a thread that ends.
fn thread_ends(thread: &'static ThreadState) {
    let blocked = Blocked::new();
    leave(thread);
    thread::retire_current();
    drop(blocked);
    #[cfg(feature = "server")]
    crate::last_thread::thread_ends();
}

/// The calling thread ends: what it did up to now is noted. Its signals are blocked.
pub(super) fn leave(thread: &'static ThreadState) {
    disarm(thread);
    flush_tail(thread);
    #[cfg(feature = "server")]
    super::ended::note(thread);
    // After its end is told: from then on it gets no other.
    asking::forget(thread);
    if is_self_arming() {
        // The thread's clock goes with it, the process's keeps what it had.
        spent::note_at_once();
    }
}

fn disarm(thread: &ThreadState) {
    if let Some(timer) = CpuTimer::of_word(thread.timer.swap(0, Ordering::Relaxed)) {
        timer.delete();
    }
}

/// Gives the CPU time since the calling thread's last sample to the stack of that sample, or without one to the thread.
fn flush_tail(thread: &'static ThreadState) {
    // What was noted in an earlier session means nothing in this one.
    if !handler::is_cpu_armed() || thread.session.load(Ordering::Relaxed) != handler::session() {
        return;
    }
    let now = clock::thread_cpu_ns();
    let tail = now.saturating_sub(thread.sampled_cpu_ns.swap(now, Ordering::Relaxed));
    let last = RecordId(thread.last_node.load(Ordering::Relaxed));
    if tail > 0 && (last.is_none() || !handler::enter_tail(thread, last, tail)) {
        note_unsampled(thread, tail);
    }
}

/// CPU time of a thread that no sample is there for, and none will be.
fn note_unsampled(thread: &ThreadState, nanos: u64) {
    if let Some(record) = thread.thread_record() {
        record.unsampled_cpu_ns.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// The threads that end with the process, other than the calling one: what they used since their last samples.
fn note_others(own: u32) {
    thread::each(|thread| {
        let tid = thread.tid();
        if tid == own || thread.session.load(Ordering::Relaxed) != handler::session() {
            return;
        }
        let now = clock_ns(thread_cpu_clock(tid));
        if now != 0 {
            let left = now.saturating_sub(thread.sampled_cpu_ns.swap(now, Ordering::Relaxed));
            note_unsampled(thread, left);
        }
    });
}

/// The process ends in an orderly way: what is known of its CPU time is noted, for whoever reads the store. Called on the thread that ends it.
pub(crate) fn process_ends() {
    if !is_self_arming() {
        return;
    }
    let blocked = Blocked::new();
    if let thread::Current::Known(thread) = thread::current_in_handler() {
        flush_tail(thread);
        note_others(thread.tid());
    }
    drop(blocked);
    spent::note_at_once();
    let refused = REFUSED.load(Ordering::Acquire);
    // Said once: a process may come here more than once.
    if refused != 0 && !ARE_ASKED.swap(true, Ordering::Relaxed) {
        region::lose(Lost::NoTimer, u64::from(refused), 0);
    }
}

/// In a child after fork that is followed: timers are not inherited; the one thread arms itself when it is registered, which is now.
pub(crate) fn restart_in_child() {
    REFUSED.store(0, Ordering::Relaxed);
    ARE_ASKED.store(false, Ordering::Relaxed);
    if SELF_ARM.load(Ordering::Acquire) {
        let _ = thread::current();
    }
}

/// Ends all timers of a process that records itself from its start: no tick comes any more. How many threads had one.
pub(crate) fn stop() -> u64 {
    let mut stopped = 0;
    if SELF_ARM.swap(false, Ordering::AcqRel) {
        fence(Ordering::SeqCst);
        thread::each(|thread| {
            if thread.timer.load(Ordering::Relaxed) != 0 {
                disarm(thread);
                stopped += 1;
            }
        });
    }
    stopped
}

/// They stay so: each of the threads counts as one without a timer.
pub(crate) fn are_stopped(threads: u64) {
    if threads != 0 {
        region::lose(Lost::NoTimer, threads, 0);
    }
}

/// All threads have timers again.
pub(crate) fn go_on() {
    SELF_ARM.store(true, Ordering::Release);
    let period = PERIOD_NS.load(Ordering::Relaxed);
    thread::each(|thread| {
        if thread.timer.load(Ordering::Acquire) != 0 {
            return;
        }
        let first = first_tick(period, thread.tid(), clock_ns(thread_cpu_clock(thread.tid())));
        let Ok(new) = CpuTimer::start(thread.tid(), action::signal(), handler::value(0), first, period) else { return };
        // It may have begun meanwhile, and started its own.
        if thread.timer.compare_exchange(0, new.word(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
            new.delete();
        }
    });
}

/// In a child after fork that is not followed.
pub(crate) fn forget() {
    SELF_ARM.store(false, Ordering::Release);
    handler::arm_cpu(false);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_comes_too_late_for_a_session_has_no_timer() {
        /// Of no other test's session.
        const PERIOD_NS: u64 = 123_456_789;
        assert!(crate::start::in_library(0) && action::install());
        let timer = std::thread::spawn(|| {
            let thread::Current::Known(state) = thread::current() else { panic!("it is registered") };
            disarm(state);
            arm_self(state, PERIOD_NS);
            state.timer.load(Ordering::Relaxed)
        });
        assert_eq!(timer.join().unwrap(), 0);
    }
}
