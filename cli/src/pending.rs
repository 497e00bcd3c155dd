//! A file that is not there yet: it appears under its name when it is whole, and what stood there before stays until then.
//!
//! While it is written the file has no name at all where the file system can do that (`O_TMPFILE`): the recorded command does
//! not see it, and nothing is left of it if this process is killed.

use crate::error::Error;
pub(crate) use ::agent::reason;
use rustix::fs::{self, Access, AtFlags, CWD, Mode, OFlags};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file to be written and then put into place.
#[derive(Debug)]
pub(crate) struct PendingFile {
    /// The name that the user gave.
    path: PathBuf,
    /// The file that it stands for, behind symbolic links.
    target: PathBuf,
    staged: Staged,
}

#[derive(Debug)]
enum Staged {
    Unnamed(File),
    Named(NamedTempFile),
}

impl PendingFile {
    /// Checks that the file can be put there in the end, and opens it.
    pub(crate) fn create(path: PathBuf) -> Result<Self, Error> {
        let cannot = |why: &str| Error::failure(format!("cannot write '{}': {why}", path.display()));
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(cannot("it is the name of a directory; name a file"));
        }
        let existing = match std::fs::metadata(&path) {
            Ok(metadata) => Some(metadata),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(cannot(&reason(&e))),
        };
        let target = match &existing {
            Some(_) => path.canonicalize().map_err(|e| cannot(&reason(&e)))?,
            None => path.clone(),
        };
        let directory = parent(&target);
        if let Some(metadata) = &existing {
            may_replace(&target, metadata, directory).map_err(|why| cannot(&why))?;
        }
        let staged = match unnamed(directory) {
            Ok(file) => Staged::Unnamed(file),
            Err(_) => named(&target).map(Staged::Named).map_err(|e| {
                let missing = e.kind() == ErrorKind::NotFound;
                let why = if missing { "its directory does not exist; create it first".to_owned() } else { reason(&e) };
                cannot(&why)
            })?,
        };
        let pending = Self { path, target, staged };
        if let Some(metadata) = existing {
            // A file that others may or may not read stays that way.
            let permissions = Permissions::from_mode(metadata.permissions().mode() & 0o777);
            let _ = pending.file().set_permissions(permissions);
        }
        Ok(pending)
    }

    fn file(&self) -> &File {
        match &self.staged {
            Staged::Unnamed(file) => file,
            Staged::Named(named) => named.as_file(),
        }
    }

    /// Writes the content and puts the file into place.
    pub(crate) fn finish(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<PathBuf, Error> {
        let mut buffered = io::BufWriter::with_capacity(1 << 16, self.file());
        let written = write(&mut buffered).and_then(|()| buffered.flush());
        drop(buffered);
        let path = self.path.clone();
        match written.and_then(|()| self.put_into_place()) {
            Ok(()) => Ok(path),
            Err(e) => Err(Error::failure(format!("cannot write '{}': {}", path.display(), reason(&e)))),
        }
    }

    fn put_into_place(self) -> io::Result<()> {
        match self.staged {
            Staged::Named(named) => named.persist(&self.target).map(drop).map_err(io::Error::from),
            Staged::Unnamed(file) => link(&file, &self.target).or_else(|_| copy(file, &self.target)),
        }
    }
}

fn parent(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replacing a file asks for permission of its directory alone; whoever made it read-only expects more.
fn may_replace(target: &Path, metadata: &Metadata, directory: &Path) -> Result<(), String> {
    if metadata.is_dir() {
        return Err("it is a directory; name a file".to_owned());
    }
    if !metadata.is_file() {
        return Err("it is not a regular file; name another".to_owned());
    }
    fs::access(target, Access::WRITE_OK).map_err(|e| reason(&e.into()))?;
    let uid = rustix::process::geteuid().as_raw();
    let directory = std::fs::metadata(directory).map_err(|e| reason(&e))?;
    if directory.mode() & 0o1000 != 0 && uid != 0 && uid != metadata.uid() && uid != directory.uid() {
        return Err("the file is somebody else's, in a sticky directory; name another".to_owned());
    }
    Ok(())
}

fn unnamed(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = fs::openat(CWD, directory, flags, Mode::from_raw_mode(0o666))?;
    Ok(File::from(file))
}

fn named(target: &Path) -> io::Result<NamedTempFile> {
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix.push(".");
    // Less what the umask takes, as for any new file.
    let permissions = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(&prefix).permissions(permissions).tempfile_in(parent(target))
}

/// Gives the unnamed file a name, and that name to the target: a link cannot replace a file, a rename can.
fn link(file: &File, target: &Path) -> io::Result<()> {
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    let passing = tempfile::Builder::new()
        .prefix(".profrec-")
        .make_in(parent(target), |name| Ok(fs::linkat(CWD, &unnamed, CWD, name, AtFlags::SYMLINK_FOLLOW)?))?;
    passing.persist(target).map(drop).map_err(io::Error::from)
}

fn copy(mut file: File, target: &Path) -> io::Result<()> {
    let mut staged = named(target)?;
    staged.as_file().set_permissions(file.metadata()?.permissions())?;
    file.rewind()?;
    io::copy(&mut file, &mut staged)?;
    staged.persist(target).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{read_dir, read_to_string, write};

    fn finish(file: PendingFile, text: &str) {
        file.finish(|out| out.write_all(text.as_bytes())).unwrap();
    }

    #[test]
    fn the_file_appears_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        let file = PendingFile::create(path.clone()).unwrap();
        assert_eq!(read_dir(&directory).unwrap().count(), 0, "the command would see it");
        finish(file, "whole");
        assert_eq!(read_to_string(&path).unwrap(), "whole");
        assert_eq!(read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn what_stood_there_stays_until_then_and_keeps_its_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        write(&path, "before").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let file = PendingFile::create(path.clone()).unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "before");
        finish(file, "after");
        assert_eq!(read_to_string(&path).unwrap(), "after");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        drop(PendingFile::create(path.clone()).unwrap());
        assert_eq!(read_to_string(&path).unwrap(), "after");
        assert_eq!(read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn a_symbolic_link_leads_to_the_file_that_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (path, real) = (directory.path().join("a.svg"), directory.path().join("real.svg"));
        write(&real, "before").unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        finish(PendingFile::create(path.clone()).unwrap(), "after");
        assert!(path.is_symlink());
        assert_eq!(read_to_string(&real).unwrap(), "after");
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        let file = PendingFile::create(path.clone()).unwrap();
        let failed = file.finish(|_| Err(io::Error::from_raw_os_error(28))).unwrap_err();
        assert_eq!(failed.line(), format!("cannot write '{}': no space left on device", path.display()));
        assert_eq!(read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn a_named_file_serves_where_unnamed_ones_cannot_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        let staged = Staged::Named(named(&path).unwrap());
        finish(PendingFile { path: path.clone(), target: path.clone(), staged }, "named");
        assert_eq!(read_to_string(&path).unwrap(), "named");
        copy(unnamed_with(&directory, "copied"), &path).unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "copied");
        assert_eq!(read_dir(&directory).unwrap().count(), 1);
    }

    fn unnamed_with(directory: &tempfile::TempDir, text: &str) -> File {
        let mut file = unnamed(directory.path()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let inside = |name: &str| directory.path().join(name);
        write(inside("file"), "").unwrap();
        for (path, why) in [
            (directory.path().into(), "it is a directory; name a file"),
            (inside("a.svg/"), "it is the name of a directory; name a file"),
            (inside("missing/a.svg"), "its directory does not exist; create it first"),
            (inside("file/a.svg"), "not a directory"),
            (PathBuf::from("/dev/null"), "it is not a regular file; name another"),
        ] {
            let error = PendingFile::create(path.clone()).unwrap_err();
            assert!(error.line().ends_with(why), "{}", error.line());
            assert_eq!(error.exit_code(), 1);
        }
    }
}
