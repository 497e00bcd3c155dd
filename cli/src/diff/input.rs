//! Files to compare: profiles of any readable format, and what `stat --json` wrote.

use super::metric::Counted;
use crate::error::Error;
use crate::pending::reason;
use profile::decode::{self, Limits};
use profile::{Profile, SampleType, Symbols};
use std::path::Path;

/// What a file holds.
#[derive(Debug)]
pub(super) enum Input {
    /// A profile, with the names it carries.
    Profile(Box<(Profile, Symbols)>),
    /// Counters without stacks.
    Counts(Vec<Counted>),
}

/// Reads a file; the format is known by its contents.
pub(super) fn read(path: &Path) -> Result<Input, Error> {
    let cannot = |why: &str| Error::failure(format!("cannot read '{}': {why}", path.display()));
    let bytes = std::fs::read(path).map_err(|e| cannot(&reason(&e)))?;
    if bytes.is_empty() {
        return Err(cannot("the file is empty; was it written to its end?"));
    }
    if bytes.trim_ascii_start().starts_with(b"{") {
        return Counted::all(&bytes).map(Input::Counts).map_err(|why| cannot(&why));
    }
    let profile = profile(&bytes).map_err(|why| {
        cannot(&format!("{why}; readable are pprof, collapsed stacks and the output of 'stat --json'"))
    })?;
    Ok(Input::Profile(Box::new(profile)))
}

fn profile(bytes: &[u8]) -> Result<(Profile, Symbols), decode::DecodeError> {
    let limits = Limits::default();
    // Text has no control characters but white space; a pprof file begins with some.
    let is_text = bytes.iter().take(512).all(|byte| *byte >= b' ' || byte.is_ascii_whitespace());
    if is_text {
        let profile = decode::collapsed::decode(bytes, SampleType::new("samples", "count"), limits)?;
        return Ok((profile, Symbols::new()));
    }
    decode::pprof::decode(bytes, limits)
}
