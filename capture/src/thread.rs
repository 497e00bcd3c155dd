//! What the recorder keeps of each thread.
//!
//! Called from: hooks and handlers of the thread itself; `each` from the recorder's threads. States live in mappings of their own that the kernel wipes
//! in a child after fork, so that a child, even one made by a raw `clone`, finds itself unregistered instead of writing into its parent's store.
//!
//! # Ownership    A state belongs to the thread whose number it has: `handler` is that one's. Where its word (`tls`) points to it, so is `hook`; a thread that shares another's storage allocates as that
//! one, and never at the same time (the C library's own heap would not survive it). `hook` is used under the [`Inside`] guard, `handler` in the tick
//! handler (whose signal is masked there). A handler of the host can jump out of a hook (`siglongjmp`): the guard is left behind, until a hook finds that ([`ThreadState::was_left`]).
//! # Orderings
//!
//! As `states` and `numbered` say.
#![allow(unsafe_code)]

mod armed;
mod guests;
mod inside;
mod names;
mod numbered;
mod recording;
mod states;

use crate::blocked::Blocked;
use crate::kept::{Kept, Sites};
use crate::labels;
use crate::region;
use crate::stack::Bounds;
use crate::stacks;
use crate::syscall;
use crate::tls;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use layout::{Function, RecordId, Thread};

pub use armed::{Armed, disarm_all};
pub use guests::{retire_ended_guests, retire_guest};
pub use inside::{Inside, Mark};
pub use names::{note_names, recorded_name, rename_record};
pub use recording::{MAX_FRAMES, Recording};

/// Bytes of stack that a walk in a hook may take, and some more: other compilers' settings make it take more than the preload library's. Without optimisation it takes several times as much,
/// and more than twice as much where each is compared with others.
const ROOM_TO_WALK: u64 = if cfg!(debug_assertions) {
    56 << 10
} else if cfg!(feature = "oracle") {
    16 << 10
} else {
    7 << 10
};

/// The thread is the recorder's own: nothing of it is recorded.
const IGNORED: usize = 1;
/// The thread ended, or could not be registered: counted with the process.
const UNREGISTERED: usize = 2;

/// The recorder's threads. Rust's library allocates in a new thread before the first line of ours runs there, when it has one of these names already, or its creator's still.
const OWN_NAMES: [&[u8; 16]; 6] = [
    b"profrec-server\0\0",
    b"profrec-record\0\0",
    b"profrec-sampler\0",
    b"profrec-symbol\0\0",
    b"profrec-convert\0",
    b"profrec-route\0\0\0",
];

/// A number of calls that no thread comes to.
pub const NONE_BETWEEN: u64 = u64::MAX;

const FREE: u32 = 0;
const LIVE: u32 = 1;
const RETIRED: u32 = 2;

/// Function called for each newly registered thread, to set its exit hook.
static ON_REGISTER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Function called in a child after fork that was noticed by its wiped memory.
static ON_CHILD: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// State of one thread. What the few instructions of most calls need comes first, within reach of short displacements.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadState {
    record: AtomicPtr<Thread>,
    /// Calls of the malloc family that may be counted in a few instructions (`alloc_hook::fast`).
    pub armed: Armed,
    /// Calls through Rust's door, of which some are recorded, all or none.
    pub recording: Armed,
    /// The same of those that give blocks back, while none is recorded nor followed.
    pub counting: Armed,
    /// Bytes until the next sampled allocation.
    pub countdown: AtomicU64,
    /// The thread's last allocation, if it was recorded: its address (1: none), values and objects. Freed before the next, it is temporary.
    pub last_address: AtomicU64,
    /// See `last_address`: the calls that the thread had counted then, if others may have been counted since without a word here; [`NONE_BETWEEN`] if not.
    pub last_calls: AtomicU64,
    /// See `last_address`.
    pub last_objects_q16: AtomicU64,
    /// See `last_address`.
    pub last_values: AtomicU32,
    record_id: AtomicU32,
    status: AtomicU32,
    tid: AtomicU32,
    is_guest: AtomicBool,
    /// Where the [`Mark`] of the hook lies that is inside the recorder; 0: none is.
    inside: AtomicU64,
    stack_low: AtomicU64,
    stack_high: AtomicU64,
    first_name: [AtomicU64; 2],
    /// State of the thread's random numbers.
    pub random: AtomicU64,
    /// The sampling interval for which `countdown` was drawn.
    pub interval: AtomicU64,
    /// When it was registered, by CLOCK_MONOTONIC.
    pub registered_ns: AtomicU64,
    /// CPU clock at the last sample.
    pub sampled_cpu_ns: AtomicU64,
    /// Session for which `sampled_cpu_ns` holds.
    pub session: AtomicU32,
    /// Elapsed time that the next wall-clock tick of this thread stands for.
    pub pending_wall_ns: AtomicU64,
    /// Of these, the time that it waited for a processor.
    pub pending_runnable_ns: AtomicU64,
    /// The thread takes what it was asked for, and enters it.
    pub answers: AtomicBool,
    /// Number of the kernel's timer by which the sampler has the thread answer, plus 1; 0: there is none.
    pub asking_timer: AtomicI32,
    /// Slot of the CPU clock's baseline, where the sampler asked for a CPU sample because the thread has no timer; 0: it did not.
    pub asked_cpu: AtomicU32,
    /// Leaf node of the last CPU sample, for the tail.
    pub last_node: AtomicU32,
    /// The thread's CPU timer plus one; 0: none.
    pub timer: AtomicI32,
    /// Label set in force ([`RecordId`] of its text); 0: none. Written by the thread itself, outside hooks and handlers.
    pub labels: AtomicU32,
    /// What `alloc_hook` notes of this thread's allocations one by one; null: nothing.
    pub marks: AtomicPtr<()>,
    hook: UnsafeCell<Recording>,
    sites: UnsafeCell<Sites>,
    handler: UnsafeCell<Recording>,
    handler_kept: UnsafeCell<Kept>,
}

// SAFETY: the cells are used by the owning thread alone, as the module's `Ownership` says; everything else is atomic.
unsafe impl Sync for ThreadState {}

/// Where hooks written in assembly find what they need: offsets in a [`ThreadState`].
pub mod offsets {
    use super::ThreadState;
    use core::mem::offset_of;

    /// See [`ThreadState::armed`].
    pub const ARMED: usize = offset_of!(ThreadState, armed);
    /// See [`ThreadState::counting`].
    pub const COUNTING: usize = offset_of!(ThreadState, counting);
    /// See [`ThreadState::recording`].
    pub const RECORDING: usize = offset_of!(ThreadState, recording);
    /// See [`ThreadState::countdown`].
    pub const COUNTDOWN: usize = offset_of!(ThreadState, countdown);
    /// See [`ThreadState::last_address`].
    pub const LAST_ADDRESS: usize = offset_of!(ThreadState, last_address);
    /// A thread's word up to this is no state's address.
    pub const NO_STATE: usize = super::UNREGISTERED;
}

/// The calling thread's next hook goes the whole way. Anywhere, in handlers too.
pub fn disarm_current() {
    let word = tls::get();
    if word > UNREGISTERED {
        // SAFETY: such a word is the address of a state, which is never unmapped.
        let state = unsafe { &*(word as *const ThreadState) };
        state.disarm();
    }
}

/// The calling thread, as a hook sees it.
#[derive(Clone, Copy, Debug)]
pub enum Current {
    /// Registered.
    Known(&'static ThreadState),
    /// The recorder's own thread.
    Ignored,
    /// Counted with the process alone.
    Unregistered,
    /// There is no store: nothing is counted.
    Off,
}

/// The calling thread; registers it the first time.
#[inline(always)]
pub fn current() -> Current {
    let word = tls::get();
    if word > UNREGISTERED {
        // SAFETY: such a word is the address of a state, which is never unmapped.
        let state = unsafe { &*(word as *const ThreadState) };
        // In a child after fork the state was wiped.
        if !state.record.load(Ordering::Relaxed).is_null() {
            return Current::Known(state);
        }
    }
    if word == 0 && region::header().is_none() {
        return Current::Off;
    }
    current_slow(word)
}

/// The same as a handler sees it, or a thread that has all signals blocked. In a child that no fork handler announced it is unregistered there: a handler cannot open a store, the next
/// allocation does.
pub fn current_in_handler() -> Current {
    let tid = syscall::gettid();
    if let Some(state) = numbered::find(tid) {
        return Current::Known(state);
    }
    // A filter may keep the kernel from telling the number: then storage is all there is.
    let is_known = i32::try_from(tid).is_ok();
    if is_known && !guests::has_own_storage(tid) {
        return guests::registered(tid);
    }
    match tls::get() {
        0 => registered(),
        IGNORED => Current::Ignored,
        UNREGISTERED => Current::Unregistered,
        word => {
            // SAFETY: such a word is the address of a state, which is never unmapped.
            let state = unsafe { &*(word as *const ThreadState) };
            match state.thread_record() {
                None => Current::Unregistered,
                Some(_) if !is_known || state.tid() == tid => Current::Known(state),
                // A guest allocated here before.
                Some(_) => guests::registered(tid),
            }
        }
    }
}

#[cold]
fn current_slow(word: usize) -> Current {
    match word {
        IGNORED => Current::Ignored,
        UNREGISTERED => Current::Unregistered,
        0 => registered(),
        _ => {
            // The state is there but empty: this is a child that nobody announced.
            tls::set(UNREGISTERED);
            let function = ON_CHILD.load(Ordering::Acquire);
            if !function.is_null() {
                // SAFETY: `set_on_child` stored a function of this type.
                unsafe { core::mem::transmute::<*mut (), fn()>(function)() };
            }
            tls::set(0);
            registered()
        }
    }
}

/// Whether the stack that the calling thread runs on has at least so many bytes left. Registers nothing.
pub fn has_room(bytes: u64) -> bool {
    let word = tls::get();
    // SAFETY: such a word is the address of a state, which is never unmapped.
    let state = (word > UNREGISTERED).then(|| unsafe { &*(word as *const ThreadState) });
    has_room_on(state.map_or(Bounds::default(), ThreadState::stack), bytes)
}

/// The same, where `stack` is the thread's. It may run on another: on the recorder's own, or on one of which nothing is known.
pub fn has_room_on(stack: Bounds, bytes: u64) -> bool {
    let here = 0_u8;
    let here = &raw const here as u64;
    if stack.contains(here) {
        return here - stack.low >= bytes;
    }
    // Where one ends that is not known nobody can tell.
    stacks::left_below(here).is_some_and(|left| left >= bytes)
}

/// Whether there is room for a walk in a hook below `sp`, which is on the thread's stack.
#[inline]
pub fn has_room_to_walk(stack: Bounds, sp: u64) -> bool {
    sp - stack.low >= ROOM_TO_WALK
}

/// Sets the function that gives a child after fork a store of its own, or none. Called in the child before anything is recorded there.
pub fn set_on_child(function: fn()) {
    ON_CHILD.store(function as *mut (), Ordering::Release);
}

/// Marks the calling thread as the recorder's own.
pub fn ignore_current() {
    retire_current();
    tls::set(IGNORED);
}

/// Whether the calling thread is marked so. Registers nothing.
pub fn is_ignored() -> bool {
    tls::get() == IGNORED
}

/// Whether the calling thread is the recorder's own, even if it has just begun: then it is marked now. Any other is registered as by [`current`].
#[inline(always)]
pub fn is_own() -> bool {
    tls::get() <= IGNORED && is_own_slow()
}

#[cold]
#[inline(never)]
fn is_own_slow() -> bool {
    // A thread of the application's is left out while it starts one of the recorder's.
    matches!(current(), Current::Ignored) && OWN_NAMES.contains(&&syscall::thread_name())
}

/// Sets the function that is called on each thread when it is registered.
pub fn set_on_register(function: fn(&'static ThreadState)) {
    ON_REGISTER.store(function as *mut (), Ordering::Release);
}

/// The calling thread, which has no state yet.
fn registered() -> Current {
    match register() {
        Some(state) => Current::Known(state),
        None if tls::get() == IGNORED => Current::Ignored,
        None => Current::Unregistered,
    }
}

/// Registers the calling thread. `None` if it is the recorder's own, there is no store, or no room.
fn register() -> Option<&'static ThreadState> {
    region::header()?;
    // A handler that does not come back would leave it half done.
    let _blocked = Blocked::new();
    // Whatever follows may come back here through a hook; then the thread counts as unregistered for a moment.
    tls::set(UNREGISTERED);
    let name = syscall::thread_name();
    if OWN_NAMES.contains(&&name) {
        tls::set(IGNORED);
        return None;
    }
    let tid = syscall::gettid();
    guests::replaced(tid);
    let state = ThreadState::begin(&name, tid, false)?;
    tls::set(state as *const ThreadState as usize);
    announce(state);
    Some(state)
}

/// Has a newly registered thread's end told, and whatever else is to be done on it.
fn announce(state: &'static ThreadState) {
    let function = ON_REGISTER.load(Ordering::Acquire);
    if !function.is_null() {
        // SAFETY: `set_on_register` stored a function of this type.
        unsafe { core::mem::transmute::<*mut (), fn(&'static ThreadState)>(function)(state) };
    }
}

/// The calling thread ends: its record stays, its state can be taken by another thread.
pub fn retire_current() {
    let word = tls::get();
    if word > UNREGISTERED {
        tls::set(UNREGISTERED);
        // SAFETY: such a word is the address of a state, which is never unmapped.
        let state = unsafe { &*(word as *const ThreadState) };
        state.rename(&syscall::thread_name());
        states::retire(state);
    }
}

/// In a child after fork: no thread is registered, not even this one.
pub fn reset_all() {
    states::reset();
    labels::forget();
    if tls::get() != IGNORED {
        tls::set(0);
    }
}

/// A record for a thread that is looked at from outside and has none of its own.
pub fn record_for(tid: u32, name: &[u8]) -> Option<RecordId> {
    let mut padded = [0; 16];
    for (to, from) in padded.iter_mut().zip(name) {
        *to = *from;
    }
    let id = states::new_record(&padded)?;
    // SAFETY: just allocated for a thread.
    unsafe { region::record::<Thread>(id) }.tid.store(tid, Ordering::Relaxed);
    Some(id)
}

/// Calls `visit` for every registered thread that has not ended.
pub fn each(mut visit: impl FnMut(&'static ThreadState)) {
    states::each_state(|state| {
        // One that is being taken has no number yet, and of its last owner what only the new one may wipe.
        if state.status.load(Ordering::Acquire) == LIVE && state.tid.load(Ordering::Acquire) != 0 {
            visit(state);
        }
    });
}

impl ThreadState {
    /// Takes a state for the calling thread. `None` without room for another.
    fn begin(name: &[u8; 16], tid: u32, is_guest: bool) -> Option<&'static Self> {
        let state = states::take_state(name)?;
        state.is_guest.store(is_guest, Ordering::Relaxed);
        state.stack_low.store(0, Ordering::Relaxed);
        state.stack_high.store(0, Ordering::Relaxed);
        state.inside.store(0, Ordering::Relaxed);
        let seed = (state as *const Self as u64) ^ u64::from(tid).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let now = crate::clock::monotonic_ns();
        state.registered_ns.store(now, Ordering::Relaxed);
        state.random.store(seed ^ now | 1, Ordering::Relaxed);
        state.interval.store(0, Ordering::Relaxed);
        state.disarm();
        state.last_address.store(1, Ordering::Relaxed);
        state.sampled_cpu_ns.store(0, Ordering::Relaxed);
        state.session.store(0, Ordering::Relaxed);
        state.pending_wall_ns.store(0, Ordering::Relaxed);
        state.pending_runnable_ns.store(0, Ordering::Relaxed);
        state.answers.store(false, Ordering::Relaxed);
        state.asked_cpu.store(0, Ordering::Relaxed);
        state.asking_timer.store(0, Ordering::Relaxed);
        state.last_node.store(0, Ordering::Relaxed);
        state.timer.store(0, Ordering::Relaxed);
        state.labels.store(0, Ordering::Relaxed);
        state.marks.store(core::ptr::null_mut(), Ordering::Relaxed);
        // From here on its handler finds it.
        state.tid.store(tid, Ordering::Release);
        numbered::note(state);
        Some(state)
    }

    /// The allocations that the thread has counted, of the functions whose calls may be counted without a word to `last_address`.
    pub fn counted_allocations(&self) -> u64 {
        const FUNCTIONS: [Function; 6] = [
            Function::Malloc,
            Function::Calloc,
            Function::Realloc,
            Function::RustAlloc,
            Function::RustAllocZeroed,
            Function::RustRealloc,
        ];
        let calls = |record: &Thread| {
            let of = |function: Function| {
                record.functions.get(function as usize).map_or(0, |called| called.calls.load(Ordering::Relaxed))
            };
            FUNCTIONS.map(of).iter().sum()
        };
        self.thread_record().map_or(0, calls)
    }

    /// The thread's next hook goes the whole way.
    fn disarm(&self) {
        [&self.armed, &self.counting, &self.recording].into_iter().for_each(Armed::disarm);
    }

    /// Whether the thread has no storage of its own: its end is not told.
    pub fn is_guest(&self) -> bool {
        self.is_guest.load(Ordering::Relaxed)
    }

    /// Kernel thread id.
    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// The thread's record in the store; `None` in a child after fork.
    #[inline]
    pub fn thread_record(&self) -> Option<&'static Thread> {
        // SAFETY: records stay mapped while the store is.
        unsafe { self.record.load(Ordering::Relaxed).as_ref() }
    }

    /// Id of that record.
    #[inline]
    pub fn record_id(&self) -> RecordId {
        RecordId(self.record_id.load(Ordering::Relaxed))
    }

    /// The label set in force.
    #[inline]
    pub fn label_set(&self) -> RecordId {
        RecordId(self.labels.load(Ordering::Relaxed))
    }

    /// Range of the thread's stack.
    #[inline]
    pub fn stack(&self) -> Bounds {
        Bounds { low: self.stack_low.load(Ordering::Relaxed), high: self.stack_high.load(Ordering::Relaxed) }
    }

    /// Its range; found by an address on it, if nobody asked for it before. On the thread itself.
    #[inline]
    pub fn stack_around(&self, sp: u64) -> Bounds {
        let known = self.stack();
        if known.high != 0 { known } else { self.find_stack(sp) }
    }

    #[cold]
    fn find_stack(&self, sp: u64) -> Bounds {
        // The thread pointer of one without storage of its own is another's.
        let bounds = if self.is_guest() { Bounds::around(sp) } else { Bounds::of_current_thread(sp) };
        self.stack_low.store(bounds.low, Ordering::Relaxed);
        self.stack_high.store(bounds.high, Ordering::Relaxed);
        bounds
    }

    /// Enters the recorder from an allocation hook of this thread; `None` if the thread is inside already (an allocation of the recorder itself, or of a
    /// signal handler that interrupted it). `mark` lies in the hook's frame.
    #[inline]
    pub fn enter<'a>(&'a self, mark: &'a Mark) -> Option<Inside<'a>> {
        if self.inside.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.inside.store(mark.set(), Ordering::Relaxed);
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        Some(Inside { state: self })
    }

    /// Whether the hook that is inside will not come back: a signal handler of the host left it by a jump, or ended the thread. Then the thread is on the stack where that hook was, and nearer to its
    /// root; or has written over its frame. `here` is a stack pointer of whoever asks: of a hook, on the thread itself. False where it is not certain.
    #[cold]
    pub fn was_left(&self, here: u64) -> bool {
        let (inside, stack) = (self.inside.load(Ordering::Relaxed), self.stack());
        if !stack.contains(inside) {
            return false;
        }
        // SAFETY: on the thread's own stack, which is mapped as far as it ever came.
        if !unsafe { Mark::is_at(inside) } {
            return true;
        }
        // A handler's stack can be anything, a variable of `main` too.
        stack.contains(here) && here >= inside && !syscall::is_on_alternate_stack()
    }

    /// Nobody is inside any more, and what was kept is forgotten: perhaps half of it was written.
    ///
    /// # Safety
    /// On the thread itself, where it is certain, with all signals blocked.
    #[cold]
    pub unsafe fn forget_left(&self) {
        // SAFETY: whoever had them is gone.
        unsafe { &mut *self.sites.get() }.clear();
        self.inside.store(0, Ordering::Relaxed);
    }

    /// Whether the thread is inside the recorder.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) != 0
    }

    /// What the tick handler of this thread uses, and what it keeps from one tick to the next.
    ///
    /// # Safety
    /// Called in the tick handler on this thread, with its signal masked, or while the thread cannot get one.
    #[allow(clippy::mut_from_ref, reason = "the cells belong to one context")]
    pub unsafe fn handler(&self) -> (&mut Recording, &mut Kept) {
        // SAFETY: one context uses them, as the caller promises.
        let (recording, kept) = unsafe { (&mut *self.handler.get(), &mut *self.handler_kept.get()) };
        recording.labels = self.label_set();
        (recording, kept)
    }
}

/// The stack pointer of the function that this is inlined into.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: copies a register.
    unsafe { core::arch::asm!("mov {sp}, rsp", sp = out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Counts a call of an allocation function by the calling thread, whose record this is.
#[inline(always)]
pub fn count(record: &Thread, function: Function, bytes: u64) {
    let Some(called) = record.functions.get(function as usize) else { return };
    region::add_own(&called.calls, 1);
    // The C library's `free` is not told how many.
    if function.is_rust() || !function.releases() {
        region::add_own(&called.bytes, bytes);
    }
}

/// Counts a call made by a thread without a record.
#[cold]
pub fn count_unregistered(function: Function, bytes: u64) {
    let Some(header) = region::header() else { return };
    if let Some(called) = header.functions.get(function as usize) {
        called.calls.fetch_add(1, Ordering::Relaxed);
        called.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
