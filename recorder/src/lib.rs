//! In-process CPU, wall-clock and allocation profiler for Linux services.
#![deny(unsafe_code)]

// The lead's modules: keep these lines when adding others.
#[doc(hidden)]
pub mod preload;
mod sampler;
mod start;
mod tables;

pub use alloc_hook::RecordingAllocator;
