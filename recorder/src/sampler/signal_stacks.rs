//! Signal stacks (`sigaltstack`) of the application's threads. The tick's handler runs on them, as some runtimes need it: their code runs on stacks too small for a handler.
//!
//! Programs set them aside for the handler of a crash, which comes seldom and does not return: some give one to all their threads, others release one while their thread goes on to its end. For ticks, which
//! come often and to many threads at once, neither will do. So the kernel is told of a stack of the recorder's instead, which is the thread's alone for as long as it lives; the application is told of its own.
//!
//! Where the application handles other signals than those of crashes on such a stack, and no two threads share it, it is left alone: coroutines are begun by a handler whose frames stay there.
//!
//! Called from: `sigaltstack` of the preload library, which handlers may call; the child after fork. May: make system calls, map memory. May not: allocate, lock, touch errno.
//!
//! # Orderings
//!
//! A place is the thread's whose number is its `owner`, which takes it by a compare-exchange (AcqRel). A range is noted before others are looked at, both SeqCst: of two threads that set the same one aside at
//! once, at least one sees the other.
#![allow(unsafe_code)]

use capture::blocked::Blocked;
use capture::stack::Bounds;
use capture::syscall::{self, mm};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use libc::stack_t;

/// Threads that have such a stack at a time. Further ones' are left alone.
const PLACES: usize = 8192;
/// Places in use after which those of threads that ended are looked for, at first.
const FEW: usize = 64;

/// A thread's signal stack.
struct Place {
    owner: AtomicU32,
    /// The range that the application set aside; empty: none.
    low: AtomicU64,
    high: AtomicU64,
    /// What the kernel may be told of instead; stays when the place gets another owner.
    instead: AtomicU64,
    instead_bytes: AtomicU64,
}

static ALL: [Place; PLACES] = [const {
    Place {
        owner: AtomicU32::new(0),
        low: AtomicU64::new(0),
        high: AtomicU64::new(0),
        instead: AtomicU64::new(0),
        instead_bytes: AtomicU64::new(0),
    }
}; PLACES];
/// How many places were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// How many may be before those of ended threads are looked for again.
static ENOUGH: AtomicUsize = AtomicUsize::new(FEW);
/// Signals that the application handles on such a stack, but for those of crashes: one bit each.
static HANDLED_THERE: AtomicU64 = AtomicU64::new(0);

/// The application's action for a signal is another now.
pub(crate) fn note_action(signal: i32, handler: usize, flags: i32) {
    const OF_CRASHES: [i32; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];
    if !(1..=64).contains(&signal) || OF_CRASHES.contains(&signal) {
        return;
    }
    let is_function = handler != libc::SIG_DFL && handler != libc::SIG_IGN;
    let bit = 1 << (signal - 1);
    if is_function && flags & libc::SA_ONSTACK != 0 {
        HANDLED_THERE.fetch_or(bit, Ordering::Relaxed);
        give_back();
    } else if HANDLED_THERE.load(Ordering::Relaxed) & bit != 0 {
        HANDLED_THERE.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// The kernel is told of the application's own stack for the calling thread again, if it was told of another and no other thread has the same.
fn give_back() {
    let told = syscall::signal_stack().and_then(|told| used().iter().find(|place| place.is_told_as(told)));
    if let Some(place) = told.filter(|place| !is_shared(place.range(), syscall::gettid())) {
        let Bounds { low, high } = place.range();
        // SAFETY: the application set it aside for this. The kernel refuses while a handler runs on the other one.
        let _ = unsafe { syscall::set_signal_stack(low, (high - low) as usize, 0) };
    }
}

/// `sigaltstack`, which `kernel` makes: it returns what the C function does. `is_recorded`: the calling thread may get ticks.
///
/// # Safety
/// As the C function.
pub(crate) unsafe fn set(
    new: *const stack_t,
    old: *mut stack_t,
    is_recorded: bool,
    kernel: impl Fn(*const stack_t, *mut stack_t) -> i32,
) -> i32 {
    // No tick comes while the kernel knows the application's stack, or of a thread that is half done.
    let _blocked = Blocked::new();
    // SAFETY: zeroed is a valid `stack_t`.
    let mut before: stack_t = unsafe { core::mem::zeroed() };
    // The kernel refuses what it cannot read, and what it does not take.
    let mut result = kernel(new, &mut before);
    if result != 0 {
        return result;
    }
    // SAFETY: the kernel read it. `old` may be the same.
    let new = unsafe { new.as_ref() }.copied();
    if !old.is_null() {
        // And what it cannot write.
        result = kernel(core::ptr::null(), old);
        if result == 0 {
            // SAFETY: the kernel wrote there.
            unsafe { old.write(as_set_aside(before)) };
        }
    }
    if let Some(new) = new.filter(|_| is_recorded)
        && let Some(instead) = instead_of(&new)
    {
        // SAFETY: it is this thread's alone. The kernel took one like it.
        let _ = unsafe { syscall::set_signal_stack(instead, new.ss_size, new.ss_flags) };
    }
    result
}

/// What the application set aside, where the kernel tells of this.
fn as_set_aside(told: stack_t) -> stack_t {
    match used().iter().find(|place| place.is_told_as(told.ss_sp as u64)).map(Place::range) {
        Some(Bounds { low, high }) => {
            stack_t { ss_sp: low as *mut libc::c_void, ss_size: (high - low) as usize, ..told }
        }
        None => told,
    }
}

/// In a child after fork: the calling thread is the only one, and has another number.
pub(crate) fn reset_in_child() {
    let told = syscall::signal_stack();
    for place in used() {
        let is_mine = told.is_some_and(|told| place.is_told_as(told) || place.low.load(Ordering::Relaxed) == told);
        if is_mine {
            place.owner.store(syscall::gettid(), Ordering::Relaxed);
        } else {
            place.release();
        }
    }
}

/// Notes the calling thread's new stack; where the one of the same size lies that the kernel is to be told of instead, if it is.
fn instead_of(new: &stack_t) -> Option<u64> {
    let tid = syscall::gettid();
    let mine = used().iter().find(|place| place.owner.load(Ordering::Acquire) == tid);
    if new.ss_flags & libc::SS_DISABLE != 0 {
        mine?.release();
        return None;
    }
    let place = mine.or_else(|| take(tid))?;
    let low = new.ss_sp as u64;
    let range = Bounds { low, high: low.saturating_add(new.ss_size as u64) };
    place.low.store(range.low, Ordering::SeqCst);
    place.high.store(range.high, Ordering::SeqCst);
    // A handler that runs there leaves it with its frames upon it, if it likes.
    if new.ss_flags & SS_AUTODISARM != 0 || !(is_for_crashes() || is_shared(range, tid)) {
        return None;
    }
    let instead = place.instead(new.ss_size)?;
    let here = 0_u8;
    let is_there = Bounds { low: instead, high: instead + new.ss_size as u64 }.contains(&raw const here as u64);
    (!is_there).then_some(instead)
}

/// The kernel forgets the stack while a handler runs there.
const SS_AUTODISARM: i32 = 1 << 31;

/// Whether the application's signal stacks are for crashes alone.
fn is_for_crashes() -> bool {
    HANDLED_THERE.load(Ordering::Relaxed) == 0
}

/// Whether another thread has set some of the range aside.
fn is_shared(range: Bounds, tid: u32) -> bool {
    used().iter().any(|place| {
        let owner = place.owner.load(Ordering::SeqCst);
        let theirs = Bounds { low: place.low.load(Ordering::SeqCst), high: place.high.load(Ordering::SeqCst) };
        owner != 0 && owner != tid && theirs.low < range.high && range.low < theirs.high && syscall::is_thread(owner)
    })
}

fn used() -> &'static [Place] {
    ALL.get(..USED.load(Ordering::Acquire).min(PLACES)).unwrap_or_default()
}

/// A place for the calling thread, which has none. `None`: there are too many.
fn take(tid: u32) -> Option<&'static Place> {
    let is_taken = |place: &&Place| place.owner.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if let Some(place) = used().iter().find(is_taken) {
        return Some(place);
    }
    if USED.load(Ordering::Relaxed) >= ENOUGH.load(Ordering::Relaxed) {
        let released = used().iter().filter(|place| place.release_of_ended()).count();
        // Each is looked at as often as others are taken.
        if released < used().len() / 2 {
            ENOUGH.store(used().len() * 2, Ordering::Relaxed);
        }
        if let Some(place) = used().iter().find(is_taken) {
            return Some(place);
        }
    }
    let index = USED.fetch_add(1, Ordering::AcqRel);
    let Some(place) = ALL.get(index) else {
        USED.fetch_sub(1, Ordering::AcqRel);
        return None;
    };
    // It is listed already: another may have been quicker.
    if is_taken(&place) { Some(place) } else { take(tid) }
}

impl Place {
    fn range(&self) -> Bounds {
        Bounds { low: self.low.load(Ordering::Relaxed), high: self.high.load(Ordering::Relaxed) }
    }

    /// Whether the kernel tells this address where the application set the place's range aside.
    fn is_told_as(&self, address: u64) -> bool {
        address != 0 && self.instead.load(Ordering::Acquire) == address
    }

    /// Nobody's from now on.
    fn release(&self) {
        self.low.store(0, Ordering::Relaxed);
        self.high.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Release);
    }

    /// Releases it if its thread is no more. Whether it was.
    fn release_of_ended(&self) -> bool {
        let owner = self.owner.load(Ordering::Acquire);
        owner != 0
            && !syscall::is_thread(owner)
            && self.owner.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Memory for a stack of so many bytes. `None`: there is none.
    fn instead(&self, bytes: usize) -> Option<u64> {
        if self.instead_bytes.load(Ordering::Relaxed) < bytes as u64 {
            let rounded = bytes.checked_next_multiple_of(4096)?;
            // Not given back, if there was a smaller one: its owner's frames may be on it.
            let memory = syscall::map(rounded, mm::READ_WRITE, mm::ANONYMOUS, None).ok()?;
            self.instead_bytes.store(rounded as u64, Ordering::Relaxed);
            self.instead.store(memory as u64, Ordering::Release);
        }
        Some(self.instead.load(Ordering::Relaxed))
    }
}
