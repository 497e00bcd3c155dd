//! Memory of the process, as the kernel copies it: only what the bytes say is there.

use std::cell::RefCell;
use unwind::cfi::Source;

thread_local! {
    static MEMORY: RefCell<(u64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
}

/// From now on, these bytes lie at this address and nothing else lies anywhere.
pub(crate) fn set(address: u64, bytes: &[u8]) {
    MEMORY.set((address, bytes.to_vec()));
}

#[derive(Clone, Copy)]
pub(crate) struct Copied;

impl Copied {
    pub(crate) fn new() -> Self {
        Self
    }
}

impl Source for Copied {
    fn read<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        MEMORY.with_borrow(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..)?.first_chunk().copied()
        })
    }
}
