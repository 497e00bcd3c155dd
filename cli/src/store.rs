//! The directory in which every recorded process leaves its store, and what is read out of it.

mod directory;

use crate::error::{Error, warn};
use crate::pending::reason;
use directory::{OwnDirectory, abandoned_in};
use layout::{CHUNK, DIRECTORY_OFFSET, HeaderFields, MAGIC, Record, STOPPED_OFFSET, ThreadFields, View};
use profile::store::{Decoded, StoreError, count_starts, counters, decode};
use rustix::process::{Pid, test_kill_process};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A directory in memory with less room than this gives way to the next.
const ROOM_BYTES: u64 = 512 << 20;
/// Longest path that the preload library can keep.
const LONGEST_PATH: usize = 400;

/// Between two looks at which processes have ended, at least; looking takes at most a hundredth of the time.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// A directory of this user's alone; removed when dropped.
///
/// A process that has ended is taken up while others run: its store is read and removed, so that many that come and go do not fill the memory or the disk. That it has ended is
/// sure where it is in this process's PID namespace, and no process has its number any more. All others are read at the end.
#[derive(Debug)]
pub(crate) struct StoreDirectory {
    directory: OwnDirectory,
    /// This process's PID namespace.
    namespace: Option<u64>,
    /// Processes of stores that were seen; `None` for those whose end is not told.
    seen: HashMap<PathBuf, Option<Pid>>,
    /// Stores whose processes were told to record no more.
    told: HashSet<PathBuf>,
    read: Vec<(Order, Content)>,
    /// Where somebody shows it.
    taken: Option<Arc<Mutex<Taken>>>,
    /// The only process whose store is kept.
    only: Option<u32>,
    next_look: Instant,
}

/// Stores are in the order in which they were begun.
type Order = (u64, String);

/// What a store held.
#[derive(Debug)]
enum Content {
    Decoded(Box<Decoded>),
    /// It was begun, and holds nothing.
    Empty,
    /// Why it cannot be read.
    Unreadable(String),
}

/// Of stores that were removed while the command runs, what is shown then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Calls that allocate.
    pub(crate) allocations: u64,
    /// CPU time that samples stand for.
    pub(crate) cpu_ns: u64,
}

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
        let parents = candidates(|name| std::env::var_os(name).map(PathBuf::from));
        parents.iter().for_each(|parent| remove_abandoned(parent));
        for parent in by_room(parents, room) {
            match OwnDirectory::create_in(&parent) {
                Ok(directory) => {
                    return Ok(Self {
                        directory,
                        namespace: own_namespace(),
                        seen: HashMap::new(),
                        told: HashSet::new(),
                        read: Vec::new(),
                        taken: None,
                        only: None,
                        next_look: Instant::now() + BETWEEN_LOOKS,
                    });
                }
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
        self.directory.path()
    }

    /// Of all stores only this process's is kept.
    pub(crate) fn keep_only(&mut self, pid: u32) {
        self.only = Some(pid);
    }

    /// What is shown of stores that are no longer there. While it is locked, none is removed.
    pub(crate) fn taken(&mut self) -> Arc<Mutex<Taken>> {
        Arc::clone(self.taken.get_or_insert_default())
    }

    /// How long to wait before [`StoreDirectory::take_ended`].
    pub(crate) fn until_next_look(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }

    /// Takes up what processes have left that ended since the last look.
    pub(crate) fn take_ended(&mut self) {
        let began = Instant::now();
        if began < self.next_look {
            return;
        }
        let mut ended = Vec::new();
        for path in files(self.path()) {
            let pid = match self.seen.get(&path) {
                Some(pid) => *pid,
                None => {
                    // Without a header it is being made.
                    let Some((pid, namespace)) = process_of(&path) else { continue };
                    let pid = pid.filter(|_| namespace != 0 && Some(namespace) == self.namespace);
                    self.seen.insert(path.clone(), pid);
                    pid
                }
            };
            if pid.is_some_and(has_ended) {
                self.seen.remove(&path);
                ended.push(path);
            }
        }
        let looked = began.elapsed();
        ended.iter().for_each(|path| self.take(path));
        self.next_look = Instant::now() + BETWEEN_LOOKS.max(looked * 100);
    }

    /// Reads a store that is no longer written, and removes it: the memory that it occupies is wanted for the next.
    fn take(&mut self, path: &Path) {
        let bytes = read_used(path);
        let read = match bytes.as_ref().map(|bytes| decode(bytes)) {
            Ok(Ok(decoded)) => Content::Decoded(Box::new(decoded)),
            Ok(Err(StoreError::NotAStore)) => Content::Empty,
            Ok(Err(e)) => Content::Unreadable(e.to_string()),
            Err(e) => Content::Unreadable(reason(e)),
        };
        let mut taken = self.taken.as_ref().map(|taken| taken.lock().unwrap_or_else(PoisonError::into_inner));
        if let (Some(taken), Some(of_it)) = (&mut taken, bytes.ok().and_then(|bytes| Taken::of(&bytes))) {
            taken.allocations = taken.allocations.saturating_add(of_it.allocations);
            taken.cpu_ns = taken.cpu_ns.saturating_add(of_it.cpu_ns);
        }
        let _ = std::fs::remove_file(path);
        drop(taken);
        if !matches!(&read, Content::Decoded(decoded) if self.only.is_some_and(|only| decoded.pid != only)) {
            self.read.push((order(path), read));
        }
    }

    /// Tells every process that runs to record no more, and lets none begin.
    pub(crate) fn stop(&mut self) {
        // Who starts now finds no directory, and goes on without a store.
        if let Err(e) = self.directory.rename() {
            warn(format!("processes that start now are recorded on: {}", reason(&e)));
        }
        self.tell();
        // Who had found it before may have made its store meanwhile.
        self.tell();
    }

    /// Tells those that were not told yet.
    fn tell(&mut self) {
        for path in files(self.path()) {
            if self.told.insert(path.clone())
                && let Err(e) = tell(&path)
            {
                warn(format!("one process goes on recording: {}", reason(&e)));
            }
        }
    }

    /// Reads what is there, and removes it; what is returned is all, in order.
    pub(crate) fn read(mut self) -> Stores {
        let mut seen = HashSet::new();
        // Until nothing is new: what comes late is not left behind.
        loop {
            self.tell();
            let new: Vec<PathBuf> = files(self.path()).into_iter().filter(|path| seen.insert(path.clone())).collect();
            if new.is_empty() {
                break;
            }
            new.iter().for_each(|path| self.take(path));
        }
        self.read.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut stores = Stores::default();
        for (_, read) in self.read {
            match read {
                Content::Decoded(decoded) => stores.decoded.push(*decoded),
                Content::Empty => stores.empty += 1,
                Content::Unreadable(why) => warn(format!("the recording of one process cannot be read: {why}")),
            }
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

/// Tells the process that writes a store to record no more.
fn tell(path: &Path) -> io::Result<()> {
    // A store that its process is still making has no header to speak of, and is read as empty.
    File::options().write(true).open(path)?.write_all_at(&1_u32.to_le_bytes(), STOPPED_OFFSET as u64)
}

/// Removes what others left that were killed. Their processes may run on, and record for nobody.
fn remove_abandoned(parent: &Path) {
    for directory in abandoned_in(parent) {
        files(directory.path()).iter().for_each(|store| drop(tell(store)));
    }
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
    files.sort_by_cached_key(|path| order(path));
    files
}

fn order(path: &Path) -> Order {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let begun = stem.rsplit_once('-').and_then(|(_, nanos)| nanos.parse::<u64>().ok());
    (begun.unwrap_or(u64::MAX), stem)
}

fn own_namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

/// The process that writes a store, and the PID namespace in which it has that number (0: not known). `None` if there is no header yet.
fn process_of(path: &Path) -> Option<(Option<Pid>, u64)> {
    let mut head = vec![0; HeaderFields::SIZE];
    File::open(path).and_then(|store| store.read_exact_at(&mut head, 0)).ok()?;
    let header = HeaderFields::read(&head)?;
    (header.magic == MAGIC).then(|| (i32::try_from(header.pid).ok().and_then(Pid::from_raw), header.pid_namespace))
}

/// Whether no process has this number. (One that has ended and was not waited for still has it.)
fn has_ended(pid: Pid) -> bool {
    test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
}

impl Taken {
    /// Of one store.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let counts = counters(bytes).ok()?.counts;
        let all = layout::Function::ALL.into_iter().filter(|function| !function.releases());
        let cpu_ns = View::new(bytes).ok()?.records::<ThreadFields>().map(|(_, _, thread)| thread.sampled_cpu_ns).sum();
        Some(Self { allocations: all.map(|function| counts.calls_of(function)).sum(), cpu_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
    fn only_what_no_process_writes_any_more_is_taken_up() {
        let mut directory = StoreDirectory::create().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let (ended, alive, own) =
            (ended.wait().map(|_| ended.id()).unwrap(), std::process::id(), own_namespace().unwrap());
        let store = |pid: u32, namespace: u64| {
            let mut bytes = vec![0; DIRECTORY_OFFSET];
            let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
            put(std::mem::offset_of!(layout::Header, magic), &MAGIC.to_le_bytes());
            put(std::mem::offset_of!(layout::Header, pid), &pid.to_le_bytes());
            put(std::mem::offset_of!(layout::Header, pid_namespace), &namespace.to_le_bytes());
            bytes
        };
        let stores = [
            ("1-1.store", store(ended, own), true),
            ("1-2.store", store(alive, own), false),
            ("1-3.store", store(ended, own + 1), false),
            ("1-4.store", store(ended, 0), false),
            ("1-5.store", vec![0; DIRECTORY_OFFSET], false),
            ("1-6.store", Vec::new(), false),
            ("1-7.store", store(0, own), false),
            ("1-8.store", store(u32::MAX, own), false),
        ];
        for (name, bytes, _) in &stores {
            std::fs::write(directory.path().join(name), bytes).unwrap();
        }
        for _ in 0..2 {
            directory.next_look = Instant::now();
            directory.take_ended();
            for (name, _, is_taken) in &stores {
                assert_eq!(!directory.path().join(name).exists(), *is_taken, "{name}");
            }
        }
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
