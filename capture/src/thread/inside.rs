//! The guard of the allocation hooks.

use super::{Recording, ThreadState};
use crate::kept::Sites;
use core::sync::atomic::Ordering;

/// Proof that the calling thread is inside the recorder: what it allocates now is the recorder's own.
#[derive(Debug)]
pub struct Inside<'a> {
    pub(super) state: &'a ThreadState,
}

impl Inside<'_> {
    /// What the thread's allocation hook uses, and what it keeps from one allocation to the next.
    #[inline]
    pub fn recording(&mut self) -> (&mut Recording, &mut Sites) {
        // SAFETY: the guard is exclusive for its thread, and the handler has a recording of its own.
        let (recording, sites) = unsafe { (&mut *self.state.hook.get(), &mut *self.state.sites.get()) };
        recording.labels = self.state.label_set();
        (recording, sites)
    }

    /// The thread.
    pub fn state(&self) -> &ThreadState {
        self.state
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        self.state.inside.store(0, Ordering::Relaxed);
    }
}
