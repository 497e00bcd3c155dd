//! The profile model of Profile Recorder, and every format in and out.
//!
//! A [`Profile`] is what was measured, as addresses in ELF files: it holds no pointer into the recorded process. [`Symbols`] are
//! the names of those addresses, found by somebody else, perhaps on another machine. [`store`] makes profiles of what a recorded
//! process wrote; [`encode`] writes them, [`decode`] reads them back. Nothing here asks the operating system for anything.
#![forbid(unsafe_code)]

mod aggregate;
mod bytes;
pub mod decode;
mod dense;
pub mod difference;
pub mod encode;
mod filter;
mod format;
mod frame;
mod glob;
mod import;
mod kind;
mod mapping;
mod merge;
mod mode;
mod named;
pub mod names;
mod profile;
mod proto;
mod raw;
mod sample;
mod scale;
pub mod sites;
mod sort;
mod stacks;
pub mod store;
pub mod symbols;
pub mod top;

pub use bytes::{BYTES_ALLOWED, parse_bytes};
pub use encode::{Growth, Options};
pub use format::{Format, UnknownFormat};
pub use frame::{AddressKey, AddressKind, Frame, Svma};
pub use glob::Glob;
pub use mapping::{Mapping, MappingId, Thread, ThreadId};
pub use mode::Mode;
pub use profile::Profile;
pub use sample::{Event, Label, LabelValue, Labels, Sample, SampleType, Values, values};
pub use stacks::{FrameId, StackId, Stacks};
pub use symbols::{SymbolFrame, Symbols};
