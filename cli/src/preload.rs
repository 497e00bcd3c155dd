//! The preload library: carried inside this executable, unpacked to a directory of this user's, and compared before each use.

use crate::error::Error;
use crate::pending::reason;
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const LIBRARY: &[u8] = include_bytes!(env!("PROFREC_PRELOAD_PATH"));
const SHA256: &str = env!("PROFREC_PRELOAD_SHA256");

/// Unpacks the library unless it is there already.
pub(crate) fn unpack() -> Result<PathBuf, Error> {
    let mut refused = Vec::new();
    for directory in candidates(|name| std::env::var_os(name).map(PathBuf::from)) {
        match unpack_into(&directory, LIBRARY) {
            Ok(library) => return Ok(library),
            Err(why) => refused.push(format!("{}: {why}", directory.display())),
        }
    }
    Err(Error::failure(format!(
        "cannot unpack the preload library ({}); set XDG_CACHE_HOME to a directory of your own",
        refused.join("; ")
    )))
}

/// Where to try, in this order.
fn candidates(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").map(|path| path.join("profile-recorder"));
    let home = absolute("HOME").map(|path| path.join(".cache/profile-recorder"));
    let uid = rustix::process::geteuid().as_raw();
    let shared = PathBuf::from(format!("/tmp/profile-recorder-{uid}"));
    cache.into_iter().chain(home).chain([shared]).collect()
}

/// The error says why this directory will not do.
fn unpack_into(path: &Path, content: &[u8]) -> Result<PathBuf, String> {
    if path.as_os_str().as_bytes().iter().any(|b| b" :;$".contains(b)) {
        return Err("LD_PRELOAD cannot express a path with a space, ':', ';' or '$'".to_owned());
    }
    let directory = open_private(path)?;
    let name = format!("libprofrec_preload-{}.so", &SHA256[..16]);
    if !holds(&directory, &name, content) {
        write(&directory, &name, content).map_err(|e| reason(&e))?;
        if !holds(&directory, &name, content) {
            return Err("what was written there is not what is read back".to_owned());
        }
    }
    Ok(path.join(name))
}

/// A directory that nobody else can have put anything into.
fn open_private(path: &Path) -> Result<OwnedFd, String> {
    if let Err(e) = DirBuilder::new().recursive(true).mode(0o700).create(path) {
        return Err(reason(&e));
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let open = || -> io::Result<_> {
        let directory = fs::openat(CWD, path, flags, Mode::empty())?;
        let (stat, mount) = (fs::fstat(&directory)?, fs::fstatvfs(&directory)?);
        Ok((directory, stat, mount))
    };
    // A link here could have been set by anybody who can write the directory above.
    let (directory, stat, mount) = open().map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::NOTDIR | Errno::LOOP) => "not a directory, or a symbolic link".to_owned(),
        _ => reason(&e),
    })?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err("it belongs to somebody else".to_owned());
    }
    if stat.st_mode & 0o022 != 0 {
        return Err("others can write there".to_owned());
    }
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err("the file system is mounted noexec".to_owned());
    }
    Ok(directory)
}

/// Whether the file is there, ours alone, and exactly this.
fn holds(directory: &OwnedFd, name: &str, content: &[u8]) -> bool {
    let Ok(file) = fs::openat(directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    else {
        return false;
    };
    let Ok(stat) = fs::fstat(&file) else { return false };
    let trusted = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && stat.st_mode & 0o022 == 0
        && u64::try_from(stat.st_size).is_ok_and(|size| size == content.len() as u64);
    let mut found = Vec::with_capacity(content.len() + 1);
    trusted && File::from(file).read_to_end(&mut found).is_ok() && found == content
}

/// Writes under a passing name first: whoever starts at the same time sees the whole file or none.
fn write(directory: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    let passing = format!("{name}.{}.tmp", std::process::id());
    let _ = fs::unlinkat(directory, &passing, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(directory, &passing, flags, Mode::RUSR)?);
    let written = file.write_all(content).and_then(|()| Ok(fs::renameat(directory, &passing, directory, name)?));
    if written.is_err() {
        let _ = fs::unlinkat(directory, &passing, AtFlags::empty());
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn permit(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_library_is_unpacked_once_and_for_its_owner_alone() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("new/profile-recorder");
        let path = unpack_into(&directory, b"library").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"library");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o400);
        assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let written = path.metadata().unwrap().modified().unwrap();
        assert_eq!(unpack_into(&directory, b"library").unwrap(), path);
        assert_eq!(path.metadata().unwrap().modified().unwrap(), written);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_that_is_not_what_it_should_be_is_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("cache");
        let path = unpack_into(&directory, b"library").unwrap();
        let check = |what: &str| {
            assert_eq!(unpack_into(&directory, b"library").unwrap(), path, "{what}");
            assert!(!path.is_symlink() && std::fs::read(&path).unwrap() == b"library", "{what}");
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o400, "{what}");
        };
        for content in ["librarX", "", "library and more"] {
            permit(&path, 0o600);
            std::fs::write(&path, content).unwrap();
            check(content);
        }
        permit(&path, 0o666);
        check("writable by all");
        let elsewhere = parent.path().join("elsewhere");
        std::fs::write(&elsewhere, "library").unwrap();
        std::fs::remove_file(&path).unwrap();
        symlink(&elsewhere, &path).unwrap();
        check("a symbolic link");
    }

    #[test]
    fn a_directory_that_others_could_have_filled_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("cache");
        std::fs::create_dir(&directory).unwrap();
        permit(&directory, 0o777);
        assert_eq!(unpack_into(&directory, b"x").unwrap_err(), "others can write there");
        permit(&directory, 0o700);
        let link = parent.path().join("link");
        symlink(&directory, &link).unwrap();
        assert_eq!(unpack_into(&link, b"x").unwrap_err(), "not a directory, or a symbolic link");
        let file = parent.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(unpack_into(&file, b"x").is_err());
        assert!(unpack_into(&parent.path().join("with space"), b"x").unwrap_err().contains("LD_PRELOAD"));
    }

    #[test]
    fn a_file_system_without_execution_is_refused() {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        for mount in fields.filter(|f| f[3].split(',').any(|option| option == "noexec")) {
            assert!(open_private(Path::new(mount[1])).is_err(), "{mount:?}");
        }
    }

    #[test]
    fn relative_directories_are_not_considered() {
        let uid = rustix::process::geteuid().as_raw();
        let relative = candidates(|_| Some(PathBuf::from("here")));
        assert_eq!(relative, [PathBuf::from(format!("/tmp/profile-recorder-{uid}"))]);
        let both = candidates(|name| Some(PathBuf::from("/").join(name)));
        assert_eq!(both[0], Path::new("/XDG_CACHE_HOME/profile-recorder"));
        assert_eq!(both[1], Path::new("/HOME/.cache/profile-recorder"));
    }
}
