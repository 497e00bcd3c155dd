//! Call frame information: what compilers and linkers write about each function in `.eh_frame` and `.debug_frame`.
//!
//! Called from: anywhere, a tick handler included. Nothing here allocates; the information is read through a [`Source`], byte by byte, since it belongs to the host
//! and may be anything. Each run executes one function's instructions, which are finite.
//! When something is malformed: `None`.
//!
//! The format is that of DWARF 5, section 6.4, with the GNU extensions that the Linux Standard Base 5.0 describes (core, section 10.6).

mod cursor;
mod entry;
mod execute;
mod expression;
mod header;
mod row;

pub use cursor::{Section, Source};
pub(crate) use entry::Cie;
pub use entry::SectionKind;
#[cfg(feature = "build")]
pub(crate) use entry::{Entry, Fde};
pub(crate) use execute::Executor;
pub use expression::Computed;
pub use header::{Description, Header};
pub(crate) use row::CallerRules;
#[cfg(feature = "build")]
pub(crate) use row::RowOf;
pub use row::{AllRules, Compile, Row, Saved};
