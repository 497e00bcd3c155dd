//! The agent of Profile Recorder: collects from every process of a machine that carries the library, writes files and sends to the engines that teams run.
//!
//! ```text
//! recorders, discover   which processes there are, and asking one
//! cycle                 all of them for a minute, then again
//! collect, names        what they answered: to sinks as it is, to files by names, all processes in one
//! queue, sinks          what waits to be sent, and who takes it
//! settings, run         what was asked for, and the life of the agent
//! ```
//!
//! One thread waits for all recorders, one reads what they answer, and each sink has one that sends. What is in memory at one time is bounded by the number of
//! answers that are read at once; everything that waits is on disk.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod collect;
mod cycle;
mod discover;
mod error;
mod files;
mod health;
mod logs;
mod machine;
mod names;
mod output;
mod overhead;
mod process;
mod push;
mod queue;
pub mod recorders;
mod run;
pub mod settings;
mod sinks;
mod stats;

pub use error::{Error, reason};
pub use push::{Push, push};
pub use queue::Account;
pub use run::{check, run};
