//! What the kernel tells of one thread: where it blocks, and how long it ran and waited.
//!
//! Called from: the wall-clock sampler. Files are kept open for threads that run, up to a part of the descriptors that the process may have: the others are the application's.

use capture::syscall::{clock_ns, thread_cpu_clock};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A line of `/proc/self/task/TID/syscall`: blocked in this call, with this stack pointer and instruction pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// Number of the system call; `None` if it waits for something else (a page, a stop).
    pub(crate) call: Option<u32>,
    pub(crate) sp: u64,
    pub(crate) pc: u64,
}

/// What the line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Running,
    Blocked(Blocked),
    /// It does not run, or ended. Where it blocks cannot be read: a process that gave up rights is not dumpable, and most of its files are root's then.
    Hidden,
}

/// Descriptors that may be kept open.
#[derive(Debug)]
pub(super) struct Descriptors {
    left: usize,
}

impl Descriptors {
    /// A part of what the process may have.
    pub(super) fn new() -> Self {
        let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let most = limits.current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        Self { left: (most / 16).min(512) }
    }
}

/// A thread's files below `/proc`.
#[derive(Debug)]
pub(super) struct Task {
    tid: u32,
    /// Those of [`NAMES`], if they are kept.
    kept: [Option<File>; NAMES.len()],
    scheduled: Option<[u64; 2]>,
}

const NAMES: [&str; 3] = ["syscall", "schedstat", "stat"];

impl Task {
    pub(super) fn new(tid: u32) -> Self {
        Self { tid, kept: [const { None }; NAMES.len()], scheduled: None }
    }

    /// One that is known since it began: it has neither run nor waited before.
    pub(super) fn from_its_beginning(tid: u32) -> Self {
        Self { scheduled: Some([0, 0]), ..Self::new(tid) }
    }

    /// The thread's CPU clock; 0 if it ended.
    pub(super) fn cpu_ns(&self) -> u64 {
        clock_ns(thread_cpu_clock(self.tid))
    }

    /// Where the thread is.
    pub(super) fn status(&mut self, descriptors: &mut Descriptors) -> Status {
        if let Some(line) = self.read(0, descriptors) {
            return parse(line.trim());
        }
        // Everybody may read this one.
        if self.read(2, descriptors).is_some_and(|line| runs(&line)) { Status::Running } else { Status::Hidden }
    }

    /// Nanoseconds that the thread waited for a processor since the last call. `None` the first time, if it was there before, and where the kernel does not count.
    pub(super) fn waited(&mut self, descriptors: &mut Descriptors) -> Option<u64> {
        let line = self.read(1, descriptors)?;
        let mut words = line.split_ascii_whitespace().map_while(|word| word.parse().ok());
        // Nanoseconds on a processor, nanoseconds waiting for one, times that it got one.
        let now = [words.next()?, words.next()?];
        let [_, before] = self.scheduled.replace(now)?;
        let [_, waited] = now;
        Some(u64::saturating_sub(waited, before))
    }

    /// Gives the descriptors back.
    pub(super) fn release(&mut self, descriptors: &mut Descriptors) {
        for file in &mut self.kept {
            if file.take().is_some() {
                descriptors.left += 1;
            }
        }
    }

    fn read(&mut self, which: usize, descriptors: &mut Descriptors) -> Option<String> {
        let mut buffer = [0; 256];
        let slot = self.kept.get_mut(which)?;
        let length = match slot {
            Some(file) => file.read_at(&mut buffer, 0).ok()?,
            None => {
                let file = File::open(format!("/proc/self/task/{}/{}", self.tid, NAMES.get(which)?)).ok()?;
                let length = file.read_at(&mut buffer, 0).ok()?;
                if let Some(left) = descriptors.left.checked_sub(1) {
                    descriptors.left = left;
                    *slot = Some(file);
                }
                length
            }
        };
        Some(String::from_utf8_lossy(buffer.get(..length)?).into_owned())
    }
}

/// Whether the state in a line of `stat` says that the thread runs, or waits for a processor. It is behind the name, which may have anything in it.
fn runs(line: &str) -> bool {
    line.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
}

fn parse(line: &str) -> Status {
    if line == "running" {
        return Status::Running;
    }
    let mut words = line.split(' ');
    let call = words.next().and_then(|word| word.parse::<i64>().ok());
    let hex = |word: Option<&str>| u64::from_str_radix(word?.strip_prefix("0x")?, 16).ok();
    let mut from_the_end = words.rev();
    let (pc, sp) = (hex(from_the_end.next()), hex(from_the_end.next()));
    match (call, sp, pc) {
        (Some(call), Some(sp), Some(pc)) => Status::Blocked(Blocked { call: u32::try_from(call).ok(), sp, pc }),
        _ => Status::Hidden,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_understood() {
        assert_eq!(parse("running"), Status::Running);
        assert_eq!(
            parse("7 0x1 0x2 0x3 0x0 0x0 0x0 0x7ffe12345678 0x7f0011223344"),
            Status::Blocked(Blocked { call: Some(7), sp: 0x7ffe_1234_5678, pc: 0x7f00_1122_3344 })
        );
        assert_eq!(parse("-1 0x7ffe0000 0x5500"), Status::Blocked(Blocked { call: None, sp: 0x7ffe_0000, pc: 0x5500 }));
        assert_eq!(parse(""), Status::Hidden);
    }

    #[test]
    fn who_runs_is_told_behind_any_name() {
        assert!(runs("7 (a thread) R 1 7 7 0"));
        assert!(!runs("7 (a thread) S 1 7 7 0"));
        assert!(!runs("7 (x) R y) D 1 7 7 0"), "a name that looks like it");
        assert!(!runs(""));
    }

    #[test]
    fn descriptors_are_kept_up_to_the_limit_and_given_back() {
        let mut descriptors = Descriptors { left: 1 };
        let (mut first, mut second) = (Task::new(capture::syscall::gettid()), Task::new(capture::syscall::gettid()));
        for _ in 0..3 {
            // It asks for itself, in the midst of a call.
            assert_ne!(first.status(&mut descriptors), Status::Hidden);
            assert_ne!(second.status(&mut descriptors), Status::Hidden, "without a descriptor of its own");
            assert_eq!(descriptors.left, 0);
        }
        first.release(&mut descriptors);
        assert_eq!(descriptors.left, 1);
    }
}
