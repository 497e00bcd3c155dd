//! What a person reads when something cannot be done: one line that says what, where, and what to do.

use std::fmt::Display;
use std::io::{Write, stderr};

/// Why nothing came of it.
#[derive(Debug)]
pub(crate) struct Error {
    exit_code: u8,
    line: String,
}

impl Error {
    /// The command line asks for something that there is not.
    pub(crate) fn usage(line: impl Into<String>) -> Self {
        Self { exit_code: 2, line: line.into() }
    }

    /// The world is not as it would have to be.
    pub(crate) fn failure(line: impl Into<String>) -> Self {
        Self { exit_code: 1, line: line.into() }
    }

    /// What the process ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Writes the line to standard error.
    pub(crate) fn print(&self) {
        say("error", &self.line);
    }

    /// The line without what `print` puts before it.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }
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
