//! Counting from a program's first allocation on, behind Rust's door: before there is a recorder that asks for anything.
//!
//! Called from: the first calls of the process. May: make system calls. There is no thread, no timer, no signal handler and no table: only memory to count in.

use crate::{fast, thread_end};
use capture::region::{self, Purpose};
use capture::wait;
use capture::{live, thread};
use core::sync::atomic::{AtomicU32, Ordering};
use layout::Live;

static STATE: AtomicU32 = AtomicU32::new(NOT_YET);
const NOT_YET: u32 = 0;
const OPENING: u32 = 1;
const OPEN: u32 = 2;
const FAILED: u32 = 3;

/// Most bytes of memory that a program's own recorder takes.
pub const BUDGET_BYTES: usize = 64 << 20;

/// Makes the memory to count in, the first time. False if there is none.
pub fn begin() -> bool {
    match STATE.compare_exchange(NOT_YET, OPENING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
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
        Err(OPENING) => {
            // Another thread is about to have it; or this one, below a signal handler.
            wait::wait_until(|| STATE.load(Ordering::Acquire) != OPENING);
            STATE.load(Ordering::Acquire) == OPEN
        }
        Err(state) => state == OPEN,
    }
}
