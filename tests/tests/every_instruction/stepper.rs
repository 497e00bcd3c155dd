//! Runs code of this process one instruction at a time, and compares at each the stack that the product walks with the shadow stack.
//!
//! The trap flag makes the processor raise SIGTRAP after each instruction. The handler runs on a stack of its own, and neither allocates nor locks.

use super::report::Report;
use super::shadow::{Memory, Position, Shadow};
use super::tally::Tally;
use super::walk::Walk;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    /// What the handler needs while this thread is stepped through, else null.
    static STATE: Cell<*mut State> = const { Cell::new(core::ptr::null_mut()) };
}

/// A list of objects that another thread is rewriting would be one that a handler cannot read.
static ALONE: Mutex<()> = Mutex::new(());

/// Frames that wait above the code that is stepped through.
const MAX_BASE: usize = 64;
const TRAP_FLAG: i64 = 0x100;

/// Steps through a function on the calling thread.
pub(crate) struct Stepper<'a> {
    walk: Walk,
    limit: u64,
    coroutine: Range<u64>,
    watched: Range<u64>,
    signal_stack: &'a mut [u8],
    outer_signal_stack: libc::stack_t,
    _alone: MutexGuard<'static, ()>,
}

struct State {
    walk: Walk,
    shadow: Shadow,
    tally: Tally,
    limit: u64,
    watched: Range<u64>,
}

/// Memory of this process.
struct Own;

impl Memory for Own {
    fn byte(&self, address: u64) -> u8 {
        // SAFETY: the shadow stack reads instructions that ran and what they pushed.
        unsafe { (address as *const u8).read() }
    }

    fn word(&self, address: u64) -> u64 {
        // SAFETY: as above.
        unsafe { (address as *const u64).read_unaligned() }
    }
}

impl<'a> Stepper<'a> {
    /// Ready to step through a function, with this stack for handlers; no other thread does so then.
    ///
    /// # Panics
    /// If the system refuses a signal handler.
    pub(crate) fn new(signal_stack: &'a mut [u8]) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the stack is borrowed for as long as this, which takes it away again; the handler has the type that SA_SIGINFO asks for; zeroed is valid.
        let outer_signal_stack = unsafe {
            let new =
                libc::stack_t { ss_sp: signal_stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: signal_stack.len() };
            let mut outer: libc::stack_t = core::mem::zeroed();
            assert_eq!(libc::sigaltstack(&new, &mut outer), 0);
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = on_trap as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &action, core::ptr::null_mut()), 0);
            outer
        };
        let walk = Walk::of_this_thread();
        Self { walk, limit: u64::MAX, coroutine: 0..0, watched: 0..0, signal_stack, outer_signal_stack, _alone: alone }
    }

    /// No more instructions than that; the rest runs unobserved.
    pub(crate) fn limit(self, instructions: u64) -> Self {
        Self { limit: instructions, ..self }
    }

    /// The stack of a coroutine that the function runs.
    pub(crate) fn coroutine(self, stack: Range<u64>) -> Self {
        Self { coroutine: stack, ..self }
    }

    /// Counts the instructions in this range.
    pub(crate) fn watch(self, code: Range<u64>) -> Self {
        Self { watched: code, ..self }
    }

    /// Steps through a function.
    ///
    /// # Panics
    /// As the function does.
    #[inline(never)]
    pub(crate) fn run(self, function: impl FnOnce()) -> Report {
        let mut above = [core::ptr::null_mut(); MAX_BASE];
        // SAFETY: the array has that length.
        let above_len = unsafe { libc::backtrace(above.as_mut_ptr(), MAX_BASE as i32) };
        // The first one lies in this function, whose own place changes.
        let base = above[1..above_len as usize].iter().map(|address| *address as u64).collect();
        let signals = self.signal_stack.as_ptr_range();
        let signals = signals.start as u64..signals.end as u64;
        let shadow = Shadow::new(base, signals, self.coroutine);
        let Self { walk, limit, watched, .. } = self;
        let mut state = Box::new(State { walk, shadow, tally: Tally::new(), limit, watched });
        STATE.set(&raw mut *state);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the trap has a handler, which sets the flag for all further ones.
        unsafe { core::arch::asm!("int3") };
        let outcome = catch_unwind(AssertUnwindSafe(function));
        compiler_fence(Ordering::SeqCst);
        STATE.set(core::ptr::null_mut());
        // SAFETY: the stack that was there before; its thread still lives.
        unsafe { libc::sigaltstack(&self.outer_signal_stack, core::ptr::null_mut()) };
        outcome.map_or_else(|panic| resume_unwind(panic), |()| state.tally.report())
    }
}

extern "C" fn on_trap(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel gives the context, for this handler alone.
    let context = unsafe { &mut *context };
    // SAFETY: while it is set, `run` on this thread only waits for the function; nobody else knows the state.
    let state = unsafe { STATE.get().as_mut() };
    let goes_on = state.is_some_and(|state| state.step(context));
    let flags = &mut context.uc_mcontext.gregs[libc::REG_EFL as usize];
    *flags = if goes_on { *flags | TRAP_FLAG } else { *flags & !TRAP_FLAG };
}

impl State {
    /// Looks at one instruction; whether to go on.
    fn step(&mut self, context: &libc::ucontext_t) -> bool {
        // Code that saved its flags while it was stepped through may bring the trap flag back.
        if self.tally.instructions() >= self.limit {
            return false;
        }
        let of = |index: i32| context.uc_mcontext.gregs[index as usize] as u64;
        let now = Position { pc: of(libc::REG_RIP), sp: of(libc::REG_RSP) };
        self.walk.capture(context);
        let event = self.shadow.step(now, &Own);
        self.tally.ran(event, self.shadow.depth(), self.watched.contains(&now.pc));
        self.tally.compare(event, now.pc, self.walk.frames(), self.shadow.callers(&Own));
        true
    }
}
