//! Allocation hooks: one core behind two doors, the [`RecordingAllocator`] and the malloc family.
//!
//! Called from: wherever the host allocates, before its constructors and after its destructors included. May: what [`capture`] may. May not: allocate
//! through the host, take a lock of the host, panic, touch errno. An allocation is recorded after it was obtained, a free before the memory is released.
//! The recorder's own allocations are recognised by the guard ([`capture::thread::Inside`]) and never appear.
#![no_std]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod counting;
pub mod doors;
pub mod family;
pub mod fast;
pub mod imports;
pub mod linked;
pub mod marks;
pub mod near;
pub mod next;
#[cfg(feature = "oracle")]
pub mod oracle;
pub mod own_heap;
pub mod record;
pub mod thread_end;

mod bootstrap;
mod counted;
mod live;
mod registers;
mod rust;
mod sampling;

pub use rust::{RecordingAllocator, SystemAllocator};
