//! One CPU timer a thread.
//!
//! In a process that is recorded from its start, each thread starts its own timer when it is registered: at its first allocation, or before, where
//! the preload library sees `pthread_create`. A session in a running process starts them from outside, for all threads that it finds.
//!
//! # Safety
//! A thread's `handler` recording is used outside its handler only while the signal is blocked on that thread.
#![allow(unsafe_code)]

use super::handler;
use alloc_hook::thread_end;
use capture::syscall::CpuTimer;
use capture::thread::{self, ThreadState};
use capture::{clock, region};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use layout::{Lost, RecordId};

/// Whether each thread arms itself when it is registered.
static SELF_ARM: AtomicBool = AtomicBool::new(false);
static PERIOD_NS: AtomicU64 = AtomicU64::new(0);

/// Records the CPU time of every thread from now on, one tick every `period_ns` of CPU time. For a process that is recorded from its start.
pub(crate) fn start_from_the_beginning(period_ns: u64) -> bool {
    if !handler::install() {
        return false;
    }
    // A handler cannot open files.
    capture::modules::prepare_for_handlers();
    PERIOD_NS.store(period_ns, Ordering::Relaxed);
    handler::arm_cpu(true);
    SELF_ARM.store(true, Ordering::Release);
    // The calling thread may be registered already; then it is armed here.
    if let thread::Current::Known(thread) = thread::current() {
        arm_self(thread);
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
    thread_end::watch(thread);
    if SELF_ARM.load(Ordering::Acquire) {
        arm_self(thread);
    }
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

fn arm_self(thread: &'static ThreadState) {
    if thread.timer.load(Ordering::Relaxed) != 0 {
        return;
    }
    thread.sampled_cpu_ns.store(clock::thread_cpu_ns(), Ordering::Relaxed);
    thread.session.store(handler::session(), Ordering::Relaxed);
    let period = PERIOD_NS.load(Ordering::Relaxed);
    match CpuTimer::start(thread.tid(), handler::SIGNAL, handler::value(0), period, period) {
        Ok(timer) => thread.timer.store(timer.id() + 1, Ordering::Relaxed),
        Err(_) => region::lose(Lost::NoTimer, 1, 0),
    }
}

/// On a thread that ends.
fn thread_ends(thread: &'static ThreadState) {
    let blocked = BlockedSignal::new();
    disarm(thread);
    flush_tail(thread);
    thread::retire_current();
    drop(blocked);
}

fn disarm(thread: &ThreadState) {
    if let Some(id) = thread.timer.swap(0, Ordering::Relaxed).checked_sub(1).filter(|id| *id >= 0) {
        CpuTimer::from_id(id).delete();
    }
}

/// Gives the CPU time since the calling thread's last sample to the stack of that sample.
fn flush_tail(thread: &'static ThreadState) {
    if !handler::is_cpu_armed() {
        return;
    }
    let now = clock::thread_cpu_ns();
    let tail = now.saturating_sub(thread.sampled_cpu_ns.swap(now, Ordering::Relaxed));
    let last = RecordId(thread.last_node.load(Ordering::Relaxed));
    if !last.is_none() && tail > 0 {
        handler::enter_tail(thread, last, tail);
    }
}

/// The tick signal, blocked on the calling thread until dropped.
struct BlockedSignal {
    before: libc::sigset_t,
}

impl BlockedSignal {
    fn new() -> Self {
        // SAFETY: zeroed is a valid set; both sets live through the call.
        unsafe {
            let mut set: libc::sigset_t = core::mem::zeroed();
            let mut before: libc::sigset_t = core::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, handler::SIGNAL);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Self { before }
        }
    }
}

impl Drop for BlockedSignal {
    fn drop(&mut self) {
        // SAFETY: the set was written by the call in `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, core::ptr::null_mut()) };
    }
}

/// In a child after fork that is followed: timers are not inherited; the one thread arms itself when it is registered, which is now.
pub(crate) fn restart_in_child() {
    if SELF_ARM.load(Ordering::Acquire) {
        let _ = thread::current();
    }
}

/// Ends all timers of a process that records itself from its start: no tick comes any more. Each thread counts as one without a timer.
pub(crate) fn stop() {
    if !SELF_ARM.swap(false, Ordering::AcqRel) {
        return;
    }
    thread::each(|thread| {
        if thread.timer.load(Ordering::Relaxed) != 0 {
            disarm(thread);
            region::lose(Lost::NoTimer, 1, 0);
        }
    });
}

/// In a child after fork that is not followed.
pub(crate) fn forget() {
    SELF_ARM.store(false, Ordering::Release);
    handler::arm_cpu(false);
}
