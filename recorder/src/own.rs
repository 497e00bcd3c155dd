//! The threads of the recorder itself.
//!
//! Called from: these threads when they begin and end; whoever asks what they are and how much CPU time they took, the tick handler among them. May, in a handler: read clocks by raw system calls. May
//! not: allocate, wait.
//!
//! # Safety
//!
//! The one system facility used here changes the priority of the calling thread and nothing else. Places are never freed.
//!
//! # Orderings
//!
//! What is read between two equal, even values of `CHANGES` (Acquire, fence Acquire) was changed by nobody meanwhile.
#![allow(unsafe_code)]

use crate::lock::Lock;
use crate::room;
use capture::blocked::SYNCHRONOUS;
use capture::{clock, syscall, thread};
use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::thread::JoinHandle;

/// The thread's word, when it is the recorder's own (`capture::thread`).
pub(crate) const IGNORED: usize = 1;

/// A thread that runs.
struct Place {
    /// 0: none.
    tid: AtomicU32,
    /// Number of the last change of rights that it repeated ([`crate::rights`]).
    repeated: AtomicU32,
}

/// Threads that run, and further ones. They stay, and are used again.
struct Places {
    threads: [Place; 16],
    next: AtomicPtr<Places>,
}

impl Places {
    const fn new() -> Self {
        let threads = [const { Place { tid: AtomicU32::new(0), repeated: AtomicU32::new(0) } }; 16];
        Self { threads, next: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

/// More than a program has, but for one with that many sessions at once: these need no memory from anybody.
static PLACES: Places = Places::new();
/// CPU time of threads that ended.
static ENDED_NS: AtomicU64 = AtomicU64::new(0);
/// Counts the changes of both; odd during one. Threads that change them do so one after the other.
static CHANGES: AtomicU32 = AtomicU32::new(0);
static CHANGING: Lock<()> = Lock::new(());

/// Takes the thread off the list when it ends: the kernel gives its id to others.
struct Listed(&'static Place);

impl Drop for Listed {
    fn drop(&mut self) {
        change(|| {
            ENDED_NS.fetch_add(clock::thread_cpu_ns(), Ordering::Relaxed);
            self.0.tid.store(0, Ordering::Relaxed);
        });
    }
}

thread_local! {
    /// Whether the thread is on the list.
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
    static LISTED: Listed = change(|| {
        let free = places().find(|place| place.tid.load(Ordering::Relaxed) == 0);
        let place = free.unwrap_or_else(|| {
            let more = Box::leak(Box::new(Places::new()));
            more.next.store(PLACES.next.load(Ordering::Relaxed), Ordering::Relaxed);
            PLACES.next.store(more, Ordering::Release);
            &more.threads[0]
        });
        // Until it is said whose rights it began with.
        place.repeated.store(u32::MAX, Ordering::Relaxed);
        place.tid.store(syscall::gettid(), Ordering::Relaxed);
        Listed(place)
    });
}

fn change<T>(how: impl FnOnce() -> T) -> T {
    let _changing = CHANGING.lock();
    CHANGES.fetch_add(1, Ordering::AcqRel);
    let result = how();
    CHANGES.fetch_add(1, Ordering::Release);
    result
}

fn places() -> impl Iterator<Item = &'static Place> {
    // SAFETY: places were leaked before they were published.
    let places = std::iter::successors(Some(&PLACES), |places| unsafe { places.next.load(Ordering::Acquire).as_ref() });
    places.flat_map(|places| &places.threads)
}

/// Threads that were started and are not among the others yet.
static STARTING: AtomicU32 = AtomicU32::new(0);

/// How often threads of the recorder have begun and ended; `None` in the moment in which one does.
#[cfg(feature = "server")]
pub(crate) fn started_and_ended() -> Option<u32> {
    let changes = CHANGES.load(Ordering::SeqCst);
    (STARTING.load(Ordering::SeqCst) == 0 && changes.is_multiple_of(2)).then_some(changes)
}

/// Whether there are any.
#[cfg(feature = "server")]
pub(crate) fn has_threads() -> bool {
    STARTING.load(Ordering::SeqCst) != 0 || running().next().is_some()
}

/// Those that run.
pub(crate) fn running() -> impl Iterator<Item = u32> {
    places().map(|place| place.tid.load(Ordering::Relaxed)).filter(|tid| *tid != 0)
}

/// Whether all have repeated the change of rights of this number.
pub(crate) fn have_all_repeated(number: u32) -> bool {
    let before = started_and_ended();
    let have_all =
        places().all(|place| place.tid.load(Ordering::SeqCst) == 0 || place.repeated.load(Ordering::SeqCst) == number);
    have_all && before.is_some() && started_and_ended() == before
}

/// Number of the last that the calling thread repeated, which is one of them.
pub(crate) fn repeated() -> u32 {
    LISTED.with(|listed| listed.0.repeated.load(Ordering::Relaxed))
}

/// It has repeated this one.
pub(crate) fn note_repeated(number: u32) {
    LISTED.with(|listed| listed.0.repeated.store(number, Ordering::Release));
}

/// Some that ran, to wait until the kernel has them no more: one that ends is off the list before.
#[cfg(feature = "server")]
#[derive(Debug)]
pub(crate) struct Threads([u32; 32]);

#[cfg(feature = "server")]
impl Threads {
    /// Those that run now; more than there is room for are left out.
    pub(crate) fn now() -> Self {
        let mut threads = [0; 32];
        threads.iter_mut().zip(running()).for_each(|(place, tid)| *place = tid);
        Self(threads)
    }

    /// Whether none is there any more.
    pub(crate) fn are_gone(&self) -> bool {
        self.0.iter().filter(|tid| **tid != 0).all(|tid| !crate::sampler::tasks::exists(*tid))
    }
}

/// Marks the calling thread as the recorder's own: it is left out of every recording, and receives no signal that was meant for
/// the application (one that waits for signals in a thread of its own must not find them delivered here; a peer that closes its
/// connection must not raise SIGPIPE in a program that does not ignore it).
///
/// Every thread started by this crate calls this first ([`spawn`]).
fn own_thread(repeated: u32) {
    thread::ignore_current();
    LISTED.with(|listed| listed.0.repeated.store(repeated, Ordering::Release));
    IS_OWN.set(true);
    STARTING.fetch_sub(1, Ordering::SeqCst);
    // It began so where the recorder started it.
    syscall::set_signal_mask(BLOCKED);
}

/// Starts a thread of the recorder's own.
///
/// # Errors
/// If the kernel refuses it, or there is not the memory that it takes at its start: the standard library ends the process where a new thread gets none, before any code of ours runs.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let start = room::Start::of_a_thread().ok_or(io::ErrorKind::OutOfMemory)?;
    let _blocking = Blocking::new();
    // It begins with the rights of the thread that starts it: of the host's, which has made each change itself, or of one of the recorder's.
    let repeated = if IS_OWN.get() { repeated() } else { crate::rights::number() };
    STARTING.fetch_add(1, Ordering::SeqCst);
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        own_thread(repeated);
        drop(start);
        work()
    });
    if started.is_err() {
        STARTING.fetch_sub(1, Ordering::SeqCst);
    }
    started
}

/// Lets the application's threads go before, from here to the end of the calling thread: what is left for it to do has time. Where the application leaves a processor nothing to spare, that is a tenth of it.
pub(crate) fn step_back() {
    const NICE: libc::c_int = 10;
    if may_change_priorities() {
        // SAFETY: changes the priority of the calling thread, to a lower one.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    }
}

/// Whether the kernel grants that, or refuses it. A filter of system calls that the process was started with cannot be read. Those of containers refuse what they do not grant; a service manager's end
/// the process, and many a service may not change priorities.
fn may_change_priorities() -> bool {
    if !syscall::is_filtered() {
        return true;
    }
    let is_contained = syscall::pid_namespace().is_some_and(|namespace| namespace != INITIAL_PID_NAMESPACE);
    // In a container that has a service manager, the second is its.
    is_contained
        && std::fs::read_to_string("/proc/thread-self/status").is_ok_and(|status| filters_in(&status) == Some(1))
}

/// Inode of the PID namespace that the machine starts with (Linux, `PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;

/// How many filters a thread has, by its `status` (Linux 5.9).
fn filters_in(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"))?.trim().parse().ok()
}

/// CPU time of the recorder's threads so far, those that ended included.
pub(crate) fn spent_ns() -> u64 {
    loop {
        if let Some(spent) = spent_at_once_ns() {
            return spent;
        }
        syscall::yield_now();
    }
}

/// The same in a handler; `None` in the moment in which a thread of the recorder begins or ends.
pub(crate) fn spent_at_once_ns() -> Option<u64> {
    let before = CHANGES.load(Ordering::Acquire);
    let running: u64 = running().map(|tid| syscall::clock_ns(syscall::thread_cpu_clock(tid))).sum();
    let spent = running + ENDED_NS.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    (before.is_multiple_of(2) && CHANGES.load(Ordering::Relaxed) == before).then_some(spent)
}

/// Whether a thread is the recorder's own.
pub(crate) fn is_own(tid: u32) -> bool {
    running().any(|own| own == tid)
}

/// Takes the recorder's own threads out of a list.
pub(crate) fn remove_from(listed: &mut HashSet<u32>) {
    for tid in running() {
        listed.remove(&tid);
    }
}

/// Forgets the threads of the parent, in a child after fork.
///
/// # Safety
/// The process has one thread, which does not use this module at the moment.
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the function's own contract.
    unsafe { CHANGING.take_in_child() };
    places().for_each(|place| place.tid.store(0, Ordering::Relaxed));
    ENDED_NS.store(0, Ordering::Relaxed);
    STARTING.store(0, Ordering::Relaxed);
    CHANGES.store(0, Ordering::Release);
    room::reset_in_child();
}

/// Signals by which the C library has every thread do something (`setuid`), and waits for it.
const OF_THE_LIBRARY: u64 = 0b11 << 31;

/// All signals but those and what a thread raises itself: blocking that would turn a crash report into a silent kill.
const BLOCKED: u64 = !(OF_THE_LIBRARY | SYNCHRONOUS | 1 << (libc::SIGABRT - 1));

/// Signals blocked on the calling thread, until this is dropped there: a thread that it starts has them blocked from its first instruction on.
struct Blocking {
    before: u64,
}

impl Blocking {
    /// By the system call itself: the preload library's functions do not block the tick along with everything.
    fn new() -> Self {
        Self { before: syscall::set_signal_mask(BLOCKED) }
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        syscall::set_signal_mask(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread's mask.
    fn mask() -> u64 {
        let mask = syscall::set_signal_mask(u64::MAX);
        syscall::set_signal_mask(mask);
        mask
    }

    #[test]
    fn a_thread_of_ours_takes_no_signal_and_its_creator_goes_on_as_before() {
        let before = mask();
        let of_ours = spawn("profrec-test", mask).unwrap().join().unwrap();
        assert_eq!(mask(), before);
        let takes = |signal: i32| of_ours >> (signal - 1) & 1 == 0;
        assert!(!takes(libc::SIGPROF) && !takes(libc::SIGTERM) && !takes(63));
        assert!(takes(libc::SIGSEGV) && takes(32) && takes(33));
    }
    #[test]
    fn filters_are_counted_where_the_kernel_tells() {
        let status = "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t12\nSpeculation_Store_Bypass:\tvulnerable\n";
        assert_eq!(filters_in(status), Some(12));
        assert_eq!(filters_in("Seccomp:\t2\n"), None);
        let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert_eq!(syscall::is_filtered(), filters_in(&own).unwrap() > 0);
        // SAFETY: asks for the priority of the calling thread.
        let priority = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let stepped_back = spawn("profrec-test", move || (step_back(), priority()).1).unwrap().join().unwrap();
        assert_eq!(stepped_back == priority(), !may_change_priorities() || priority() >= 10);
    }
}
