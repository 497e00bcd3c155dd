//! Bounds of thread stacks, and reading within them.
//!
//! Called from: hooks and handlers. Reads stay in the known range of the thread's stack; elsewhere (fibers, alternate stacks) each page is probed once
//! before it is read, never a frame, and never by a SIGSEGV handler.
#![allow(unsafe_code)]

use crate::probed::Probed;
use crate::{maps, tls};
use unwind::Memory;

/// Range of a thread's stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Lowest address it may come to.
    pub low: u64,
    /// End.
    pub high: u64,
}

impl Bounds {
    /// Whether an address lies in the range.
    #[inline]
    pub fn contains(self, address: u64) -> bool {
        self.low <= address && address < self.high
    }

    /// Range of the calling thread's stack, found from the address `sp` on it, by the kernel's list of mappings.
    ///
    /// `pthread_getattr_np` would allocate, and deadlocks a starting Rust program whose std calls it.
    pub fn of_current_thread(sp: u64) -> Self {
        /// A main thread's stack grows on demand down to its limit; nothing else is mapped there.
        const GROWTH: u64 = 8 << 20;
        let mut bounds = Self::default();
        maps::each(|line| {
            if sp < line.start || line.end <= sp {
                return true;
            }
            let growth = if line.path == b"[stack]" { GROWTH } else { 0 };
            bounds = Self { low: line.start.saturating_sub(growth), high: line.end };
            false
        });
        // Adjacent mappings are listed as one: the thread control block marks the top of a stack that glibc made.
        let top = tls::thread_pointer();
        if bounds.contains(top) && top > sp {
            bounds.high = top;
        }
        bounds
    }
}

/// Reads words of the calling thread's stack.
#[derive(Debug)]
pub struct StackMemory {
    /// Nothing below the stack pointer is read.
    low: u64,
    /// Bytes from there in which a word may begin.
    span: u64,
    elsewhere: Probed,
}

impl StackMemory {
    /// Memory of a walk that starts at `sp`, on a thread whose stack is `bounds`.
    #[inline]
    pub fn new(bounds: Bounds, sp: u64) -> Self {
        let known = bounds.contains(sp) && bounds.high - sp >= 8;
        let (low, span) = if known { (sp, bounds.high - sp - 7) } else { (0, 0) };
        Self { low, span, elsewhere: Probed::new() }
    }

    #[inline]
    fn is_known(&self, address: u64) -> bool {
        address.wrapping_sub(self.low) < self.span
    }
}

impl Memory for StackMemory {
    #[inline]
    fn read(&mut self, address: u64) -> Option<u64> {
        if !self.is_known(address) && !self.elsewhere.is_readable(address, 8) {
            return None;
        }
        // SAFETY: within the stack between its pointer and its top, which is mapped while the thread runs, or on pages that were just readable.
        Some(unsafe { core::ptr::read_unaligned(address as *const u64) })
    }
}
