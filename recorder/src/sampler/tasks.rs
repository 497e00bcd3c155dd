//! The threads of this process, as the kernel lists them.

use crate::own;
use capture::clock;
use capture::syscall::{File, clock_ns, name_of_thread, thread_cpu_clock};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;

/// Thread ids of every thread but the recorder's own. One that was there all the time may be missing: the kernel loses its place in the list when the thread ends that it is at.
pub(crate) fn list() -> HashSet<u32> {
    let mut listed = HashSet::new();
    let Ok(directory) = File::open(b"/proc/self/task\0", File::READ) else { return listed };
    // Many entries at a time: with a thousand threads this is what listing costs.
    let mut buffer = vec![0; 32 << 10];
    while let Ok(read) = directory.read_directory(&mut buffer)
        && read != 0
    {
        let mut entries = buffer.get(..read).unwrap_or_default();
        // struct linux_dirent64: inode, offset, length of the entry (16 bits), type (8 bits), name up to a zero byte.
        while let Some(length) = entries.get(16..18).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes) {
            let Some((entry, rest)) = entries.split_at_checked(usize::from(length).max(19)) else { break };
            let name = entry.get(19..).and_then(|name| name.split(|byte| *byte == 0).next());
            listed.extend(name.and_then(|name| str::from_utf8(name).ok()?.parse::<u32>().ok()));
            entries = rest;
        }
    }
    own::remove_from(&mut listed);
    listed
}

/// Lists the threads when their number is another, or now and then (one may have taken another's place), and never so often that it takes much time.
pub(crate) struct Listing {
    /// The directory that lists them: asking it by its path takes longer than all else of a look at threads that sleep.
    directory: Option<std::fs::File>,
    /// Number of threads, the recorder's own among them, when they were listed.
    threads: u64,
    /// Those that were listed.
    listed: HashSet<u32>,
    pub(super) listed_ns: u64,
    /// How long to wait until they are listed again: with and without a change of their number.
    pub(super) pauses_ns: [u64; 2],
}

/// Listing takes at most this part of a processor's time as long as the number of threads is the same, and a hundred times as much while it changes.
const PART: u64 = 5000;

impl Listing {
    pub(crate) fn new() -> Self {
        Self { directory: None, threads: u64::MAX, listed: HashSet::new(), listed_ns: 0, pauses_ns: [0; 2] }
    }

    /// The threads, if they shall be looked through now.
    pub(crate) fn changed(&mut self, now: u64) -> Option<HashSet<u32>> {
        let [if_changed, if_not] = self.pauses_ns;
        let pause = if self.number() == self.threads { if_not } else { if_changed };
        (now.saturating_sub(self.listed_ns) >= pause).then(|| self.anew(now))
    }

    /// The threads. One that was among them the last time is missing only if it ended.
    pub(crate) fn anew(&mut self, now: u64) -> HashSet<u32> {
        const SELDOM_NS: u64 = 4_000_000_000;
        let threads = self.number();
        let begun = clock::thread_cpu_ns();
        let mut listed = list();
        let missing: Vec<u32> = self.listed.difference(&listed).copied().collect();
        listed.extend(missing.into_iter().filter(|tid| exists(*tid)));
        let took = clock::thread_cpu_ns().saturating_sub(begun);
        // While threads come and go, a new one may have been left out.
        let threads = if self.number() == threads { threads } else { u64::MAX };
        // Opened anew: the application may have closed what is not its own.
        let directory = std::fs::File::open("/proc/self/task").ok();
        let pauses_ns = [took * PART / 100, (took * PART).min(SELDOM_NS)];
        *self = Self { directory, threads, listed: listed.clone(), listed_ns: now, pauses_ns };
        // With few threads, a new one is found at once.
        if took < 100_000 {
            self.pauses_ns = [0, took * PART / 20];
        }
        listed
    }

    /// Number of threads: the links of the directory that lists them, less two.
    fn number(&self) -> u64 {
        self.directory.as_ref().and_then(|directory| directory.metadata().ok()).map_or(0, |known| known.nlink())
    }
}

/// Whether the kernel has a thread of this number in this process, and it ran, as each has that is known. One system call.
pub(crate) fn exists(tid: u32) -> bool {
    clock_ns(thread_cpu_clock(tid)) != 0
}

/// When a thread began, by CLOCK_MONOTONIC, as the kernel notes it in ticks: not before the first, and before the second.
pub(super) fn began(tid: u32) -> Option<(u64, u64)> {
    // CLOCK_BOOTTIME, which goes on while the machine is suspended.
    const SINCE_BOOT: i32 = 7;
    let suspended = clock_ns(SINCE_BOOT).saturating_sub(clock::monotonic_ns());
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let line = std::fs::read(format!("/proc/self/task/{tid}/stat")).ok()?;
    let first = (started(&line)? * tick).saturating_sub(suspended);
    Some((first, first + tick))
}

/// When the process or thread of a line of `stat` started, in clock ticks since boot: the 22nd word.
pub(crate) fn started(line: &[u8]) -> Option<u64> {
    words(line)?.nth(22 - 3)?.parse().ok()
}

/// The words of a line of `stat` (proc_pid_stat(5)) from the third on; the second is a name in parentheses, and may contain any.
pub(crate) fn words(line: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let after_the_name = line.get(line.iter().rposition(|byte| *byte == b')')? + 1..)?;
    Some(str::from_utf8(after_the_name).ok()?.split_ascii_whitespace())
}

/// A thread's name; none if it is gone.
pub(crate) fn name(tid: u32) -> Vec<u8> {
    name_of_thread(tid).into_iter().flatten().take_while(|byte| *byte != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn every_thread_is_listed() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let (sender, tids) = std::sync::mpsc::channel();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let threads: Vec<_> = (0..300)
            .map(|_| {
                let (sender, wait) = (sender.clone(), wait.clone());
                std::thread::spawn(move || {
                    sender.send(capture::syscall::gettid()).unwrap();
                    let _ = wait.lock().unwrap().recv();
                })
            })
            .collect();
        let running: HashSet<u32> = tids.iter().take(300).collect();
        let listed = list();
        assert!(running.is_subset(&listed), "{} of {}", running.intersection(&listed).count(), running.len());
        assert!(listed.contains(&std::process::id()));
        drop(stop);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn threads_that_stay_are_listed_while_others_end() {
        let stop = AtomicBool::new(false);
        let left_out = std::thread::scope(|scope| {
            let mut listing = Listing::new();
            let (mut staying, mut threads, mut left_out) = (HashSet::new(), Vec::new(), Vec::new());
            for _ in 0..100 {
                // One that stays behind some that end while the list is read.
                let ends: Vec<_> = (0..8).map(|_| scope.spawn(std::thread::yield_now)).collect();
                let (sender, tid) = std::sync::mpsc::channel();
                let stop = &stop;
                threads.push(scope.spawn(move || {
                    sender.send(capture::syscall::gettid()).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::park();
                    }
                }));
                staying.insert(tid.recv().unwrap());
                // The first time it may be left out.
                listing.listed.extend(&staying);
                while !ends.iter().all(|thread| thread.is_finished()) {
                    let listed = listing.anew(clock::monotonic_ns());
                    left_out.extend(staying.difference(&listed).copied());
                }
            }
            stop.store(true, Ordering::Relaxed);
            threads.iter().for_each(|thread| thread.thread().unpark());
            left_out
        });
        assert!(left_out.is_empty(), "{left_out:?}");
    }
}
