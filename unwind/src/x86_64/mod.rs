//! What differs on x86_64.

mod code;
mod compile;
mod form;
mod pieces;
mod registers;
#[cfg(test)]
mod tests;

pub use code::{PERF_TRAMPOLINE, SIGNAL_FRAME, rule_from_code, rule_without_frame};
pub use form::{Base, Cfa, Form, FramePointer};
pub use pieces::rule_of_piece;
pub use registers::Registers;
