//! A directory of this process's own, whose name can be changed.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// For this user alone; removed when dropped.
#[derive(Debug)]
pub(super) struct OwnDirectory {
    path: PathBuf,
}

impl OwnDirectory {
    pub(super) fn create_in(parent: &Path) -> io::Result<Self> {
        let permissions = Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix("profile-recorder-").permissions(permissions).tempdir_in(parent)?;
        Ok(Self { path: made.keep() })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it another name: who knows the old one finds nothing there.
    pub(super) fn rename(&mut self) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".read");
        std::fs::rename(&self.path, &name)?;
        self.path = name.into();
        Ok(())
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
