//! Programs that carry the library and listen: finding them, and asking them.

mod address;
mod client;
mod registry;

pub use address::Address;
pub use client::{Answer, Failure, Question, environment_token, get};
#[cfg(test)]
pub(crate) use registry::start_ticks;
pub use registry::{Recorder, recorders};
pub(crate) use registry::{of_directory, registries_of_all};
