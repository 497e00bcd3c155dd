//! The threads of the recorder itself.
//!
//! # Safety
//!
//! The one system facility used here changes the signal mask of the calling thread and nothing else.
#![allow(unsafe_code)]

use crate::lock::Lock;
use crate::room;
use capture::{clock, syscall, thread};
use std::collections::HashSet;
use std::io;
use std::mem::MaybeUninit;
use std::thread::JoinHandle;

/// Signals that an instruction of the thread itself raises; blocking them would turn a crash report into a silent kill.
const SYNCHRONOUS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// The thread's word, when it is the recorder's own (`capture::thread`).
pub(crate) const IGNORED: usize = 1;

static OWN: Lock<Own> = Lock::new(Own { running: Vec::new(), ended_ns: 0 });

#[derive(Default)]
struct Own {
    running: Vec<u32>,
    /// CPU time of those that ended.
    ended_ns: u64,
}

/// Takes the thread off the list when it ends: the kernel gives its id to others.
struct Listed(u32);

impl Drop for Listed {
    fn drop(&mut self) {
        let mut own = OWN.lock();
        own.ended_ns += clock::thread_cpu_ns();
        own.running.retain(|tid| *tid != self.0);
    }
}

thread_local! {
    static LISTED: Listed = {
        let tid = syscall::gettid();
        OWN.lock().running.push(tid);
        Listed(tid)
    };
}

/// Marks the calling thread as the recorder's own: it is left out of every recording, and receives no signal that was meant for
/// the application (one that waits for signals in a thread of its own must not find them delivered here; a peer that closes its
/// connection must not raise SIGPIPE in a program that does not ignore it).
///
/// Every thread started by this crate calls this first ([`spawn`]).
fn own_thread() {
    thread::ignore_current();
    LISTED.with(|_| ());
    block_signals();
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
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        own_thread();
        drop(start);
        work()
    })
}

/// Lets the application's threads go before, from here to the end of the calling thread: what is left for it to do has time. Where the application leaves a processor nothing to spare, that is a tenth of it.
pub(crate) fn step_back() {
    const NICE: libc::c_int = 10;
    // SAFETY: changes the priority of the calling thread, to a lower one.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// CPU time of the recorder's threads so far, those that ended included.
pub(crate) fn spent_ns() -> u64 {
    let own = OWN.lock();
    own.running.iter().map(|tid| syscall::clock_ns(syscall::thread_cpu_clock(*tid))).sum::<u64>() + own.ended_ns
}

/// Whether a thread is the recorder's own.
pub(crate) fn is_own(tid: u32) -> bool {
    OWN.lock().running.contains(&tid)
}

/// Takes the recorder's own threads out of a list.
pub(crate) fn remove_from(listed: &mut HashSet<u32>) {
    for tid in &OWN.lock().running {
        listed.remove(tid);
    }
}

/// Forgets the threads of the parent, in a child after fork.
///
/// # Safety
/// The process has one thread, which does not use this module at the moment.
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the function's own contract.
    std::mem::forget(unsafe { OWN.take_in_child() });
    room::reset_in_child();
}

fn block_signals() {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set it is given.
    unsafe { libc::sigfillset(signals.as_mut_ptr()) };
    for signal in SYNCHRONOUS {
        // SAFETY: the set is initialised and the signal's number is valid.
        unsafe { libc::sigdelset(signals.as_mut_ptr(), signal) };
    }
    // SAFETY: the set is initialised; no old set is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut()) };
}
