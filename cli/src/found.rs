//! Names for addresses that a file has none for: for `convert` and `diff`.

use profile::{Profile, Symbols};
use std::path::PathBuf;
use symbolize::{Detail, Options};

/// A profile with the names that were found, here or in `directories`, which come first. The notes tell of files that could not be used.
pub(crate) fn complete(
    profile: Profile,
    symbols: Symbols,
    detail: Detail,
    directories: &[PathBuf],
) -> (Profile, Symbols, Vec<String>) {
    let mut options = Options { detail, ..Options::default() };
    options.debug_dirs.splice(0..0, directories.iter().cloned());
    let (profile, symbols) = symbolize::adopt(profile, symbols, &options);
    let found = symbolize::complete(&profile, symbols, &options);
    (profile, found.symbols, found.notes)
}
