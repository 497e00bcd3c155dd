//! What a person reads when something cannot be done: one line that says what, where, and what to do.

pub(crate) use ::agent::Error;

use std::fmt::Display;
use std::io::{Write, stderr};

/// Writes the error's line to standard error.
pub(crate) fn print(error: &Error) {
    say("error", error);
}

/// Tells of something that does not keep the work from going on.
pub(crate) fn warn(line: impl Display) {
    say("warning", line);
}

/// A closed standard error is nobody's failure.
fn say(kind: &str, line: impl Display) {
    let line = line.to_string().replace(['\n', '\r'], " ");
    let _ = writeln!(stderr(), "{kind}: {line}");
}
