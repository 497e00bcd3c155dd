//! What the kernel does with our signals: [`super::handler`], and behind it what the application wants done with them.
//!
//! Ours is SIGPROF. Where the application handles SIGPROF too, it is one more, a real-time signal that the application does not use: of SIGPROF the kernel keeps one for a thread and drops the
//! others, so that each of ours that waits could cost the application one of its own. Real-time signals are all kept, and of each sort apart.
//!
//! Called from: [`install`], the sampler; [`foreign_sigaction`], whoever calls `sigaction`, handlers too; the rest, the tick handler. May: ask the kernel for actions, block signals, make timers
//! anew. May not: allocate, or wait for who may sleep.
//!
//! # Safety
//! The handler has the type that SA_SIGINFO asks for; structures that the C library reads or writes live through the calls.
#![allow(unsafe_code)]

use super::{handler, timers};
use capture::blocked::{Blocked, SYNCHRONOUS};
use capture::spin::{Held, Spin};
use capture::stacks;
use capture::{region, syscall};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// Signals of which one may become ours too, the last first: programs count from the other end. The very last one is valgrind's.
const SPARE: core::ops::RangeInclusive<i32> = 34..=63;

static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The one of [`SPARE`] that is ours; 0: none.
static TAKEN: AtomicI32 = AtomicI32::new(0);
/// The `sigaction` of the C library, where another of that name stands in front of it: in the preload library.
static REAL: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The one behind ours, which is another where a sanitizer has one.
static FOLLOWING: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// The application's own actions for SIGPROF and for the one that was taken.
static OF_SIGPROF: Foreign = Foreign::new();
static OF_TAKEN: Foreign = Foreign::new();

/// The signal of timers and questions from now on.
pub(super) fn signal() -> i32 {
    match TAKEN.load(Ordering::Acquire) {
        0 => libc::SIGPROF,
        taken => taken,
    }
}

/// Whether our handler is there; the kernel keeps it from then on.
pub(super) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Has the kernel call our handler. Asked at the beginning of each session, since the application may have said otherwise where nobody stands in front of `sigaction`: what it said is the
/// application's own action then. False if the kernel refuses.
pub(super) fn install() -> bool {
    let _change = Change::begin();
    stacks::set_up();
    let is_new = match (ask(libc::SIGPROF), is_installed()) {
        (Some(found), true) if is_tick(&found) => false,
        (Some(theirs), _) => {
            // Known before ours is there: from then on it is called by ours alone, which does not wait until all is done here.
            OF_SIGPROF.set(&theirs);
            let has_spare = is_handled(&theirs) && take_spare();
            if !take(libc::SIGPROF, mirrored(libc::SIGPROF, &theirs)) {
                return false;
            }
            has_spare
        }
        (None, _) => return false,
    };
    let taken = TAKEN.load(Ordering::Acquire);
    if let Some(theirs) = (taken != 0).then(|| ask(taken)).flatten().filter(|found| !is_tick(found)) {
        OF_TAKEN.set(&theirs);
        take(taken, mirrored(taken, &theirs));
    }
    INSTALLED.store(true, Ordering::Release);
    if is_new {
        timers::renew();
    }
    true
}

/// In a child after fork: a thread of the parent may have been at a change. What the kernel has of it is so, and the application's own actions were noted before.
pub(super) fn reset_in_child() {
    if !CHANGED.is_left_behind() {
        return;
    }
    let is_ours = |signal: &i32| ask(*signal).is_some_and(|action| is_tick(&action));
    if let Some(taken) = SPARE.rev().find(is_ours) {
        TAKEN.store(taken, Ordering::Release);
    }
    if is_ours(&libc::SIGPROF) {
        INSTALLED.store(true, Ordering::Release);
    }
}

/// Has a second signal of ours, if there is one that the application leaves at its default. Whether it is new. The caller has a [`Change`].
fn take_spare() -> bool {
    if TAKEN.load(Ordering::Acquire) != 0 {
        return false;
    }
    let is_free = |signal: &i32| ask(*signal).is_some_and(|theirs| theirs.sa_sigaction == libc::SIG_DFL);
    let taken = SPARE.rev().find(is_free).filter(|signal| take(*signal, libc::SA_RESTART | libc::SA_ONSTACK));
    if let Some(signal) = taken {
        TAKEN.store(signal, Ordering::Release);
    }
    taken.is_some()
}

/// Flags of our action for a signal that follow from the application's own.
///
/// Its handler runs where ours does: on the thread's signal stack only if it asked for that, since such a stack may be too small for it. Ours takes little of any stack. Calls go on by themselves
/// after a signal, but for those that the application's own SIGPROF is to break off, where ours come by another signal.
fn mirrored(signal: i32, theirs: &libc::sigaction) -> i32 {
    let is_asked = |flag| !is_handled(theirs) || theirs.sa_flags & flag != 0;
    let restarts = signal == self::signal() || is_asked(libc::SA_RESTART);
    let of = |flag, is_set| if is_set { flag } else { 0 };
    of(libc::SA_RESTART, restarts) | of(libc::SA_ONSTACK, is_asked(libc::SA_ONSTACK))
}

/// The action that the kernel has for a signal.
fn ask(signal: i32) -> Option<libc::sigaction> {
    // SAFETY: zeroed is a valid `sigaction`, which lives through the call.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        (real()(signal, core::ptr::null(), &mut action) == 0).then_some(action)
    }
}

/// Has the kernel call our handler for a signal, with these flags.
fn take(signal: i32, flags: i32) -> bool {
    // SAFETY: zeroed is a valid `sigaction`, which lives through the call; a set has at least eight bytes; the handler has the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler::tick as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        // The kernel's sets are the first 64 bits of the C library's.
        (&raw mut action.sa_mask).cast::<u64>().write(!SYNCHRONOUS);
        real()(signal, &action, core::ptr::null_mut()) == 0
    }
}

static CHANGED: Spin = Spin::new();

/// The right to change the kernel's actions for our signals. Whoever has it has all signals blocked, so that no handler on its thread asks for it too: it is given back first.
struct Change {
    /// `None` if its holder sleeps for a second: then it is done without.
    _held: Option<Held<'static>>,
    _blocked: Blocked,
}

impl Change {
    fn begin() -> Self {
        let blocked = Blocked::new();
        Self { _held: CHANGED.lock(), _blocked: blocked }
    }
}

/// A function of the type of `sigaction`.
pub type Sigaction = unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32;

/// The functions behind the preload library's `sigaction`.
#[derive(Clone, Copy, Debug)]
pub struct Sigactions {
    /// The C library's.
    pub real: Sigaction,
    /// The next of that name, which the application's calls go on to: a sanitizer has one of its own.
    pub following: Sigaction,
}

/// Says what is behind the exported `sigaction`.
pub(crate) fn set_sigactions(behind: &Sigactions) {
    REAL.store(behind.real as *mut (), Ordering::Release);
    FOLLOWING.store(behind.following as *mut (), Ordering::Release);
}

fn real() -> Sigaction {
    known(&REAL).unwrap_or(libc::sigaction)
}

fn following() -> Sigaction {
    known(&FOLLOWING).unwrap_or_else(real)
}

#[inline(always)]
fn known(function: &AtomicPtr<()>) -> Option<Sigaction> {
    let function = function.load(Ordering::Acquire);
    // SAFETY: a function of this type was stored there.
    (!function.is_null()).then(|| unsafe { core::mem::transmute::<*mut (), Sigaction>(function) })
}

/// What the application means by `sigaction` for a signal of ours: its handler is kept and called for signals that are not ours; the kernel keeps ours.
/// As long as we have none, and for every other signal, the function behind ours does it.
/// `by_number` it is the system call's structure, which the C library adds nothing to.
///
/// # Safety
/// The pointers are null or valid, as for `sigaction`.
pub(crate) unsafe fn foreign_sigaction(
    signal: i32,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    by_number: bool,
) -> i32 {
    if signal != libc::SIGPROF && !SPARE.contains(&signal) {
        // SAFETY: as the caller promises.
        return unsafe { following()(signal, new, old) };
    }
    // Where nothing is recorded nobody waits, and no child is told that it is one.
    if region::header().is_none() && of(signal).is_none() {
        // SAFETY: as the caller promises.
        return unsafe { following()(signal, new, old) };
    }
    // After vfork, this memory is the parent's, and the actions are not.
    let is_elsewhere = region::header().is_some_and(|header| header.pid.load(Ordering::Relaxed) != syscall::getpid());
    if is_elsewhere {
        // SAFETY: as the caller promises.
        return unsafe { replace(signal, new, old) };
    }
    // A copy: `old` may be the same structure.
    // SAFETY: as the caller promises.
    let wanted = unsafe { new.as_ref() }.copied();
    let foreign = match of(signal) {
        Some(foreign) => foreign,
        None => {
            // Ours may not come between the question and the answer: the application's would then take its place.
            let _change = Change::begin();
            match of(signal) {
                Some(foreign) => foreign,
                None => {
                    // SAFETY: as the caller promises.
                    let result = unsafe { following()(signal, new, old) };
                    if let Some(wanted) = &wanted.filter(|_| result == 0 && signal == libc::SIGPROF) {
                        OF_SIGPROF.set(wanted);
                    }
                    return result;
                }
            }
        }
    };
    let before = foreign.get();
    if let Some(wanted) = &wanted {
        let _change = Change::begin();
        if signal == libc::SIGPROF && is_handled(wanted) && take_spare() {
            timers::renew();
        }
        // Whatever the kernel has: an action for one signal alone has become the default since, or was set past us.
        take(signal, mirrored(signal, wanted));
        foreign.set(&as_kept(signal, wanted, by_number));
    }
    if !old.is_null() {
        // SAFETY: as the caller promises.
        unsafe { old.write(before) };
    }
    0
}

/// What the kernel would tell of an action that it was given: where its handlers return to the C library has said, and two signals nobody blocks.
fn as_kept(signal: i32, wanted: &libc::sigaction, by_number: bool) -> libc::sigaction {
    const SA_RESTORER: i32 = 0x0400_0000;
    let mut kept = *wanted;
    if let Some(ours) = ask(signal).filter(|_| !by_number) {
        (kept.sa_flags, kept.sa_restorer) = (kept.sa_flags | ours.sa_flags & SA_RESTORER, ours.sa_restorer);
    }
    for signal in [libc::SIGKILL, libc::SIGSTOP] {
        // SAFETY: a set that lives through the call.
        unsafe { libc::sigdelset(&mut kept.sa_mask, signal) };
    }
    kept
}

/// Has the kernel do what `new` says instead of what we have it do, by the function behind ours; `old` is what the application had it do.
///
/// # Safety
/// As for `sigaction`.
unsafe fn replace(signal: i32, new: *const libc::sigaction, old: *mut libc::sigaction) -> i32 {
    // SAFETY: as the caller promises.
    let result = unsafe { following()(signal, new, old) };
    // SAFETY: as the caller promises; the call wrote it.
    let old = unsafe { old.as_mut() };
    if result == 0
        && let Some(old) = old
        && is_tick(old)
        && let Some(foreign) = of(signal)
    {
        *old = foreign.get();
    }
    result
}

/// What the application wants done with one of our signals, if it is to call a function. In our handler.
pub(super) fn of_application(signal: i32) -> Option<libc::sigaction> {
    Some(behind(signal).get()).filter(is_handled)
}

/// The application's action for one of our signals is the default from now on. In our handler.
pub(super) fn reset(signal: i32) {
    let foreign = behind(signal);
    foreign.set(&libc::sigaction { sa_sigaction: libc::SIG_DFL, ..foreign.get() });
}

/// The application's action for a signal that our handler is called for.
fn behind(signal: i32) -> &'static Foreign {
    if signal == libc::SIGPROF { &OF_SIGPROF } else { &OF_TAKEN }
}

/// Our signals that the application does not handle itself: one bit each, as in the kernel's sets.
pub(crate) fn ours_alone() -> u64 {
    let bit = |signal: i32, foreign: &Foreign| match signal {
        0 => 0,
        _ if is_handled(&foreign.get()) => 0,
        _ => 1 << (signal - 1),
    };
    bit(libc::SIGPROF, &OF_SIGPROF) | bit(TAKEN.load(Ordering::Acquire), &OF_TAKEN)
}

/// Whether a signal is ours now, or may become ours.
pub(crate) fn is_ours(signal: i32) -> bool {
    signal == libc::SIGPROF || signal == TAKEN.load(Ordering::Acquire)
}

/// Whether the kernel calls our handler for a signal.
pub(crate) fn is_taken(signal: i32) -> bool {
    of(signal).is_some()
}

/// The application's action for a signal, if it is ours.
fn of(signal: i32) -> Option<&'static Foreign> {
    let is_ours = if signal == libc::SIGPROF { is_installed() } else { signal == TAKEN.load(Ordering::Acquire) };
    is_ours.then(|| behind(signal))
}

/// Whether it is ours.
fn is_tick(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler::tick as *const () as usize
}

/// Whether there is a function to call.
fn is_handled(action: &libc::sigaction) -> bool {
    !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
}

/// The application's own action for a signal of ours.
///
/// Written by whoever calls `sigaction`, read by handlers on any thread: actions go through a ring of places, so that one that is being read is written again only after many more calls.
struct Foreign {
    ring: UnsafeCell<[Option<libc::sigaction>; PLACES]>,
    newest: AtomicUsize,
}

const PLACES: usize = 64;

// SAFETY: a place is written before it is published, and again only PLACES calls later.
unsafe impl Sync for Foreign {}

impl Foreign {
    const fn new() -> Self {
        Self { ring: UnsafeCell::new([None; PLACES]), newest: AtomicUsize::new(0) }
    }

    fn set(&self, action: &libc::sigaction) {
        let place = self.newest.load(Ordering::Relaxed).wrapping_add(1);
        // SAFETY: not the place that readers are sent to.
        unsafe { (&raw mut (*self.ring.get())[place % PLACES]).write(Some(*action)) };
        self.newest.store(place, Ordering::Release);
    }

    fn get(&self) -> libc::sigaction {
        let place = self.newest.load(Ordering::Acquire);
        // SAFETY: published by `set`, or empty from the start; zeroed is a valid `sigaction`, that of the default.
        unsafe { (*self.ring.get())[place % PLACES].unwrap_or_else(|| core::mem::zeroed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_child::in_child;
    use std::sync::mpsc::channel;

    #[test]
    fn a_child_does_not_wait_for_a_change_of_its_parents() {
        let (held, is_held) = channel();
        let (done, is_done) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let _change = Change::begin();
            held.send(()).unwrap();
            let _ = is_done.recv();
        });
        is_held.recv().unwrap();
        let is_free = in_child(|| {
            region::abandon();
            reset_in_child();
            let change = CHANGED.try_lock();
            change.is_some()
        });
        drop(done);
        thread.join().unwrap();
        assert!(is_free);
    }

    extern "C" fn host(_: libc::c_int) {}

    /// Has the kernel do this, as an application does that nobody stands in front of.
    fn set_past_us(signal: i32, handler: usize, flags: i32) -> bool {
        // SAFETY: zeroed is a valid `sigaction`, which lives through the call.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            (action.sa_sigaction, action.sa_flags) = (handler, flags);
            real()(signal, &action, core::ptr::null_mut()) == 0
        }
    }

    #[test]
    fn what_an_application_said_past_us_is_its_own_action_in_the_next_session() {
        assert!(in_child(|| {
            region::abandon();
            reset_in_child();
            let is_ours = || ask(signal()).is_some_and(|action| is_tick(&action));
            let mut holds = install() && is_ours();
            for handler in [libc::SIG_IGN, libc::SIG_DFL, host as *const () as usize] {
                holds &= set_past_us(libc::SIGPROF, handler, 0) && !ask(libc::SIGPROF).is_some_and(|a| is_tick(&a));
                holds &= install() && is_ours() && OF_SIGPROF.get().sa_sigaction == handler;
            }
            holds &= signal() != libc::SIGPROF && set_past_us(signal(), libc::SIG_DFL, 0);
            holds & install() && is_ours() && OF_TAKEN.get().sa_sigaction == libc::SIG_DFL
        }));
    }

    #[test]
    fn our_handler_has_the_stack_that_the_application_asked_for() {
        assert!(in_child(|| {
            region::abandon();
            reset_in_child();
            let is_on_signal_stack =
                || ask(libc::SIGPROF).is_some_and(|action| action.sa_flags & libc::SA_ONSTACK != 0);
            let mut holds = true;
            for flags in [0, libc::SA_ONSTACK, 0] {
                holds &= set_past_us(libc::SIGPROF, host as *const () as usize, flags) && install();
                holds &= is_on_signal_stack() == (flags != 0);
            }
            holds & set_past_us(libc::SIGPROF, libc::SIG_DFL, 0) && install() && is_on_signal_stack()
        }));
    }

    #[test]
    fn what_a_fork_cut_short_is_taken_for_what_the_kernel_has() {
        assert!(in_child(|| {
            let held = Change::begin();
            // SAFETY: zeroed is a valid `sigaction`, that of the default; the structures live through the calls.
            unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                OF_SIGPROF.set(&action);
                let ours = take(libc::SIGPROF, 0) && take(*SPARE.end() - 3, 0);
                INSTALLED.store(false, Ordering::Release);
                TAKEN.store(0, Ordering::Release);
                // The fork is here.
                core::mem::forget(held);
                region::abandon();
                reset_in_child();
                let is_known = is_installed() && TAKEN.load(Ordering::Acquire) == *SPARE.end() - 3;
                action.sa_sigaction = host as *const () as usize;
                let mut before: libc::sigaction = core::mem::zeroed();
                let is_taken = foreign_sigaction(libc::SIGPROF, &action, &mut before, false) == 0;
                let has_ours = ask(libc::SIGPROF).is_some_and(|action| is_tick(&action));
                ours && is_known && is_taken && before.sa_sigaction == libc::SIG_DFL && has_ours
            }
        }));
    }
}
