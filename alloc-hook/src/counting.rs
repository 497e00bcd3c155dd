//! Counting from a program's first allocation on, behind Rust's door: before there is a recorder that asks for anything.
//!
//! Called from: the first calls of the process. May: make system calls. There is no thread, no timer, no signal handler and no table: only memory to count in.

use crate::{fast, thread_end};
use capture::region::{self, Purpose};
use capture::{live, syscall, thread, wait};
use core::sync::atomic::{AtomicU32, Ordering};
use layout::Live;

static OPENING: Opening = Opening::new();

/// Most bytes of memory that a program's own recorder takes.
pub const BUDGET_BYTES: usize = 64 << 20;

/// Makes the memory to count in, the first time. False if there is none.
pub fn begin() -> bool {
    OPENING.open_once(|| {
        let purpose = Purpose { modes: 0, budget_bytes: BUDGET_BYTES, alloc_interval_bytes: 0, period_ns: 0 };
        let open = region::open(&purpose, None).is_ok();
        if open {
            live::set_kind(Live::Requested);
            fast::rearrange();
            thread_end::set_up();
            thread::set_on_register(thread_end::watch);
        }
        open
    })
}

/// What one thread opens, once; others wait for it, but not that thread itself below a signal handler.
struct Opening(
    /// The thread that is about to, by the kernel's number, or one of these.
    AtomicU32,
);

const NOT_YET: u32 = 0;
const OPEN: u32 = u32::MAX;
const FAILED: u32 = u32::MAX - 1;

impl Opening {
    const fn new() -> Self {
        Self(AtomicU32::new(NOT_YET))
    }

    /// Whether it is open, after that.
    fn open_once(&self, open: impl FnOnce() -> bool) -> bool {
        let mut state = self.0.load(Ordering::Acquire);
        if state == NOT_YET {
            match self.0.compare_exchange(NOT_YET, syscall::gettid(), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    let is_open = open();
                    self.0.store(if is_open { OPEN } else { FAILED }, Ordering::Release);
                    return is_open;
                }
                Err(meanwhile) => state = meanwhile,
            }
        }
        match state {
            OPEN => true,
            FAILED => false,
            opener => opener != syscall::gettid() && self.is_open_after(opener),
        }
    }

    fn is_open_after(&self, opener: u32) -> bool {
        // That thread is not there in a child that another one forked meanwhile: it is waited for once.
        if !wait::wait_until(|| self.0.load(Ordering::Acquire) != opener) {
            let _ = self.0.compare_exchange(opener, FAILED, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.0.load(Ordering::Acquire) == OPEN
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn threads_that_come_at_once_find_it_open_and_one_opens_it() {
        for _ in 0..3_000 {
            let (opening, times, together) = (Opening::new(), AtomicU32::new(0), Barrier::new(3));
            let come = || {
                together.wait();
                assert!(opening.open_once(|| times.fetch_add(1, Ordering::Relaxed) == 0));
            };
            std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(come))));
            assert!(opening.open_once(|| unreachable!()));
            assert_eq!(times.into_inner(), 1);
        }
    }

    #[test]
    fn the_thread_that_opens_it_does_not_wait_for_itself() {
        let opening = Opening::new();
        assert!(opening.open_once(|| !opening.open_once(|| unreachable!())));
    }

    #[test]
    fn a_thread_that_is_not_there_is_waited_for_once() {
        let opening = Opening(AtomicU32::new(FAILED - 1));
        assert!(!opening.open_once(|| unreachable!()));
        assert_eq!(opening.0.load(Ordering::Relaxed), FAILED);
    }
}
