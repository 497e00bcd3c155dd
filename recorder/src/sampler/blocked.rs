//! All signals, blocked for as long as something is done that no handler on the same thread may come between.
//!
//! Called from: the sampler, on any thread. May: set the thread's mask of signals. May not: allocate.

use capture::syscall;

/// All signals, blocked on the calling thread until this is dropped there.
pub(super) struct Blocked {
    /// Signals that the thread blocked before.
    before: u64,
}

impl Blocked {
    pub(super) fn new() -> Self {
        Self { before: syscall::set_signal_mask(u64::MAX) }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        syscall::set_signal_mask(self.before);
    }
}
