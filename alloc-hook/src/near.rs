//! What the entry points read on most calls, together.
//!
//! The host's data has the processor's first cache and its translations of addresses, and each line and page that a call needs besides may be one less for it: this is one page, of which a call reads a line
//! or two.

use crate::live;
use crate::next::Next;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64};

/// As [`NEAR`]. Aligned to its size, so that it lies in one page.
#[derive(Debug)]
#[repr(C, align(1024))]
pub struct Near {
    /// Whether any of 16 neighbouring cells of `live::COUNTS` is in use, perhaps: what most frees ask first. A word for each shard, written under its lock, and in it a bit for each sixteen.
    pub occupied: [AtomicU64; live::SHARDS],
    /// The next allocator's functions; null where it has none.
    pub next: Next,
    /// Where `malloc_usable_size` may leave for: the next one, once it is known that no block is one of ours. Programs that count what they use ask it for every block.
    pub sizes: AtomicPtr<c_void>,
    /// 1: nothing is recorded in this process, and nothing will be; `malloc`, `calloc`, `realloc` and `free` may go straight to the next allocator's.
    pub idle: AtomicU8,
}

const _: () = assert!(size_of::<Near>() == align_of::<Near>());

/// There is one.
pub static NEAR: Near = Near {
    occupied: [const { AtomicU64::new(0) }; live::SHARDS],
    next: Next::new(),
    sizes: AtomicPtr::new(core::ptr::null_mut()),
    idle: AtomicU8::new(0),
};
