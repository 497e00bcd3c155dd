//! Programs that carry the library and listen: finding them, and asking them.

mod address;
mod client;
mod list;
mod registry;
mod sample;

pub(crate) use address::Address;
pub(crate) use client::{Failure, get};
pub(crate) use list::list;
pub(crate) use sample::sample;
