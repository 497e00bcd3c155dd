//! In-process CPU, wall-clock and allocation profiler for Linux services.
//!
//! Wrap the global allocator, start the server, and ask it for profiles while the program works:
//!
//! ```no_run
//! #[global_allocator]
//! static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();
//!
//! fn main() {
//! #   #[cfg(feature = "server")]
//!     let _server = profile_recorder::Server::from_env().start_or_warn(); // off unless the environment asks for it
//! }
//! ```
//!
//! Without a request nothing runs: no thread but the server's, no timer, no signal handler. See the repository's README for the variables, the endpoints and the
//! limits, and ARCHITECTURE.md for what happens inside.
#![deny(unsafe_code)]

pub mod alloc;
#[cfg(feature = "server")]
mod config;
#[cfg(feature = "server")]
mod engine;
mod follow;
#[cfg(feature = "server")]
mod forked;
#[cfg(feature = "server")]
mod health;
#[cfg(test)]
mod in_child;
pub mod labels;
#[cfg(feature = "server")]
mod last_thread;
#[cfg(feature = "server")]
mod limits;
mod lock;
#[cfg(feature = "server")]
mod log;
#[cfg(feature = "server")]
mod objects;
#[cfg(feature = "server")]
mod output;
#[cfg(feature = "server")]
mod own;
#[cfg(feature = "server")]
mod own_file;
#[doc(hidden)]
pub mod preload;
#[cfg(feature = "server")]
mod record;
#[cfg(feature = "server")]
mod registry;
#[cfg(feature = "server")]
mod resident;
#[cfg(feature = "server")]
mod rights;
#[cfg(feature = "server")]
mod room;
mod sampler;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod session;
#[cfg(feature = "server")]
mod snapshot;
mod start;
mod tables;
#[cfg(feature = "server")]
mod threads;

pub use alloc_hook::{RecordingAllocator, SystemAllocator};
#[cfg(feature = "server")]
pub use profile::{Format, SampleType};
#[cfg(feature = "criterion")]
pub use record::CriterionProfiler;
#[cfg(feature = "server")]
pub use record::{Profile, RecordError, RecordErrorKind, Recorder, Session};
#[cfg(all(feature = "server", fuzzing))]
#[doc(hidden)]
pub use server::fuzzed;
#[cfg(feature = "server")]
pub use server::{RouteAnswer, RouteRequest, Server, ServerBuilder, ServerInfo, StartError};
#[cfg(feature = "axum")]
pub use server::{router, router_with_page};
#[cfg(feature = "server")]
pub use session::Mode;
#[cfg(feature = "server")]
pub use symbolize::Detail;

/// The README's example is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
