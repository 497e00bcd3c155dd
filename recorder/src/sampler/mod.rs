//! Time sampling: timers, the tick handler, and what happens when threads come and go.

pub(crate) mod handler;
pub(crate) mod timers;

pub(crate) use timers::{forget, restart_in_child, thread_registered};
