//! Files to compare: profiles of any readable format, and what `stat --json` wrote.

use super::metric::Counted;
use crate::error::Error;
use crate::found;
use crate::pending::reason;
use profile::decode::{self, Limits, Readable};
use profile::{Profile, Symbols};
use std::path::{Path, PathBuf};
use symbolize::Detail;

/// What a file holds.
#[derive(Debug)]
pub(super) enum Input {
    /// A profile, with the names it carries.
    Profile(Box<(Profile, Symbols)>),
    /// Counters without stacks.
    Counts(Vec<Counted>),
}

/// Reads a file; the format is known by its contents. With directories in which the recorded files lie, addresses without names get theirs. The notes tell of files
/// that could not be used.
pub(super) fn read(path: &Path, symbol_dirs: &[PathBuf]) -> Result<(Input, Vec<String>), Error> {
    let cannot = |why: &str| Error::failure(format!("cannot read '{}': {why}", path.display()));
    let bytes = std::fs::read(path).map_err(|e| cannot(&reason(&e)))?;
    if bytes.is_empty() {
        return Err(cannot("the file is empty; was it written to its end?"));
    }
    if is_stat(&bytes) {
        return Counted::all(&bytes).map(|counts| (Input::Counts(counts), Vec::new())).map_err(|why| cannot(&why));
    }
    let (profile, symbols) = decode::read(&bytes, Limits::default()).map_err(|why| {
        let known: Vec<&str> = Readable::ALL.iter().map(|format| format.name()).collect();
        cannot(&format!("{why}; readable are {} and the output of 'stat --json'", known.join(", ")))
    })?;
    let (profile, symbols, notes) = if symbol_dirs.is_empty() {
        (profile, symbols, Vec::new())
    } else {
        found::complete(profile, symbols, Detail::Full, symbol_dirs)
    };
    Ok((Input::Profile(Box::new((profile, symbols))), notes))
}

/// JSON that is no profile of another program: DHAT's files say what they are.
fn is_stat(bytes: &[u8]) -> bool {
    let beginning = bytes.get(..4096).unwrap_or(bytes);
    let is_dhat = beginning.windows(15).any(|window| window == b"dhatFileVersion");
    beginning.trim_ascii_start().starts_with(b"{") && !is_dhat
}
