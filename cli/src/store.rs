//! The directory in which every recorded process leaves its store, and what is read out of it.

use crate::error::{Error, warn};
use crate::pending::reason;
use layout::{CHUNK, DIRECTORY_OFFSET, STOPPED_OFFSET, View};
use profile::store::{Decoded, StoreError, count_starts, decode};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory in memory with less room than this gives way to the next.
const ROOM_BYTES: u64 = 512 << 20;
/// Longest path that the preload library can keep.
const LONGEST_PATH: usize = 400;

/// A directory of this user's alone; removed when dropped.
#[derive(Debug)]
pub(crate) struct StoreDirectory(TempDir);

/// What the recorded processes left.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// One for each process and each of its execs.
    pub(crate) decoded: Vec<Decoded>,
    /// Stores that were begun but hold nothing.
    pub(crate) empty: usize,
}

impl StoreDirectory {
    /// Makes one where there is most likely room, in memory rather than on a disk.
    pub(crate) fn create() -> Result<Self, Error> {
        let mut error = None;
        for parent in by_room(candidates(|name| std::env::var_os(name).map(PathBuf::from)), room) {
            match create_in(&parent) {
                Ok(directory) => return Ok(Self(directory)),
                Err(e) => error = Some(format!("{}: {}", parent.display(), reason(&e))),
            }
        }
        let why = error.unwrap_or_else(|| "no directory for temporary files".to_owned());
        Err(Error::failure(format!(
            "cannot make a directory for the recording ({why}); set TMPDIR to one that you can write"
        )))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Tells every process that runs to record no more.
    pub(crate) fn stop(&self) {
        for path in files(self.path()) {
            let told = File::options().write(true).open(&path).and_then(|store| {
                // A store that its process is still making has no header to speak of, and is read as empty.
                store.write_all_at(&1_u32.to_le_bytes(), STOPPED_OFFSET as u64)
            });
            if let Err(e) = told {
                warn(format!("one process goes on recording: {}", reason(&e)));
            }
        }
    }

    /// Reads what is there, and removes it.
    pub(crate) fn read(self) -> Stores {
        let mut stores = Stores::default();
        for path in files(self.path()) {
            match read_used(&path).map(|bytes| decode(&bytes)) {
                Ok(Ok(decoded)) => stores.decoded.push(decoded),
                Ok(Err(StoreError::NotAStore)) => stores.empty += 1,
                Ok(Err(e)) => warn(format!("the recording of one process cannot be read: {e}")),
                Err(e) => warn(format!("the recording of one process cannot be read: {}", reason(&e))),
            }
            // The memory that it occupies is wanted for reading the next.
            let _ = std::fs::remove_file(&path);
        }
        count_starts(&mut stores.decoded);
        stores
    }
}

/// The part of a store that is in use. Its file may be much longer, without blocks behind that part.
fn read_used(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    (&mut file).take(DIRECTORY_OFFSET as u64).read_to_end(&mut bytes)?;
    let used = View::new(&bytes).map_or(u64::MAX, |view| {
        let header = view.header();
        u64::from(header.used_chunks.min(header.capacity_chunks)) * CHUNK as u64
    });
    file.take(used.saturating_sub(bytes.len() as u64)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn create_in(parent: &Path) -> io::Result<TempDir> {
    let permissions = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("profile-recorder-").permissions(permissions).tempdir_in(parent)
}

fn candidates(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let temporary = variable("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
    let all = [variable("XDG_RUNTIME_DIR"), Some(PathBuf::from("/dev/shm")), Some(temporary)];
    let usable = |path: &PathBuf| path.is_absolute() && path.as_os_str().len() < LONGEST_PATH && path.is_dir();
    all.into_iter().flatten().filter(usable).collect()
}

fn room(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Those with enough room in the given order, then the others, the roomiest first.
fn by_room(mut parents: Vec<PathBuf>, room: impl Fn(&Path) -> u64) -> Vec<PathBuf> {
    parents.sort_by_key(|path| std::cmp::Reverse(room(path).min(ROOM_BYTES)));
    parents
}

/// The stores, in the order in which they were begun.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension() == Some(OsStr::new("store"))).collect();
    files.sort_by_cached_key(|path| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let begun = stem.rsplit_once('-').and_then(|(_, nanos)| nanos.parse::<u64>().ok());
        (begun.unwrap_or(u64::MAX), stem)
    });
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_private_and_goes_with_its_owner() {
        let directory = StoreDirectory::create().unwrap();
        let path = directory.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("1-1.store"), "nothing yet").unwrap();
        let stores = directory.read();
        assert_eq!((stores.decoded.len(), stores.empty), (0, 1));
        assert!(!path.exists());
    }

    #[test]
    fn stores_are_read_in_the_order_in_which_they_were_begun() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["9-1000.store", "10-999.store", "odd.store", "9-2000.store", "not a store"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let files = files(directory.path());
        let names: Vec<_> = files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["10-999.store", "9-1000.store", "9-2000.store", "odd.store"]);
    }

    #[test]
    fn a_directory_without_room_gives_way() {
        let paths = ["/run", "/dev/shm", "/tmp"].map(PathBuf::from).to_vec();
        let ordered = |rooms: [u64; 3]| {
            let at = |path: &Path| rooms[paths.iter().position(|p| p == path).unwrap()];
            by_room(paths.clone(), at).iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ordered([1 << 40, 1 << 30, 1 << 50]), "/run /dev/shm /tmp");
        assert_eq!(ordered([10, 64 << 20, 1 << 50]), "/tmp /dev/shm /run");
    }
}
