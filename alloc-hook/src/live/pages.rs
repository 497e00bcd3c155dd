//! Memory for the groups of blocks that are recorded one beside the other.
#![allow(unsafe_code)]

use super::entry::WINDOWS;
use capture::mapping::Mapping;

/// What lives in each window of a group.
pub(super) type Page = [u64; WINDOWS];

/// Bytes of the first mapping; each further one has twice as many as the one before.
const FIRST_BYTES: usize = 4096;
const MAPPINGS: usize = 24;

/// Pages, given out and taken back one by one. Their memory stays: at most what all of them took at a time.
#[derive(Debug)]
pub(super) struct Pages {
    mappings: [Option<Mapping>; MAPPINGS],
    /// Mappings made.
    made: usize,
    /// Pages of the last mapping that were given out.
    given: usize,
    /// A page that was given back, whose first word is the address of the next.
    free: *mut Page,
}

impl Pages {
    pub(super) const fn new() -> Self {
        Self { mappings: [const { None }; MAPPINGS], made: 0, given: 0, free: core::ptr::null_mut() }
    }

    /// A page of zeros that is the caller's until it is given back; `None` without memory.
    pub(super) fn take(&mut self) -> Option<*mut Page> {
        if !self.free.is_null() {
            let page = self.free;
            // SAFETY: given back, so its memory is ours, and its first word was written then.
            unsafe {
                self.free = (*page)[0] as *mut Page;
                (*page)[0] = 0;
            }
            return Some(page);
        }
        let last = self.made.checked_sub(1).and_then(|last| self.mappings.get(last)?.as_ref());
        let last = match last {
            Some(mapping) if (self.given + 1) * size_of::<Page>() <= mapping.length() => mapping,
            _ => self.grow()?,
        };
        let page = last.address().cast::<Page>().wrapping_add(self.given);
        self.given += 1;
        Some(page)
    }

    #[cold]
    fn grow(&mut self) -> Option<&Mapping> {
        let place = self.mappings.get_mut(self.made)?;
        *place = Some(Mapping::new(FIRST_BYTES << self.made)?);
        self.made += 1;
        self.given = 0;
        place.as_ref()
    }

    /// Takes a page back whose words are zero.
    ///
    /// # Safety
    /// [`Pages::take`] gave it, and nobody uses it any more.
    pub(super) unsafe fn give_back(&mut self, page: *mut Page) {
        // SAFETY: as the caller promises.
        unsafe { (*page)[0] = self.free as u64 };
        self.free = page;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::HashSet;
    use std::vec::Vec;

    #[test]
    fn pages_are_empty_and_apart_and_come_back() {
        let mut pages = Pages::new();
        let mut mine = Vec::new();
        for round in 1..=3 {
            while mine.len() < 100 * round {
                let page = pages.take().unwrap();
                // SAFETY: it is ours.
                let words = unsafe { &mut *page };
                assert!(words.iter().all(|word| *word == 0));
                words.fill(u64::MAX);
                mine.push(page);
            }
            let distinct: HashSet<_> = mine.iter().collect();
            assert_eq!(distinct.len(), mine.len());
            for page in mine.drain(50..) {
                // SAFETY: it was taken, and is no longer used.
                unsafe {
                    *page = [0; WINDOWS];
                    pages.give_back(page);
                }
            }
        }
        let bytes: usize = pages.mappings.iter().flatten().map(Mapping::length).sum();
        assert!(bytes <= 2 * 300 * size_of::<Page>() + FIRST_BYTES, "{bytes}");
    }
}
