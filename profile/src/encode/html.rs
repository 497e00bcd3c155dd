//! Being written.

use crate::{Options, Profile, Symbols};
use std::io::{self, Write};

/// Writes the profile.
pub fn encode(_: &Profile, _: &Symbols, _: &Options, _: &mut dyn Write) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "not built yet"))
}
