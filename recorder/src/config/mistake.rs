//! A variable that cannot be understood.

use std::fmt;

/// Longest value that a message repeats, in characters.
const SHOWN: usize = 100;

/// What is wrong with a variable, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    variable: &'static str,
    value: Option<String>,
    reason: String,
}

impl Mistake {
    pub(crate) fn new(variable: &'static str, value: &str, reason: impl Into<String>) -> Self {
        Self { variable, value: Some(value.chars().take(SHOWN).collect()), reason: reason.into() }
    }

    /// For secrets: the value is not repeated.
    pub(crate) fn without_value(variable: &'static str, reason: impl Into<String>) -> Self {
        Self { variable, value: None, reason: reason.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.variable)?;
        if let Some(value) = &self.value {
            // Debug form: a value with a line break stays on one line.
            write!(f, "={value:?}")?;
        }
        write!(f, ": {}", self.reason)
    }
}
