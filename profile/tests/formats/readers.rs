//! Programs that read what we write. `tests/run` installs them; a missing one is an error.

use std::path::{Path, PathBuf};

/// Where they are: next to the build, or where the environment says.
fn directory() -> PathBuf {
    let given = std::env::var_os("PROFREC_READERS").map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("../readers"))
}

/// A file of theirs.
pub(crate) fn installed(path: &str) -> PathBuf {
    let path = directory().join(path);
    assert!(path.exists(), "{} is missing: tests/run installs it", path.display());
    path
}
