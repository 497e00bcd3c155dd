//! Stacks that the recorder works on where the one that a thread runs on may be small.
//!
//! The kernel runs a handler on a stack of the application's, which may be small: Rust gives each thread a signal stack of 8 KiB, of which the kernel's own frame takes up to half. How much a
//! walk takes depends on how the recorder was compiled, and where it is a library that is the application's choice. So a handler takes one of these for as long as it works: there are as many as
//! may be at work at once, and who finds none looks whether there is room where it is. A hook takes one where it runs on a stack that is not its thread's own: a coroutine's may end anywhere, with nothing
//! behind it that would tell.
//!
//! Called from: the tick handler; hooks, and threads that tell their beginning and end, with all signals blocked; whoever installs the handler sets up, or the first hook that needs one. May not, in the
//! handler: allocate, lock, make system calls.
//!
//! # Safety
//! A stack is the thread's that set its bit, from then until it clears it; a handler ends before its thread does.
#![allow(unsafe_code)]

use crate::syscall::{self, mm};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// As many as there are bits in `TAKEN`.
const STACKS: usize = 64;
/// Bytes that are enough for an answer: three times what it takes where the recorder was compiled with optimisation.
const ENOUGH: u64 = 16 << 10;
/// Bytes that a stack of the application's must have left. Without optimisation, functions take several times as much.
pub const IN_PLACE: u64 = if cfg!(debug_assertions) { 8 * ENOUGH } else { ENOUGH };
/// Bytes of each stack. What is not touched takes no memory.
const BYTES: usize = 4 * IN_PLACE as usize;
const PAGE: usize = 4096;

/// End of the first stack; 0: there are none. The others lie above it.
static FIRST: AtomicU64 = AtomicU64::new(0);
/// A bit for each that is in use.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Makes the stacks, if they are not there. Without memory for them handlers do with the application's.
pub fn set_up() {
    if FIRST.load(Ordering::Acquire) != 0 {
        return;
    }
    let length = PAGE + STACKS * BYTES;
    let Ok(mapped) = syscall::map(length, mm::READ_WRITE, mm::ANONYMOUS, None) else { return };
    // SAFETY: just mapped, and nobody uses it yet. A large page would be zeroed in a handler, for the few pages that are used; the lowest page lies below the stack that is used most. Without either
    // the stacks are as good.
    let _ = unsafe {
        let _ = syscall::advise(mapped, length, mm::NO_HUGE_PAGES);
        syscall::protect(mapped as u64, PAGE, mm::NONE)
    };
    let first = mapped as u64 + (PAGE + BYTES) as u64;
    if FIRST.compare_exchange(0, first, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: another thread was faster, and nobody knows of these.
        unsafe { syscall::unmap(mapped, length) };
    }
}

/// Bytes that are left below an address on one of them.
pub(crate) fn left_below(address: u64) -> Option<u64> {
    let lowest = FIRST.load(Ordering::Acquire).checked_sub(BYTES as u64)?;
    let offset = address.checked_sub(lowest).filter(|offset| *offset < (STACKS * BYTES) as u64)?;
    Some(offset % BYTES as u64)
}

/// In a child after fork: who had one is not here.
pub fn reset_in_child() {
    TAKEN.store(0, Ordering::Relaxed);
}

/// What is done on one of them.
pub trait Work {
    /// Does it. Whether the stack that the thread is on has room for it is known, or (false) to be looked at.
    ///
    /// # Safety
    /// In the handler, or with all signals blocked that can wait.
    unsafe fn work(&self, has_room: bool);
}

/// Does it, on a stack of ours if one is free.
///
/// # Safety
/// As for [`Work::work`].
pub unsafe fn done<W: Work>(work: &W) {
    let first = FIRST.load(Ordering::Acquire);
    let Some(number) = (first != 0).then(take).flatten() else {
        // SAFETY: as the caller promises.
        return unsafe { work.work(false) };
    };
    // SAFETY: the stack is this thread's, and ends there.
    unsafe { on(work, true, first + u64::from(number) * BYTES as u64) };
    TAKEN.fetch_and(!(1 << number), Ordering::Release);
}

/// Takes the lowest stack that is free, whose memory is the likeliest to be there.
fn take() -> Option<u32> {
    let mut taken = TAKEN.load(Ordering::Relaxed);
    loop {
        let number = taken.trailing_ones();
        let with = taken | 1_u64.checked_shl(number)?;
        match TAKEN.compare_exchange_weak(taken, with, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(number),
            Err(now) => taken = now,
        }
    }
}

/// # Safety
/// As for [`Work::work`].
unsafe extern "C" fn here<W: Work>(work: &W, has_room: bool) {
    // SAFETY: as the caller promises.
    unsafe { work.work(has_room) };
}

/// Calls [`here`] on the stack that ends at `end`, a multiple of 16.
///
/// # Safety
/// As for [`here`]; nobody else uses the stack.
#[unsafe(naked)]
unsafe extern "C" fn on<W: Work>(work: &W, has_room: bool, end: u64) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "call {here}",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        here = sym here::<W>,
    )
}
