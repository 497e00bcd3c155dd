//! Walks from each instruction of code that runs in this process, against what its calls and returns tell.

mod instruction;
pub(crate) mod libraries;
pub(crate) mod report;
mod shadow;
pub(crate) mod stepper;
pub(crate) mod tally;
mod walk;
