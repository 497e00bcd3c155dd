//! Counting from a program's first allocation on, behind Rust's door: before there is a recorder that asks for anything.
//!
//! Called from: the first calls of the process. May: make system calls. There is no thread, no timer, no signal handler and no table: only memory to count in.

use crate::{fast, thread_end};
use capture::region::{self, Purpose};
use capture::{live, syscall, thread, wait};
use core::sync::atomic::{AtomicU32, Ordering};
use layout::Live;

/// The thread that is opening it, by the kernel's number, or one of these.
static STATE: AtomicU32 = AtomicU32::new(NOT_YET);
const NOT_YET: u32 = 0;
const OPEN: u32 = u32::MAX;
const FAILED: u32 = u32::MAX - 1;

/// Most bytes of memory that a program's own recorder takes.
pub const BUDGET_BYTES: usize = 64 << 20;

/// Makes the memory to count in, the first time. False if there is none.
pub fn begin() -> bool {
    match STATE.load(Ordering::Acquire) {
        OPEN => true,
        FAILED => false,
        NOT_YET => {
            let me = syscall::gettid();
            STATE
                .compare_exchange(NOT_YET, me, Ordering::Acquire, Ordering::Acquire)
                .map_or_else(is_open_after, |_| open())
        }
        opener => is_open_after(opener),
    }
}

/// By the one thread that may.
fn open() -> bool {
    let purpose = Purpose { modes: 0, budget_bytes: BUDGET_BYTES, alloc_interval_bytes: 0, period_ns: 0 };
    let open = region::open(&purpose, None).is_ok();
    if open {
        live::set_kind(Live::Requested);
        fast::rearrange();
        thread_end::set_up();
        thread::set_on_register(thread_end::watch);
    }
    STATE.store(if open { OPEN } else { FAILED }, Ordering::Release);
    open
}

/// Waits for the thread that is about to have it; not where that is this one, below a signal handler.
fn is_open_after(opener: u32) -> bool {
    if opener == syscall::gettid() {
        return false;
    }
    // It is not there in a child that another thread forked meanwhile: waited for once.
    if !wait::wait_until(|| STATE.load(Ordering::Acquire) != opener) {
        let _ = STATE.compare_exchange(opener, FAILED, Ordering::Relaxed, Ordering::Relaxed);
    }
    STATE.load(Ordering::Acquire) == OPEN
}
