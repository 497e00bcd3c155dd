//! What a person reads when something cannot be done: one line that says what, where, and what to do.

use std::fmt;
use std::io;

/// Why nothing came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    exit_code: u8,
    line: String,
}

impl Error {
    /// The command line, or the configuration, asks for something that there is not.
    pub fn usage(line: impl Into<String>) -> Self {
        Self { exit_code: 2, line: line.into() }
    }

    /// The world is not as it would have to be.
    pub fn failure(line: impl Into<String>) -> Self {
        Self { exit_code: 1, line: line.into() }
    }

    /// What a process that fails with this ends with: 1, or 2 for a mistake in what was asked.
    pub const fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// What there is to say.
    pub fn line(&self) -> &str {
        &self.line
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Error {}

/// The system's words without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").or_else(|| text.find(" at path")).unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_lowercase()
}
