//! Layout of the store: what a recorded process writes and what its readers find.
//!
//! The store is one contiguous region: private memory of the recorded process, or a file that `profrec record` reads
//! during the run or after it, however the run ended. Everything is little-endian and naturally aligned.
//!
//! ```text
//! byte 0            8192                     header.data_offset
//! | Header ... pad | directory: u64 a chunk | chunk | chunk | ...           each chunk is CHUNK bytes
//! ```
//!
//! A chunk holds records of one kind; its directory entry names the kind and the thread that fills it. A [`RecordId`] is the
//! byte offset of a record divided by 16, so one `u32` names any record in 64 GiB, and 0 (inside the header) names none.
//! Records are published by writing the field documented as *last*; a reader skips records whose field is still zero.
//!
//! This crate has no unsafe code, no allocation and no system calls: the definition cannot do anything else.
#![no_std]
#![forbid(unsafe_code)]

mod frame;
mod function;
mod labels;
mod live;
mod read;
mod record;

pub use frame::{AVMA_BITS, Frame, Lost, ModuleIndex, Pseudo, Root, State, Truncated, Unfollowed};
pub use function::{FUNCTIONS, Function};
pub use labels::{LabelText, Labels, MOST_LABEL_BYTES, text_length as label_text_length};
pub use live::{LIVE_GRAIN, Live, most_live_bytes};
pub use read::{BadStore, View};
pub use record::{
    AllocValues, AllocValuesFields, Called, CalledFields, Chunk, ChunkKind, Field, Header, HeaderFields, Module,
    ModuleFields, Node, NodeFields, Record, RecordId, STOPPED_OFFSET, Thread, ThreadFields, TimeSample,
    TimeSampleFields, TimeValues, TimeValuesFields,
};

/// First eight bytes of every store.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PROFRECS");
/// Version of this layout; a reader refuses any other.
pub const VERSION: u32 = 6;
/// Bytes of a chunk.
pub const CHUNK: usize = 4096;
/// Byte offset of the chunk directory.
pub const DIRECTORY_OFFSET: usize = 8192;
/// Fraction bits of object counts (`*_q16`): a sampled allocation stands for a fractional number of objects.
pub const OBJECTS_FRACTION_BITS: u32 = 16;

/// Bits of [`Header`]'s `modes`: what the process was asked to record.
pub mod modes {
    /// Exact counters of every allocation function, no stacks.
    pub const STAT: u32 = 1;
    /// Allocations with their stacks.
    pub const ALLOCS: u32 = 2;
    /// Frees too, so that live memory is known (implies [`ALLOCS`]).
    pub const HEAP: u32 = 4;
    /// CPU time with stacks.
    pub const CPU: u32 = 8;
    /// Elapsed time of every thread with stacks.
    pub const WALL: u32 = 16;
}
