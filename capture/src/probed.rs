//! Reading memory of the process that may not be there.
//!
//! Called from: hooks and handlers. [`Probed`] asks for each page once by a system call that fails softly, then reads directly: a seventh of what a copy by the kernel costs. Only
//! memory that somebody takes away between the two could fault; a live frame leads to everything that is read so. Where nothing keeps the memory (the headers of an object that
//! another thread may be closing), [`Copied`] has the kernel read.
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

/// Bytes that are copied at once: the headers of most objects, and little of a small stack.
const PIECE: usize = 1024;

/// Reads through the kernel, a piece at a time, so that memory may vanish at any moment. Where the kernel refuses (a filter of system calls), as [`Probed`].
#[derive(Debug)]
pub struct Copied {
    start: u64,
    length: usize,
    bytes: [u8; PIECE],
    otherwise: Probed,
}

impl Copied {
    /// Has copied nothing yet.
    pub const fn new() -> Self {
        Self { start: 0, length: 0, bytes: [0; PIECE], otherwise: Probed::new() }
    }

    fn piece<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.bytes.get(..self.length)?.get(at..at.checked_add(N)?)?.try_into().ok()
    }
}

impl Default for Copied {
    fn default() -> Self {
        Self::new()
    }
}

impl Source for Copied {
    fn read<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        if let Some(bytes) = self.piece(address) {
            return Some(bytes);
        }
        // No further than the page: what follows it may not be there.
        let rest = PAGE - address % PAGE;
        let wanted = if rest < N as u64 { N } else { PIECE.min(rest as usize) };
        self.start = address;
        match syscall::copy_memory(address, self.bytes.get_mut(..wanted)?) {
            Ok(copied) => self.length = copied,
            Err(_) => {
                self.length = 0;
                return Source::read(&mut self.otherwise, address);
            }
        }
        self.piece(address)
    }
}

impl Memory for Copied {
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
        let mut copied = Copied::new();
        assert_eq!(Source::read::<4>(&mut probed, start + PAGE - 2), Some([1, 2, 3, 4]));
        assert_eq!(Source::read(&mut copied, start + PAGE - 2), Some([1, 2, 3, 4]));
        assert_eq!(Source::read(&mut copied, start + PAGE - 1), Some([2, 3]));
        assert_eq!(Source::read(&mut copied, start), Some([0]));
        assert_eq!(Source::read(&mut copied, start + PAGE - 2), Some([1, 2]));
        assert_eq!(Source::read(&mut copied, start + 2 * PAGE - 1), Some([0]));
        // Closed, not unmapped: another thread's memory could come to lie there.
        // SAFETY: the mapping is ours, and nobody reads it directly from here on.
        unsafe { syscall::protect(start, mapping.length(), 0) }.unwrap();
        let mut probed = Probed::new();
        assert_eq!(Source::read::<4>(&mut probed, start + PAGE - 2), None);
        // The piece that was copied is kept, the page is not asked for again.
        assert_eq!(Source::read(&mut copied, start + 2 * PAGE - 1), Some([0]));
        assert_eq!(Source::read::<4>(&mut copied, start + PAGE - 2), None);
        assert_eq!(Source::read::<1>(&mut copied, start), None);
        for nonsense in [0, 1, u64::MAX, u64::MAX - 8, 1 << 47, 0x8000_0000_0000_0000] {
            assert_eq!(Memory::read(&mut probed, nonsense), None);
            assert_eq!(Source::read::<8>(&mut copied, nonsense), None);
        }
    }
}
