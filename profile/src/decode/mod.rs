//! Formats in: strict about what they read, bounded in what they unpack.

pub mod col;
pub mod collapsed;
pub mod dhat;
pub mod heaptrack;
pub mod perf;
mod pieces;
pub mod pprof;
pub mod raw;
mod unpack;
mod wire;

use crate::raw::MAGIC;
use crate::{Profile, SampleType, Symbols};
use std::fmt;
use unpack::unpack;

/// A file format that profiles can be read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Readable {
    /// Our own, `.profrec`.
    Raw,
    /// pprof.
    Pprof,
    /// What `perf script` prints.
    Perf,
    /// gProfiler's `.col`.
    Col,
    /// Collapsed stacks.
    Collapsed,
    /// JSON of DHAT.
    Dhat,
    /// heaptrack's files.
    Heaptrack,
}

impl Readable {
    /// Every format that can be read.
    pub const ALL: [Self; 7] =
        [Self::Raw, Self::Pprof, Self::Perf, Self::Col, Self::Collapsed, Self::Dhat, Self::Heaptrack];

    /// The name of the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Pprof => "pprof",
            Self::Perf => "perf",
            Self::Col => "col",
            Self::Collapsed => "collapsed",
            Self::Dhat => "dhat",
            Self::Heaptrack => "heaptrack",
        }
    }

    /// The format that bytes which are not compressed are in, by what they begin with. Bytes that look like no other are taken for pprof if they
    /// are no text, else for collapsed stacks.
    pub fn of(bytes: &[u8]) -> Self {
        let beginning = bytes.get(..BEGINNING).unwrap_or(bytes);
        if bytes.starts_with(MAGIC) {
            Self::Raw
        } else if col::is_one(beginning) {
            Self::Col
        } else if beginning.trim_ascii_start().starts_with(b"{") {
            Self::Dhat
        } else if heaptrack::is_one(beginning) {
            Self::Heaptrack
        } else if beginning.iter().any(|byte| matches!(byte, 0..=8 | 14..=31)) {
            Self::Pprof
        } else if perf_like(beginning) {
            Self::Perf
        } else {
            Self::Collapsed
        }
    }

    /// Reads bytes that are not compressed.
    fn decode(self, bytes: &[u8], limits: Limits) -> Result<(Profile, Symbols), DecodeError> {
        let without_names = |profile| (profile, Symbols::new());
        match self {
            Self::Raw => raw::decode(bytes, limits),
            Self::Pprof => pprof::decode(bytes, limits),
            Self::Perf => perf::decode(bytes, limits),
            Self::Col => col::decode(bytes, limits).map(without_names),
            Self::Collapsed => collapsed::decode(bytes, SampleType::new("samples", "count"), limits).map(without_names),
            Self::Dhat => dhat::decode(bytes, limits),
            Self::Heaptrack => heaptrack::decode(bytes, limits),
        }
    }
}

/// Bytes by which a format is told.
const BEGINNING: usize = 4096;

/// Whether the first entry of a text has frames below it, indented.
fn perf_like(beginning: &[u8]) -> bool {
    let mut lines = beginning.split(|byte| *byte == b'\n').skip_while(|line| line.is_empty() || line.starts_with(b"#"));
    let first = lines.next().unwrap_or_default();
    let has_event = first.trim_ascii_end().split(u8::is_ascii_whitespace).any(|word| word.ends_with(b":"));
    let next = lines.next().unwrap_or_default();
    has_event && (next.is_empty() || next.starts_with(b"\t") || next.starts_with(b" "))
}

/// Reads a file of any format that can be read, compressed with gzip or zstd or not: what was measured, and the names it carries.
///
/// The format is told by the contents. Collapsed stacks do not say what they count; they are taken for samples.
pub fn read(bytes: &[u8], limits: Limits) -> Result<(Profile, Symbols), DecodeError> {
    if unpack::beginning(bytes).is_some_and(|beginning| Readable::of(&beginning) == Readable::Pprof) {
        // It is not unpacked as a whole.
        return pprof::decode(bytes, limits);
    }
    let bytes = unpack(bytes, limits)?;
    Readable::of(&bytes).decode(&bytes, limits)
}

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

    fn damaged_gzip(error: std::io::Error) -> Self {
        Self::corrupt(format!("damaged gzip data: {error}"))
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
