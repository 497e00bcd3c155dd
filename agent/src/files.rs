//! Files that appear whole.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::NamedTempFile;

/// Gives a finished file its name, readable by everybody whom the directory lets in.
pub(crate) fn put(new: NamedTempFile, path: &Path) -> io::Result<()> {
    new.as_file().set_permissions(Permissions::from_mode(0o644))?;
    new.persist(path).map(drop).map_err(|e| e.error)
}
