//! Time sampling: timers, the tick handler, threads that come and go, and looking at blocked threads from outside.

mod account;
pub(crate) mod action;
pub(crate) mod asking;
#[cfg(feature = "server")]
pub(crate) mod cpu;
pub(crate) mod effort;
#[cfg(feature = "server")]
mod ended;
#[cfg(feature = "server")]
mod entering;
pub(crate) mod guests;
pub(crate) mod handler;
#[cfg(feature = "server")]
mod outside;
#[cfg(feature = "server")]
mod parts;
mod passed;
#[cfg(feature = "server")]
mod prologue;
mod resume;
pub(crate) mod signal_stacks;
pub(crate) mod spent;
#[cfg(feature = "server")]
mod status;
#[cfg(feature = "server")]
pub(crate) mod tasks;
pub(crate) mod timers;
#[cfg(feature = "server")]
pub(crate) mod wall;

pub(crate) use timers::{forget, restart_in_child, thread_registered};

use capture::region::{self, LogCursor};
use layout::{Lost, RecordId};
use std::sync::atomic::Ordering;

/// Enters one time sample into the log of single samples, with its time by CLOCK_MONOTONIC. Called in handlers too.
fn log(log: &mut LogCursor, at_ns: u64, thread: RecordId, tid: u32, node: RecordId, weight_ns: u64) {
    let Some(sample) = log.allocate(thread) else {
        region::lose(Lost::LogFull, 1, weight_ns);
        return;
    };
    sample.thread.store(thread.0, Ordering::Relaxed);
    sample.monotonic_ns.store(at_ns, Ordering::Relaxed);
    sample.weight_ns.store(weight_ns, Ordering::Relaxed);
    sample.tid.store(tid, Ordering::Relaxed);
    sample.node.store(node.0, Ordering::Release);
}
