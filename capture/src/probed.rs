//! Reading memory of the process that may not be there.
//!
//! Called from: hooks and handlers. Each page is asked for once by a system call that fails softly, then read directly: a seventh of what a copy by the kernel costs. Only
//! memory that somebody takes away between the two could fault; a live frame leads to everything that is read here.
#![allow(unsafe_code)]

use crate::syscall;
use unwind::Memory;
use unwind::cfi::Source;

const PAGE: u64 = 4096;

/// Remembers the pages that were found readable last.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    pages: [u64; 2],
}

impl Probed {
    /// Has asked for nothing yet.
    pub const fn new() -> Self {
        Self { pages: [u64::MAX; 2] }
    }

    /// Whether the bytes, at most a page of them, can be read.
    #[inline]
    pub fn is_readable(&mut self, address: u64, bytes: u64) -> bool {
        let last = address.wrapping_add(bytes).wrapping_sub(1);
        self.is_page_readable(address & !(PAGE - 1)) && self.is_page_readable(last & !(PAGE - 1))
    }

    #[inline]
    fn is_page_readable(&mut self, page: u64) -> bool {
        self.pages[0] == page || self.is_page_readable_slow(page)
    }

    #[cold]
    fn is_page_readable_slow(&mut self, page: u64) -> bool {
        // The low pages and the kernel's half are never ours, and a wrapped address is nonsense.
        let readable = self.pages[1] == page || ((0x10000..1 << 47).contains(&page) && syscall::is_readable(page));
        if !readable {
            return false;
        }
        self.pages = [page, self.pages[0]];
        true
    }
}

impl Default for Probed {
    fn default() -> Self {
        Self::new()
    }
}

impl Source for Probed {
    #[inline]
    fn read<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        if !self.is_readable(address, N as u64) {
            return None;
        }
        // SAFETY: both pages that the bytes can lie on were readable a moment ago.
        Some(unsafe { core::ptr::read_unaligned(address as *const [u8; N]) })
    }
}

impl Memory for Probed {
    fn read(&mut self, address: u64) -> Option<u64> {
        Source::read(self, address).map(u64::from_ne_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_not() {
        let mut mapping = Mapping::new(2 * PAGE as usize).unwrap();
        mapping.bytes_mut()[PAGE as usize - 2..][..4].copy_from_slice(&[1, 2, 3, 4]);
        let start = mapping.address() as u64;
        let mut probed = Probed::new();
        assert_eq!(Source::read::<4>(&mut probed, start + PAGE - 2), Some([1, 2, 3, 4]));
        drop(mapping);
        let mut probed = Probed::new();
        assert_eq!(Source::read::<4>(&mut probed, start + PAGE - 2), None);
        for nonsense in [0, 1, u64::MAX, u64::MAX - 8, 1 << 47, 0x8000_0000_0000_0000] {
            assert_eq!(Memory::read(&mut probed, nonsense), None);
        }
    }
}
