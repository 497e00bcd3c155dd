//! Tokens and passwords, which nothing prints.

use crate::{Error, reason};
use serde::Deserialize;
use std::fmt;
use std::path::Path;

/// A text that is sent and never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for a request.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The secret as it was given, or as a file holds it.
pub(super) fn read(given: Option<Secret>, file: Option<&Path>) -> Result<Option<Secret>, Error> {
    let secret = match (given, file) {
        (Some(_), Some(file)) => {
            return Err(Error::usage(format!("a secret is given twice: itself, and as '{}'", file.display())));
        }
        (given, None) => given,
        (None, Some(file)) => {
            Some(Secret(std::fs::read_to_string(file).map(|text| text.trim().to_owned()).map_err(|e| {
                Error::failure(format!("cannot read the secret in '{}': {}", file.display(), reason(&e)))
            })?))
        }
    };
    // It becomes a part of a header.
    match secret {
        Some(Secret(text)) if text.is_empty() || text.contains(|c: char| c.is_control()) => {
            Err(Error::usage("a token or password is empty or has control characters"))
        }
        secret => Ok(secret),
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}
