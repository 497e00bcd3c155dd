//! Why there is no profile.

use crate::session::SessionError;
use std::fmt;
use std::time::Duration;

/// Why a recording that the program asked for did not happen, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    kind: RecordErrorKind,
    text: String,
}

/// What to do about a [`RecordError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordErrorKind {
    /// A setting is out of its range, or does not go with another: change it.
    Setting,
    /// A recording runs that cannot be shared, at another rate or interval: use the same, or come again after this time.
    Busy(Duration),
    /// This process cannot record that: its kernel or its limits refuse memory, threads, timers or signals.
    Unavailable,
}

impl RecordError {
    pub(super) fn setting(text: String) -> Self {
        Self { kind: RecordErrorKind::Setting, text }
    }

    pub(super) fn unavailable(text: String) -> Self {
        Self { kind: RecordErrorKind::Unavailable, text }
    }

    pub(super) fn bug() -> Self {
        Self::unavailable("the recording ended by a bug of the recorder".to_owned())
    }

    /// What to do about it.
    pub const fn kind(&self) -> RecordErrorKind {
        self.kind
    }
}

impl From<SessionError> for RecordError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Busy { retry_after } => Self {
                kind: RecordErrorKind::Busy(retry_after),
                text: "another recording is running that cannot be shared".to_owned(),
            },
            SessionError::Unavailable(reason) => Self::unavailable(reason),
            SessionError::Cancelled => Self::unavailable("the recording was cut off".to_owned()),
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot record: {}", self.text)
    }
}

impl std::error::Error for RecordError {}
