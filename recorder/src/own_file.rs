//! Files that exist as long as who made them: sockets, and entries of the registry.
//!
//! Called from: the recorder's own threads; at the end of the process that runs nothing any more (`_exit`, of which a daemon's children make use), [`remove_all`], in handlers too. May, there: ask for a file and
//! remove it by raw system calls. May not: allocate, wait.
//!
//! # Orderings
//!
//! A place is filled by the thread that took its bit in `TAKEN` (Acquire), and read by whoever finds that in `NOTED` (Release, Acquire). One that is filled anew meanwhile names no file with the identity that was read,
//! or the new one. Who removes a file that its owner removes, too, finds it gone.

use capture::{region, syscall};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Longest path of a file that is removed at the end of the process, its terminating zero included. That of a socket is never longer.
const PATH_BYTES: usize = 256;

struct Place {
    device: AtomicU64,
    inode: AtomicU64,
    path: [AtomicU64; PATH_BYTES / 8],
}

impl Place {
    const fn new() -> Self {
        let path = [const { AtomicU64::new(0) }; PATH_BYTES / 8];
        Self { device: AtomicU64::new(0), inode: AtomicU64::new(0), path }
    }

    /// The path, and zeros.
    fn path(&self) -> [u8; PATH_BYTES] {
        let mut path = [0; PATH_BYTES];
        for (bytes, word) in path.chunks_exact_mut(8).zip(&self.path) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        path
    }
}

/// Two files for each of sixteen servers; one more for a moment, while an entry of the registry is written.
static PLACES: [Place; u32::BITS as usize] = [const { Place::new() }; u32::BITS as usize];
/// A bit for each place that is in use, and for each whose file is to be removed.
static TAKEN: AtomicU32 = AtomicU32::new(0);
static NOTED: AtomicU32 = AtomicU32::new(0);

/// A file of ours; removed on drop, unless another one has taken its place.
#[derive(Debug)]
pub(crate) struct OwnFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    place: Option<u32>,
}

impl OwnFile {
    /// The one that is there now.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let metadata = path.symlink_metadata()?;
        Ok(Self::noted(path, metadata.dev(), metadata.ino()))
    }

    /// The same file under the name that it is about to get: whoever finds it there sees it go.
    pub(crate) fn renamed(&self, path: &Path) -> Self {
        Self::noted(path, self.device, self.inode)
    }

    fn noted(path: &Path, device: u64, inode: u64) -> Self {
        let mut file = Self { path: path.to_owned(), device, inode, place: None };
        file.place = file.note();
        file
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has it removed at the end of the process. Where there is no room for it, who leaves by `_exit` leaves it.
    fn note(&self) -> Option<u32> {
        let bytes = self.path.as_os_str().as_bytes();
        if bytes.len() >= PATH_BYTES {
            return None;
        }
        let lowest = |taken: u32| (taken != u32::MAX).then(|| taken | (taken + 1));
        let number = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, lowest).ok()?.trailing_ones();
        let place = PLACES.get(number as usize)?;
        region::store_bytes(&place.path, bytes);
        place.device.store(self.device, Ordering::Relaxed);
        place.inode.store(self.inode, Ordering::Relaxed);
        NOTED.fetch_or(1 << number, Ordering::Release);
        Some(number)
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            NOTED.fetch_and(!(1 << place), Ordering::AcqRel);
            TAKEN.fetch_and(!(1 << place), Ordering::Release);
        }
        let path = [self.path.as_os_str().as_bytes(), b"\0"].concat();
        remove(&path, (self.device, self.inode));
    }
}

/// Removes the file at this path, which ends with a zero byte, if it is this one.
fn remove(path: &[u8], identity: (u64, u64)) {
    if syscall::identity_of_file(path) == Ok(identity) {
        let _ = syscall::remove_file(path);
    }
}

/// Removes all files of this process: it ends.
///
/// One that has got another name meanwhile was noted under that before, so what is noted since is removed, too.
pub(crate) fn remove_all() {
    let mut removed = 0;
    loop {
        let noted = NOTED.load(Ordering::Acquire) & !removed;
        if noted == 0 {
            return;
        }
        remove_noted(noted);
        removed |= noted;
    }
}

/// Removes the files of these places.
fn remove_noted(noted: u32) {
    for (_, place) in PLACES.iter().enumerate().filter(|(number, _)| noted >> number & 1 != 0) {
        let path = place.path();
        let identity = (place.device.load(Ordering::Relaxed), place.inode.load(Ordering::Relaxed));
        let end = path.iter().position(|byte| *byte == 0);
        if let Some(path) = end.and_then(|end| path.get(..=end)) {
            remove(path, identity);
        }
    }
}

/// In a child after fork: they are its parent's.
pub(crate) fn reset_in_child() {
    NOTED.store(0, Ordering::Relaxed);
    TAKEN.store(0, Ordering::Relaxed);
}

/// Whether the file at this path goes with the process.
#[cfg(test)]
pub(crate) fn is_noted(path: &Path) -> bool {
    let noted = NOTED.load(Ordering::Acquire);
    let path = [path.as_os_str().as_bytes(), b"\0"].concat();
    PLACES.iter().enumerate().any(|(number, place)| noted >> number & 1 != 0 && place.path().starts_with(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_child::in_child;
    use std::fs;

    #[test]
    fn a_file_goes_with_its_owner_or_with_the_process_but_not_with_a_child() {
        let directory = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let path = directory.path().join(name);
            fs::write(&path, "").unwrap();
            OwnFile::new(&path).unwrap()
        };
        let (one, other, deep) = (made("one"), made("other"), made(&"n".repeat(250)));
        assert!(one.place.is_some() && deep.place.is_none());
        let (first, second) = (one.path().to_owned(), other.path().to_owned());
        fs::remove_file(&second).unwrap();
        fs::create_dir(&second).unwrap();
        drop(one);
        assert!(!first.exists());
        let kept = made("kept");
        assert!(in_child(|| {
            reset_in_child();
            remove_all();
            true
        }));
        assert!(kept.path().exists(), "a child leaves its parent's alone");
        let noted = 1 << kept.place.unwrap();
        assert!(in_child(|| {
            // As if it were the process itself, and had no other. The fork hook forgets all, once another test has set it.
            NOTED.store(noted, Ordering::Relaxed);
            remove_all();
            true
        }));
        assert!(!kept.path().exists());
        drop(other);
        assert!(second.exists(), "what took another's place is not removed");
        assert!(deep.path().exists());
    }
}
