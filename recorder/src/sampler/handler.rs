//! The tick handler.
//!
//! Called from: the kernel, on the thread that a CPU timer belongs to or that the sampler asked. May: read clocks by raw system calls, walk the thread's stack,
//! write the thread's own part of the store. May not: allocate, lock, call libc, panic, touch errno (raw system calls do not).
//! Signals that are not ours go to the handler that was there before; a stray one without such a handler is ignored. All signals that can wait do so while the handler runs: it then
//! knows whether a call that was broken off was broken off by it alone ([`super::resume`]).
//!
//! # Safety
//! The context that the kernel hands over is that of the interrupted thread; the thread's `handler` recording is used here alone, and in
//! [`super::timers`] while the signal is blocked.
#![allow(unsafe_code)]

use super::{account, action, asking, effort, passed, resume, spent};
use capture::modules::All;
use capture::rules::InHandler;
use capture::stack::Bounds;
use capture::stacks::{self, Work};
use capture::thread::{self, Current, Recording, ThreadState};
use capture::tree::Place;
use capture::{clock, region, syscall, walk};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use layout::{Frame, Lost, Pseudo, RecordId, Root, State};
use unwind::FrameAddress;
use unwind::arch::Registers;

/// Bit of those values ([`value`]) that no timer sent.
const BY_SAMPLER: usize = 1 << 31;
/// Slots for threads whose timers were started from outside.
pub(crate) const SLOTS: usize = 8192;

/// Whether CPU ticks, and whether wall-clock ticks are recorded.
static CPU: AtomicBool = AtomicBool::new(false);
static WALL: AtomicBool = AtomicBool::new(false);
/// Number of the CPU session: what a thread noted in another one does not count.
static SESSION: AtomicU32 = AtomicU32::new(0);
/// CPU clocks of threads when their timers were started from outside. Slot 0 is not used.
static BASELINES: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

/// Upper half of the value in our signals. It is this copy's: a process that carries the recorder can be preloaded with another, which has sessions of its own.
fn mark() -> usize {
    passed::own() & 0xffff_ffff
}

/// What comes back in the signals of a timer with this slot of `BASELINES`; slot 0 for a thread that armed itself.
pub(crate) fn value(slot: usize) -> usize {
    mark() << 32 | slot
}

/// What comes back in a signal that the sampler sent.
#[cfg(feature = "server")]
pub(super) fn asked_value() -> usize {
    value(BY_SAMPLER)
}

/// Notes the CPU clock at the start of a timer.
#[cfg(feature = "server")]
pub(crate) fn set_baseline(slot: usize, cpu_ns: u64) {
    if let Some(cell) = BASELINES.get(slot) {
        cell.store(cpu_ns, Ordering::Release);
    }
}

/// The clock noted in a slot.
pub(crate) fn baseline(slot: usize) -> u64 {
    BASELINES.get(slot).map_or(0, |cell| cell.load(Ordering::Acquire))
}

/// Number of the running CPU session.
pub(crate) fn session() -> u32 {
    SESSION.load(Ordering::Acquire)
}

/// In a child after fork: other threads, and the handlers that they were in, are not here.
pub(crate) fn reset_in_child() {
    action::reset_in_child();
    asking::reset_in_child();
    #[cfg(feature = "server")]
    super::ended::reset_in_child();
    stacks::reset_in_child();
}

/// Begins or ends the recording of CPU ticks.
pub(crate) fn arm_cpu(armed: bool) {
    if armed {
        SESSION.fetch_add(1, Ordering::AcqRel);
    }
    CPU.store(armed, Ordering::Release);
}

/// Whether CPU ticks are recorded.
pub(crate) fn is_cpu_armed() -> bool {
    CPU.load(Ordering::Acquire)
}

/// Begins or ends the recording of wall-clock ticks.
#[cfg(feature = "server")]
pub(crate) fn arm_wall(armed: bool) {
    WALL.store(armed, Ordering::Release);
}

/// Whether wall-clock ticks are recorded.
#[cfg(feature = "server")]
pub(crate) fn is_wall_armed() -> bool {
    WALL.load(Ordering::Acquire)
}

pub(super) unsafe extern "C" fn tick(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    let (code, value, sender) = unsafe { ((*info).si_code, (*info).si_value().sival_ptr as usize, (*info).si_pid()) };
    if is_ours(code, value, sender) {
        // SAFETY: in the handler.
        unsafe { stacks::done(&Tick { timer: slot_of_timer(code, value), context }) };
    } else if let Some(theirs) = action::of_application(signal)
        // SAFETY: as the kernel called us.
        && unsafe { passed::mark(info) }
    {
        // SAFETY: as the kernel called us.
        unsafe { chain(&theirs, signal, info, context) };
        // SAFETY: as the kernel called us.
        return unsafe { passed::unmark(info) };
    }
    // Its default would end the process: the recorder took the signal, so a stray one is ignored.
    // SAFETY: the kernel passes the interrupted context.
    unsafe { go_on(context) };
}

/// One of our signals.
struct Tick {
    /// The slot of the timer that sent it, if one did.
    timer: Option<usize>,
    context: *mut libc::c_void,
}

impl Work for Tick {
    /// Answers the tick; `context` is what the kernel passed.
    unsafe fn work(&self, has_room: bool) {
        let Current::Known(thread) = thread::current_in_handler() else { return };
        if thread.is_guest() {
            // Nobody asks for its name when it ends.
            thread.rename(&syscall::thread_name());
        }
        // SAFETY: as the caller promises.
        let interrupted = unsafe { Interrupted::read(self.context) };
        effort::of(|| take(thread, &interrupted, has_room, self.timer));
    }
}

/// Whether a signal with this code and value is a tick.
fn is_ours(code: i32, value: usize, sender: i32) -> bool {
    match code {
        libc::SI_TIMER => value >> 32 == mark(),
        // Where the user's share of waiting signals (RLIMIT_SIGPENDING) is used up, the kernel sends a signal without what belongs to it: nobody sent it, by its account.
        libc::SI_USER => value == 0 && sender == 0 && ASKED.load(Ordering::Acquire) != 0 && was_asked(),
        _ => false,
    }
}

/// The slot of the timer that sent one of our signals, if one did.
fn slot_of_timer(code: i32, value: usize) -> Option<usize> {
    (code == libc::SI_TIMER && value & BY_SAMPLER == 0).then_some(value & 0xffff_ffff)
}

/// Signals that were sent and may have come without their value.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// Whether the calling thread owes the sampler an answer.
fn was_asked() -> bool {
    let Current::Known(thread) = thread::current_in_handler() else { return false };
    account::is_asked(thread) || thread.asked_cpu.load(Ordering::Acquire) != 0
}

/// A signal to a thread that is to answer may come without its value from now on, or (false) no longer.
#[cfg(feature = "server")]
pub(crate) fn expect_bare_signals(expected: bool) {
    if expected {
        ASKED.fetch_add(1, Ordering::AcqRel);
    } else {
        ASKED.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Records a tick: of a timer of CPU time with this slot, or one that the sampler sent.
fn take(thread: &'static ThreadState, interrupted: &Interrupted, has_room: bool, timer: Option<usize>) {
    let asked = thread.asked_cpu.swap(0, Ordering::AcqRel) as usize;
    if region::is_stopped() {
        return;
    }
    if let Some(slot) = timer.or((asked != 0).then_some(asked))
        && CPU.load(Ordering::Acquire)
        && is_of_session(thread, slot)
    {
        if slot != 0 {
            super::timers::give_up_own(thread);
        }
        let weight = weigh(thread, slot);
        record(thread, interrupted, has_room, Root::Cpu, [None, None], [weight, 0]);
    }
    if timer.is_none() && WALL.load(Ordering::Acquire) {
        // Before anything is taken: who ends the session waits for it to be entered.
        thread.answers.store(true, Ordering::Release);
        let (ran, waited) = account::take(thread);
        let [on_cpu, runnable] = [State::OnCpu, State::Runnable].map(|state| Some(Frame::pseudo(Pseudo::State(state))));
        if ran != 0 || waited != 0 {
            record(thread, interrupted, has_room, Root::Wall, [on_cpu, runnable], [ran, waited]);
        }
        thread.answers.store(false, Ordering::Release);
    }
}

/// Has the thread make the call again that the tick broke off.
///
/// # Safety
/// `context` is what the kernel passed to a handler.
unsafe fn go_on(context: *mut libc::c_void) {
    // SAFETY: the kernel's context of a signal is a ucontext, which it takes back when the handler returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    // Another of our own signals that waits is none of the application's.
    let mask = mask_of(context) | action::ours_alone();
    let registers = &mut context.uc_mcontext.gregs;
    let of = |index: i32| registers.get(index as usize).copied().unwrap_or(0) as u64;
    let at = Registers { pc: of(libc::REG_RIP), sp: of(libc::REG_RSP), fp: Some(of(libc::REG_RBP)) };
    let arguments = [libc::REG_R10, libc::REG_R8, libc::REG_R9].map(of);
    if let Some(call) = resume::resumed(&at, of(libc::REG_RAX), arguments, mask) {
        for (index, value) in [(libc::REG_RIP, call.pc), (libc::REG_RAX, call.number)] {
            if let Some(register) = registers.get_mut(index as usize) {
                *register = value as i64;
            }
        }
    }
}

/// Signals that the interrupted thread blocks; the kernel's sets are the first 64 bits of the C library's.
fn mask_of(context: &libc::ucontext_t) -> u64 {
    // SAFETY: a set has at least eight bytes.
    unsafe { (&raw const context.uc_sigmask).cast::<u64>().read() }
}

/// The kernel's places of the registers, by DWARF's numbers.
const PLACES: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RBX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The interrupted thread.
struct Interrupted {
    /// The registers that walking keeps, and all.
    registers: Registers,
    all: All,
    /// Range of the alternate signal stack, if there is one.
    signal_stack: Bounds,
}

impl Interrupted {
    /// # Safety
    /// `context` is what the kernel passed to a handler.
    unsafe fn read(context: *mut libc::c_void) -> Self {
        // SAFETY: the kernel's context of a signal is a ucontext.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let of = |index: i32| context.uc_mcontext.gregs.get(index as usize).copied().unwrap_or(0) as u64;
        let pc = of(libc::REG_RIP);
        let mut all = All::at(FrameAddress::Instruction(pc));
        for (number, place) in (0..).zip(PLACES) {
            all.set(number, Some(of(place)));
        }
        let low = context.uc_stack.ss_sp as u64;
        let signal_stack = Bounds { low, high: low.saturating_add(context.uc_stack.ss_size as u64) };
        Self { registers: Registers { pc, sp: of(libc::REG_RSP), fp: Some(of(libc::REG_RBP)) }, all, signal_stack }
    }
}

/// Whether it is known since when a tick counts. A timer that the thread started itself, in a session that ended in that moment, may send one more.
fn is_of_session(thread: &ThreadState, slot: usize) -> bool {
    slot != 0 || thread.session.load(Ordering::Relaxed) == session()
}

/// CPU time since the thread's last sample: what this one stands for, however many ticks the kernel merged into it.
fn weigh(thread: &ThreadState, slot: usize) -> u64 {
    let session = session();
    if thread.session.load(Ordering::Relaxed) != session {
        thread.session.store(session, Ordering::Relaxed);
        thread.sampled_cpu_ns.store(baseline(slot), Ordering::Relaxed);
    }
    let now = clock::thread_cpu_ns();
    let before = thread.sampled_cpu_ns.swap(now, Ordering::Relaxed);
    now.saturating_sub(before)
}

/// Enters the stack once, and gives each weight to the state at its place in `states`, or without states the first to the stack itself.
fn record(
    thread: &'static ThreadState,
    interrupted: &Interrupted,
    has_room: bool,
    root: Root,
    states: [Option<Frame>; 2],
    weights_ns: [u64; 2],
) {
    // SAFETY: in the handler, its signal is masked.
    let (recording, kept) = unsafe { thread.handler() };
    let registers = interrupted.registers;
    let at = FrameAddress::Instruction(registers.pc);
    let [first, _] = states;
    let place = if has_room || thread::has_room_on(thread.stack(), stacks::IN_PLACE) {
        // A thread whose allocations were only counted before has not been asked where its stack is.
        let stack = if interrupted.signal_stack.contains(registers.sp) {
            thread.stack()
        } else {
            thread.stack_around(registers.sp)
        };
        let place = (stack, thread.record_id(), root);
        kept.capture::<InHandler>(recording, place, (at, registers, Some(&interrupted.all)), first)
    } else {
        walk::capture_leaf(recording, at);
        walk::intern(recording, root, thread.record_id())
    };
    give(thread, recording, place, root, states, weights_ns);
}

/// Gives the weights to the states below `place`. Not a part of `record`, whose frame lies below the whole walk.
#[inline(never)]
fn give(
    thread: &'static ThreadState,
    recording: &mut Recording,
    place: Option<Place>,
    root: Root,
    states: [Option<Frame>; 2],
    weights_ns: [u64; 2],
) {
    let [first, _] = states;
    for ((state, weight_ns), number) in states.into_iter().zip(weights_ns).zip(0..) {
        if weight_ns == 0 && (number != 0 || first.is_some()) {
            continue;
        }
        let place = match state {
            Some(state) => place.and_then(|place| recording.tree.child(place, state)),
            None => place,
        };
        // A look is one sample, whatever states it shows.
        let samples = u64::from(number == 0 || weights_ns.first() == Some(&0));
        let node = place.map(|place| place.node());
        let Some(node) = node.filter(|node| recording.tree.add_time(*node, samples, weight_ns)) else {
            region::lose(Lost::TimeStoreFull, samples, weight_ns);
            continue;
        };
        if root == Root::Cpu {
            thread.last_node.store(node.0, Ordering::Relaxed);
            account(thread, weight_ns);
        }
        super::log(&mut recording.log, clock::monotonic_ns(), thread.record_id(), thread.tid(), node, weight_ns);
    }
    if root == Root::Cpu && super::timers::is_self_arming() {
        spent::note_now_and_then();
    }
}

/// Notes how much of the thread's CPU time samples explain.
fn account(thread: &ThreadState, weight_ns: u64) {
    if let Some(record) = thread.thread_record() {
        region::add_own(&record.sampled_cpu_ns, weight_ns);
    }
}

/// Gives time to the node of an earlier sample, without counting another sample.
///
/// Called while the signal is blocked on the calling thread, whose tree this is. False if the store is full.
pub(crate) fn enter_tail(thread: &'static ThreadState, node: RecordId, weight_ns: u64) -> bool {
    // SAFETY: its signal is blocked.
    let (recording, _) = unsafe { thread.handler() };
    let is_entered = recording.tree.add_time(node, 0, weight_ns);
    if is_entered {
        account(thread, weight_ns);
    }
    is_entered
}

/// Gives a signal that is not ours to the application's handler, with the signals blocked that it asked for.
unsafe fn chain(theirs: &libc::sigaction, signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if theirs.sa_flags & libc::SA_RESETHAND != 0 {
        action::reset(signal);
    }
    // SAFETY: the kernel's context of a signal is a ucontext; a set has at least eight bytes.
    let asked =
        unsafe { mask_of(&*context.cast::<libc::ucontext_t>()) | (&raw const theirs.sa_mask).cast::<u64>().read() };
    let own = if theirs.sa_flags & libc::SA_NODEFER == 0 { 1 << (signal - 1) } else { 0 };
    // What the kernel sets again when we return.
    syscall::set_signal_mask(asked | own);
    match theirs.sa_sigaction {
        handler if theirs.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the application installed a function of this type.
            unsafe {
                core::mem::transmute::<usize, unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void)>(
                    handler,
                )(signal, info, context);
            }
        }
        handler => {
            // SAFETY: as above, without SA_SIGINFO.
            unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(i32)>(handler)(signal) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_of_another_session_gives_no_sample() {
        assert!(crate::start::in_library(0));
        let Current::Known(thread) = thread::current() else { panic!("it is registered") };
        thread.session.store(session().wrapping_sub(1), Ordering::Relaxed);
        assert!(!is_of_session(thread, 0), "its own");
        assert!(is_of_session(thread, 1), "one from the list, where its clock was noted");
    }

    #[test]
    fn a_tick_is_that_of_the_copy_that_asked_for_it() {
        assert!(is_ours(libc::SI_TIMER, value(7), 0));
        // The other copy's mark lies elsewhere.
        let of_another = (mark() ^ 0x1000) << 32 | 7;
        assert!(!is_ours(libc::SI_TIMER, of_another, 0));
        let place = &raw const SESSION as usize;
        assert!(place.abs_diff(passed::own()) < 1 << 32, "the mark is a place in this copy");
    }
}
