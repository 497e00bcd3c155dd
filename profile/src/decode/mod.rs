//! Formats in: strict about what they read, bounded in what they unpack.

pub mod collapsed;
pub mod pprof;

use std::fmt;

/// How much a decoder takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file, after decompression. The profile in memory can be some ten times that.
    pub bytes: usize,
}

impl Default for Limits {
    /// 512 MiB.
    fn default() -> Self {
        Self { bytes: 512 << 20 }
    }
}

/// What kind of trouble a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeErrorKind {
    /// Its contents contradict the format.
    Corrupt,
    /// It is larger than [`Limits`] allow.
    TooLarge,
}

/// Why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    kind: DecodeErrorKind,
    text: String,
}

impl DecodeError {
    /// What kind of trouble it is.
    pub const fn kind(&self) -> DecodeErrorKind {
        self.kind
    }

    fn corrupt(text: impl Into<String>) -> Self {
        Self { kind: DecodeErrorKind::Corrupt, text: text.into() }
    }

    fn too_large(limits: Limits) -> Self {
        Self { kind: DecodeErrorKind::TooLarge, text: format!("more than {} bytes", limits.bytes) }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for DecodeError {}
