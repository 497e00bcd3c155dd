//! In-process CPU, wall-clock and allocation profiler for Linux services.
#![deny(unsafe_code)]

// The lead's modules: keep these lines when adding others.
#[cfg(feature = "server")]
mod config;
#[cfg(feature = "server")]
mod engine;
#[cfg(feature = "server")]
mod limits;
#[cfg(feature = "server")]
mod log;
#[cfg(feature = "server")]
mod mode;
#[cfg(feature = "server")]
mod own;
#[doc(hidden)]
pub mod preload;
#[cfg(feature = "server")]
mod registry;
mod sampler;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod session;
#[cfg(feature = "server")]
mod snapshot;
mod start;
mod tables;

pub use alloc_hook::RecordingAllocator;
#[cfg(feature = "server")]
pub use server::{Server, ServerBuilder, ServerInfo, StartError};
#[cfg(feature = "server")]
pub use session::Mode;
