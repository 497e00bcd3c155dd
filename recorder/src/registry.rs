//! The registry directory: one small file for each server of this user, so that clients find them.
//!
//! `$XDG_RUNTIME_DIR/profile-recorder/PID.json`, or `/tmp/profile-recorder-UID/PID.json`: pid, executable, URL and start of
//! the process (clock ticks since boot, as in `/proc/PID/stat`, which tells it from a later process with the same pid).

use crate::log::LogLevel;
use crate::own_file::OwnFile;
use crate::sampler::tasks;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde::Serialize;

/// What the file says.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    pid: u32,
    exe: String,
    url: &'a str,
    start: u64,
}

/// A server's file; removed on drop.
#[derive(Debug)]
pub(crate) struct Registered(OwnFile);

/// Number of this process's next server: the first one's file is `PID.json`, further ones are `PID-N.json`.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Registered {
    /// Makes the server at `url` known to this user's clients.
    pub(crate) fn new(url: &str) -> io::Result<Self> {
        Self::new_in(&directory(runtime_dir().as_deref()), url)
    }

    pub(crate) fn new_in(directory: &Path, url: &str) -> io::Result<Self> {
        make_private(directory)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let name = if number == 0 { format!("{pid}.json") } else { format!("{pid}-{number}.json") };
        let path = directory.join(name);
        let exe = std::env::current_exe().unwrap_or_default().to_string_lossy().into_owned();
        let entry = Entry { pid, exe, url, start: start_ticks().unwrap_or(0) };
        write_whole(&path, &serde_json::to_vec(&entry)?).map(Self)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The value of `XDG_RUNTIME_DIR` with which the process was started, where its environment must not be looked at: a preloaded program's is its own.
static RUNTIME_DIR: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Says what `XDG_RUNTIME_DIR` is.
pub(crate) fn set_runtime_dir(directory: Option<PathBuf>) {
    let _ = RUNTIME_DIR.set(directory);
}

fn runtime_dir() -> Option<PathBuf> {
    RUNTIME_DIR.get().cloned().unwrap_or_else(|| std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

/// Whether the process is a child after fork, or had a server before.
static IS_LATER: AtomicBool = AtomicBool::new(false);

/// The first server of a child after fork is its first, too.
pub(crate) fn reset_in_child() {
    NEXT.store(0, Ordering::Relaxed);
    IS_LATER.store(true, Ordering::Relaxed);
}

/// How loudly a server says that it is not listed. The process of a later one may be confined to some directory or have become another user, and a program may read its stderr.
pub(crate) fn level_of_failure() -> LogLevel {
    if IS_LATER.swap(true, Ordering::Relaxed) { LogLevel::Info } else { LogLevel::Warn }
}

/// The directory, with the value of `XDG_RUNTIME_DIR`. Only an absolute path to a directory counts.
pub(crate) fn directory(runtime_dir: Option<&Path>) -> PathBuf {
    match runtime_dir.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(runtime_dir) => runtime_dir.join("profile-recorder"),
        None => PathBuf::from(format!("/tmp/profile-recorder-{}", rustix::process::geteuid().as_raw())),
    }
}

/// Creates the directory for this user alone; one that others could have prepared is refused.
fn make_private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = directory.symlink_metadata()?;
    let refuse =
        |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", directory.display())));
    if !metadata.is_dir() {
        return refuse("is not a directory");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return refuse("belongs to another user");
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        // It is ours, so nobody else can put a link in its place.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Readers see the whole file or none, and it goes with the process from when they can. (One that ends as soon as it made the unfinished one leaves that, which nobody reads.)
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<OwnFile> {
    let new = path.with_extension("json.new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let unfinished = OwnFile::new(&new)?;
    file.write_all(bytes)?;
    let whole = unfinished.renamed(path);
    fs::rename(&new, path)?;
    Ok(whole)
}

/// When this process started, in clock ticks since boot.
fn start_ticks() -> Option<u64> {
    tasks::started(&fs::read("/proc/self/stat").ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_file;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_server_has_a_private_file_while_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let registry = dir.path().join("profile-recorder");
        let first = Registered::new_in(&registry, "unix:///a \"b\".sock").unwrap();
        let second = Registered::new_in(&registry, "http://127.0.0.1:1").unwrap();
        assert_ne!(first.path(), second.path());
        assert_eq!(registry.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(first.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let entry: serde_json::Value = serde_json::from_slice(&fs::read(first.path()).unwrap()).unwrap();
        assert_eq!(entry["pid"], std::process::id());
        assert_eq!(entry["url"], "unix:///a \"b\".sock");
        assert!(entry["start"].as_u64().unwrap() > 0);
        assert!(entry["exe"].as_str().unwrap().starts_with('/'));
        drop((first, second));
        assert_eq!(fs::read_dir(&registry).unwrap().count(), 0);
    }

    /// A process may end at any time.
    #[test]
    fn a_file_goes_with_the_process_from_when_others_can_find_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = |number: u32| dir.path().join(format!("{number}.json"));
        let (sender, receiver) = sync_channel(0);
        let unnoted = std::thread::scope(|scope| {
            // Whoever panics drops its end, and the other does not wait for it.
            let (receiver, path) = (receiver, &path);
            let writer = scope.spawn(move || {
                let files = (1..=1000).map(|number| write_whole(&path(number), b"{}").unwrap());
                files.map(|file| sender.send(file)).all(|sent| sent.is_ok())
            });
            let is_noted = |number: u32| {
                while !path(number).exists() {
                    assert!(!writer.is_finished(), "the file is written");
                }
                let is_noted = own_file::is_noted(&path(number));
                drop(receiver.recv().unwrap());
                is_noted
            };
            (1..=1000).filter(|number| !is_noted(*number)).count()
        });
        assert_eq!(unnoted, 0, "of a thousand files");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_others_can_write_is_closed_and_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        make_private(&open).unwrap();
        assert_eq!(open.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(make_private(&link).is_err());
    }

    #[test]
    fn the_runtime_directory_is_used_if_there_is_one() {
        assert_eq!(directory(Some(Path::new("/proc"))), Path::new("/proc/profile-recorder"));
        for unusable in [None, Some(Path::new("")), Some(Path::new("proc")), Some(Path::new("/does/not/exist"))] {
            assert!(directory(unusable).starts_with("/tmp"), "{unusable:?}");
        }
    }

    #[test]
    fn the_start_is_found_behind_any_name() {
        let stat = format!("7 (a) b) S {} 4711 0", (4..=21).map(|i| i.to_string()).collect::<Vec<_>>().join(" "));
        assert_eq!(tasks::started(stat.as_bytes()), Some(4711));
        assert_eq!(tasks::started(b"junk"), None);
    }
}
