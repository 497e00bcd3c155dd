//! Programs that carry the library and listen: which there are, and a profile of one.

mod list;
mod sample;

pub(crate) use list::list;
pub(crate) use sample::sample;
