//! Private memory straight from the kernel, for what the store does not hold.
#![allow(unsafe_code)]

use crate::syscall::{advise, map, mm, populate, unmap};

/// Mappings of at least twice the size of a large page get some.
const LARGE: usize = 2 * LARGE_PAGE;
/// Bytes of one.
pub(crate) const LARGE_PAGE: usize = 2 << 20;

/// Anonymous zeroed memory, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    address: *mut u8,
    length: usize,
}

// SAFETY: the memory belongs to the value, like a box.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `length` bytes, rounded up to pages; `None` if the kernel refuses.
    pub fn new(length: usize) -> Option<Self> {
        let length = length.checked_next_multiple_of(4096)?;
        let address = map(length, mm::READ_WRITE, mm::ANONYMOUS, None).ok()?;
        if length >= LARGE {
            // Large tables are read all over: with small pages, each access would also miss the processor's cache of page addresses. A kernel that does not want to is no loss.
            // SAFETY: freshly mapped.
            let _ = unsafe { advise(address, length, mm::HUGE_PAGES) };
        }
        Some(Self { address, length })
    }

    /// The same for memory that is used all over from the beginning: its pages are there at once. Each by itself, when it is first touched, takes several times as long.
    pub fn new_whole(length: usize) -> Option<Self> {
        let mapping = Self::new(length)?;
        // A kernel before 5.14 has them come one by one.
        // SAFETY: freshly mapped.
        let _ = unsafe { populate(mapping.address, mapping.length) };
        Some(mapping)
    }

    /// The same in large pages, if the kernel has some, for a table so small that it would lie in a part of one. `length` is rounded up to them.
    pub fn new_in_large_pages(length: usize) -> Option<Self> {
        let length = length.checked_next_multiple_of(LARGE_PAGE)?;
        let whole = map(length.checked_add(LARGE_PAGE)?, mm::READ_WRITE, mm::ANONYMOUS, None).ok()?;
        let before = whole.addr().next_multiple_of(LARGE_PAGE) - whole.addr();
        // SAFETY: all of it is freshly mapped, and what lies before and behind is given back.
        let address = unsafe {
            let address = whole.add(before);
            unmap(address.add(length), LARGE_PAGE - before);
            if before != 0 {
                unmap(whole, before);
            }
            let _ = advise(address, length, mm::HUGE_PAGES);
            address
        };
        Some(Self { address, length })
    }

    /// First byte.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// Bytes mapped.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is ours, readable and writable, and borrowed for as long as the slice.
        unsafe { core::slice::from_raw_parts_mut(self.address, self.length) }
    }

    /// Keeps the memory for ever.
    pub fn leak(self) -> *mut u8 {
        let address = self.address;
        core::mem::forget(self);
        address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and the borrow checker knows of no more users.
        unsafe { unmap(self.address, self.length) };
    }
}

/// Asks for a cache line; does nothing that a program could see.
#[inline]
pub fn fetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, for any address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
