//! A directory of this process's own, in a place where others have theirs.
//!
//! Who has one holds a lock on it while it lives, whatever ends it. One whose lock can be taken is nobody's any more.

use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// No other directory of this project's begins so.
const PREFIX: &str = "profrec-stores-";

/// For this user alone; removed when dropped.
#[derive(Debug)]
pub(super) struct OwnDirectory {
    path: PathBuf,
    /// `None` where the file system has no locks: then nobody takes it for abandoned.
    _lock: Option<File>,
}

impl OwnDirectory {
    pub(super) fn create_in(parent: &Path) -> io::Result<Self> {
        loop {
            let permissions = Permissions::from_mode(0o700);
            let made = tempfile::Builder::new().prefix(PREFIX).permissions(permissions).tempdir_in(parent)?;
            match lock(made.path()) {
                Ok(Some(lock)) => return Ok(Self { path: made.keep(), _lock: Some(lock) }),
                // Somebody took it for abandoned before it was locked, and removes it.
                Ok(None) => {}
                Err(_) => return Ok(Self { path: made.keep(), _lock: None }),
            }
        }
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

/// This user's directories whose owners are dead. Each is removed when dropped.
pub(super) fn abandoned_in(parent: &Path) -> impl Iterator<Item = OwnDirectory> {
    let uid = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    let own = named.filter(move |entry| entry.metadata().is_ok_and(|metadata| metadata.uid() == uid));
    own.filter_map(|entry| {
        let path = entry.path();
        let lock = lock(&path).ok()??;
        Some(OwnDirectory { path, _lock: Some(lock) })
    })
}

/// Locks a directory; `None` if somebody else has it locked, or it is gone.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let directory = match File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        directory => directory?,
    };
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    // Who had the lock before may have removed it.
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let there = path.symlink_metadata().map(identity).ok();
    Ok((there == Some(identity(directory.metadata()?))).then_some(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_abandoned_when_nobody_holds_its_lock() {
        let parent = tempfile::tempdir().unwrap();
        let mut alive = OwnDirectory::create_in(parent.path()).unwrap();
        let dead = parent.path().join("profrec-stores-dead.read");
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join("1-1.store"), "").unwrap();
        let others = ["profile-recorder-1000", "profile-recorder", "profrec-stores"];
        others.iter().for_each(|name| std::fs::create_dir(parent.path().join(name)).unwrap());
        std::fs::write(parent.path().join("profrec-stores-file"), "").unwrap();
        std::os::unix::fs::symlink(others[0], parent.path().join("profrec-stores-link")).unwrap();
        let found = || abandoned_in(parent.path()).map(|directory| directory.path().to_owned()).collect::<Vec<_>>();
        assert_eq!(found().as_slice(), std::slice::from_ref(&dead));
        assert!(!dead.exists());
        alive.rename().unwrap();
        assert!(found().is_empty());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 6);
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists());
    }

    #[test]
    fn one_that_was_removed_before_it_was_locked_is_not_taken_for_there() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("profrec-stores-1");
        assert!(lock(&path).unwrap().is_none());
        std::fs::create_dir(&path).unwrap();
        let other = lock(&path).unwrap().unwrap();
        assert!(lock(&path).unwrap().is_none());
        drop(other);
        assert!(lock(&path).unwrap().is_some());
    }
}
