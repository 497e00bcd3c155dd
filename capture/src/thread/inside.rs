//! The guard of the allocation hooks.
#![allow(unsafe_code)]

use super::{Recording, ThreadState};
use crate::kept::Sites;
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// What lies in the frame of a hook that is inside the recorder, as long as that frame is there.
#[derive(Debug, Default)]
pub struct Mark(AtomicU64);

impl Mark {
    /// What it is at an address: not that itself, as an empty list has it.
    #[inline(always)]
    const fn at(address: u64) -> u64 {
        !address
    }

    /// One that says nothing yet.
    #[inline(always)]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Its address, from where it is known from now on.
    #[inline(always)]
    pub(super) fn set(&self) -> u64 {
        let at = core::ptr::from_ref(self).expose_provenance() as u64;
        self.0.store(Self::at(at), Ordering::Relaxed);
        // A handler finds it where it is said to be.
        compiler_fence(Ordering::SeqCst);
        at
    }

    /// Whether one lies at an address.
    ///
    /// # Safety
    /// Memory can be read there, as words are aligned.
    pub(super) unsafe fn is_at(address: u64) -> bool {
        let at = core::ptr::with_exposed_provenance::<u64>(address as usize);
        // SAFETY: as the caller promises.
        unsafe { at.read_volatile() == Self::at(address) }
    }
}

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
        compiler_fence(Ordering::SeqCst);
        self.state.inside.store(0, Ordering::Relaxed);
        // The mark's place is another's from here on.
        compiler_fence(Ordering::SeqCst);
    }
}
