//! Thread stacks: where they are, and reading within them.
//!
//! Called from: hooks and handlers.

mod memory;

pub use memory::{Bounds, StackMemory, at_distance, distance_of};

use crate::{maps, syscall};

/// The kernel's name for the first thread's stack.
const STACK: &[u8] = b"[stack]";

impl Bounds {
    /// Range of the calling thread's stack, by the kernel's list of mappings. `sp` is where the thread is: on that stack, or on another (of a coroutine, a signal).
    ///
    /// The C library puts a thread's control block, to which the thread pointer points, at the top of the thread's stack; the first thread's stack has a name.
    /// `pthread_getattr_np` would allocate, and deadlocks a starting Rust program whose std calls it.
    pub fn of_current_thread(sp: u64) -> Self {
        let top = syscall::thread_pointer().unwrap_or(0);
        let (mut here, mut named, mut below_top) = (Self::default(), Self::default(), Self::default());
        maps::each(|line| {
            let bounds = Self::of_mapping(line);
            if bounds.contains(sp) {
                here = bounds;
            }
            if line.path == STACK {
                named = bounds;
            } else if bounds.contains(top) && line.writable && line.path.is_empty() {
                // Adjacent mappings are listed as one.
                below_top = Self { high: top, ..bounds };
            }
            true
        });
        let is_first = || syscall::gettid() == syscall::getpid();
        match () {
            () if below_top.contains(sp) => below_top,
            () if named.contains(sp) => named,
            () if is_first() && named.high != 0 => named,
            () if !is_first() && below_top.high != 0 => below_top,
            // A thread that the C library did not make.
            () => here,
        }
    }

    /// The mapping that an address lies in: the stack of a thread whose control block is elsewhere, where the thread is on it.
    pub fn around(sp: u64) -> Self {
        let mut around = Self::default();
        maps::each(|line| {
            let bounds = Self::of_mapping(line);
            if bounds.contains(sp) {
                around = bounds;
            }
            around.high == 0
        });
        around
    }

    fn of_mapping(line: &maps::Line<'_>) -> Self {
        /// Farther down there is something else, whatever the limit.
        const MOST: u64 = 1 << 40;
        let mut low = line.start;
        if line.path == STACK {
            // Grows on demand, down to its limit.
            low = low.min(line.end.saturating_sub(syscall::stack_limit().min(MOST)));
        }
        Self { low, high: line.end }
    }
}
