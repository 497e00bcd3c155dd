//! The profile to convert.

use crate::error::Error;
use crate::pending::reason;
use profile::decode::{self, DecodeErrorKind, Limits, Readable};
use profile::{Profile, Symbols};
use std::io::{self, Read};
use std::path::Path;

/// Reads a file of any readable format, or standard input if it is called `-`.
pub(crate) fn read(path: &Path) -> Result<(Profile, Symbols), Error> {
    let limits = Limits::default();
    let cannot = |why: String| Error::failure(format!("cannot read '{}': {why}", path.display()));
    let bytes = bytes(path, limits).map_err(|e| cannot(reason(&e)))?;
    if bytes.is_empty() {
        return Err(cannot("it is empty; was it written to its end?".to_owned()));
    }
    if bytes.len() > limits.bytes {
        return Err(cannot(format!("it has more than {} MiB", limits.bytes >> 20)));
    }
    decode(&bytes, limits).map_err(cannot)
}

/// Reads bytes of any readable format; an error says which these are.
pub(crate) fn decode(bytes: &[u8], limits: Limits) -> Result<(Profile, Symbols), String> {
    decode::read(bytes, limits).map_err(|error| match error.kind() {
        DecodeErrorKind::Corrupt => {
            let readable: Vec<&str> = Readable::ALL.iter().map(|format| format.name()).collect();
            format!("{error}; readable formats are {}", readable.join(", "))
        }
        _ => error.to_string(),
    })
}

fn bytes(path: &Path, limits: Limits) -> io::Result<Vec<u8>> {
    let most = limits.bytes as u64 + 1;
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
