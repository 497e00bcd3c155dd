//! The line that shows, while a command runs, what is recorded of it.
//!
//! Only what lies in the stores is read: the recorded processes notice nothing. Of a store that is 64 MiB long, header, directory and the threads' records are read, not the stacks.

use layout::{CHUNK, Chunk, ChunkKind, DIRECTORY_OFFSET, HeaderFields, Record};
use profile::store::{LiveMemory, counters};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Write, stderr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::numbers::{human_bytes, human_nanos, with_commas};
use crate::store::Taken;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(500);

/// The line; wiped out when dropped.
#[derive(Debug)]
pub(crate) struct Status {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What all processes together came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    processes: usize,
    allocations: u64,
    live_bytes: Option<i64>,
    cpu_ns: u64,
}

impl Status {
    /// Begins to show what lies in the directory, and what was taken from there.
    pub(crate) fn start(directory: &Path, taken: Arc<Mutex<Taken>>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let directory = directory.to_owned();
        let show = move || {
            let began = Instant::now();
            let (mut before, mut then) = (Seen::default(), began);
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let (seen, now) = (Seen::in_directory(&directory, &taken), Instant::now());
                let line = seen.line(before, now - then, began.elapsed());
                // Back to the beginning of the line, and what stood there goes.
                let _ = write!(stderr(), "\r\x1b[2K{line}");
                (before, then) = (seen, now);
            }
            let _ = write!(stderr(), "\r\x1b[2K");
        };
        // Without a thread for it there is no line, and nothing else is missing.
        let thread = std::thread::Builder::new().name("status".to_owned()).spawn(show).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Seen {
    fn in_directory(directory: &Path, taken: &Mutex<Taken>) -> Self {
        // Until it is read no store goes from one to the other.
        let taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let stores: Vec<PathBuf> = entries.filter(|path| path.extension() == Some(OsStr::new("store"))).collect();
        let mut seen = Self { allocations: taken.allocations, cpu_ns: taken.cpu_ns, ..Self::default() };
        // A process has a store for each program that it executed: what is live is in the last one.
        let mut running: BTreeMap<u32, Store> = BTreeMap::new();
        for store in stores.iter().filter_map(|path| Store::read(path)) {
            seen.allocations = seen.allocations.saturating_add(store.shown.allocations);
            seen.cpu_ns = seen.cpu_ns.saturating_add(store.shown.cpu_ns);
            let is_last = running.get(&store.pid).is_none_or(|other| other.began_ns < store.began_ns);
            if is_last && Path::new(&format!("/proc/{}", store.pid)).exists() {
                running.insert(store.pid, store);
            }
        }
        seen.processes = running.len();
        let live: Vec<i64> = running.values().filter_map(|store| Some(store.live?.bytes)).collect();
        seen.live_bytes = (!live.is_empty()).then(|| live.iter().sum());
        seen
    }

    fn line(self, before: Self, since: Duration, elapsed: Duration) -> String {
        let processes = if self.processes == 1 { "process" } else { "processes" };
        let mut line = format!("profrec: {:.1} s, {} {processes}", elapsed.as_secs_f64(), self.processes);
        if self.cpu_ns != 0 {
            line.push_str(&format!(", {} of CPU time sampled", human_nanos(self.cpu_ns.min(i64::MAX as u64) as i64)));
        }
        let more = self.allocations.saturating_sub(before.allocations) as f64;
        let rate = (more / since.as_secs_f64().max(0.001)) as u64;
        line.push_str(&format!(", {} allocations, {} a second", with_commas(self.allocations), with_commas(rate)));
        if let Some(live) = self.live_bytes {
            line.push_str(&format!(", {} live", human_bytes(live)));
        }
        line
    }
}

/// What is read of one store.
struct Store {
    pid: u32,
    /// CLOCK_MONOTONIC when it was begun.
    began_ns: u64,
    live: Option<LiveMemory>,
    /// What counts on when it is gone.
    shown: Taken,
}

impl Store {
    fn read(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut head = vec![0; HeaderFields::SIZE];
        file.read_exact_at(&mut head, 0).ok()?;
        let header = HeaderFields::read(&head)?;
        let used = header.used_chunks.min(header.capacity_chunks) as usize;
        // A file that contradicts itself asks for no more memory than it has.
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        // Zeros that are never touched take no memory.
        let mut bytes = vec![0; (used * CHUNK).min(length)];
        let first = (header.data_offset as usize).min(bytes.len());
        file.read_exact_at(bytes.get_mut(..first)?, 0).ok()?;
        for chunk in first / CHUNK..bytes.len() / CHUNK {
            let entry = DIRECTORY_OFFSET + chunk * 8;
            let bits = u64::from_le_bytes(bytes.get(entry..entry + 8)?.try_into().ok()?);
            if Chunk::from_bits(bits).is_some_and(|chunk| chunk.kind == ChunkKind::Threads) {
                file.read_exact_at(bytes.get_mut(chunk * CHUNK..(chunk + 1) * CHUNK)?, (chunk * CHUNK) as u64).ok()?;
            }
        }
        let (live, shown) = (counters(&bytes).ok()?.live, Taken::of(&bytes)?);
        Some(Self { pid: header.pid, began_ns: header.start_monotonic_ns, live, shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_there_is() {
        let seen = Seen { processes: 2, allocations: 3_000_000, live_bytes: Some(1 << 20), cpu_ns: 1_500_000_000 };
        let before = Seen { allocations: 2_000_000, ..seen };
        assert_eq!(
            seen.line(before, Duration::from_millis(500), Duration::from_millis(3200)),
            "profrec: 3.2 s, 2 processes, 1.50 s of CPU time sampled, 3,000,000 allocations, 2,000,000 a second, 1.0 MiB live"
        );
        let little = Seen { processes: 1, allocations: 1, live_bytes: None, cpu_ns: 0 };
        assert_eq!(little.line(Seen::default(), EVERY, EVERY), "profrec: 0.5 s, 1 process, 1 allocations, 2 a second");
    }

    #[test]
    fn what_is_no_store_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("1-1.store"), vec![7; 100_000]).unwrap();
        std::fs::write(directory.path().join("1-2.store"), "short").unwrap();
        let taken = Mutex::new(Taken { allocations: 7, cpu_ns: 9 });
        let expected = Seen { allocations: 7, cpu_ns: 9, ..Seen::default() };
        assert_eq!(Seen::in_directory(directory.path(), &taken), expected);
    }
}
