//! Wall-clock sessions: every thread is looked at on every tick, and the elapsed time since the last look goes to the stack it is at.
//!
//! A thread whose CPU clock and system call did not change is where it was: counted, not disturbed. A thread that blocks in a system call is walked from
//! outside. Only a thread that runs gets a signal, and takes its stack itself.

use super::{handler, outside, tasks};
use capture::region::LogCursor;
use capture::syscall::{clock_ns, queue_signal, thread_cpu_clock};
use capture::thread::{self, ThreadState};
use capture::tree::{Place, Tree};
use capture::{clock, walk};
use layout::{Frame, Pseudo, RecordId, Root, State, Truncated};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

/// What is known of a thread.
struct Watched {
    /// `/proc/self/task/TID/syscall`.
    status: Option<File>,
    record: RecordId,
    cpu_ns: u64,
    looked_ns: u64,
    /// Where it blocks, and the leaf node of that stack.
    blocked: Option<(Blocked, RecordId)>,
}

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
enum Status {
    Running,
    Blocked(Blocked),
    /// The file cannot be read: the thread ended, or the process is not dumpable.
    Unknown,
}

/// A wall-clock session.
pub(crate) struct Watch {
    threads: HashMap<u32, Watched>,
    recording: Box<thread::Recording>,
    log: LogCursor,
}

impl Watch {
    /// Begins to look. `None` if the handler cannot be installed.
    pub(crate) fn start() -> Option<Self> {
        if !handler::install() {
            return None;
        }
        capture::rules::set_up();
        capture::modules::refresh();
        capture::modules::prepare_for_handlers();
        handler::arm_wall(true);
        let mut watch = Self { threads: HashMap::new(), recording: Box::default(), log: LogCursor::new() };
        watch.list(clock::monotonic_ns());
        Some(watch)
    }

    /// Looks at every thread.
    pub(crate) fn tick(&mut self) {
        let now = clock::monotonic_ns();
        self.list(now);
        let mut states = HashMap::new();
        thread::each(|state| {
            states.insert(state.tid(), state);
        });
        for (tid, watched) in &mut self.threads {
            let elapsed = now.saturating_sub(watched.looked_ns);
            watched.looked_ns = now;
            let cpu_ns = clock_ns(thread_cpu_clock(*tid));
            let ran = cpu_ns != watched.cpu_ns;
            watched.cpu_ns = cpu_ns;
            let status = watched.status();
            // After the status: a thread that blocks keeps its labels.
            self.recording.labels = states.get(tid).map_or(RecordId::NONE, |state| state.label_set());
            match status {
                Status::Running | Status::Unknown if signal(*tid, states.get(tid).copied(), elapsed) => {
                    watched.blocked = None
                }
                Status::Running | Status::Unknown => {
                    // No state yet: the signal that was just sent registers the thread, and the next one counts.
                    watched.blocked = None;
                    let state = if ran { State::OnCpu } else { State::Runnable };
                    let leaf =
                        [Frame::pseudo(Pseudo::Truncated(Truncated::NoTable)), Frame::pseudo(Pseudo::State(state))];
                    self.recording.depth = 0;
                    enter(&mut self.recording, &mut self.log, watched.record, *tid, &leaf, elapsed);
                }
                Status::Blocked(at) => {
                    if let Some((before, node)) = watched.blocked
                        && before == at
                        && !ran
                    {
                        self.recording.tree.add_time(node, 1, elapsed);
                        super::log(&mut self.log, watched.record, *tid, node, elapsed);
                        continue;
                    }
                    outside::capture(&mut self.recording, at);
                    let state = Frame::pseudo(Pseudo::State(State::OffCpu));
                    let call = at.call.map(|number| Frame::pseudo(Pseudo::SystemCall(number)));
                    let leaves: Vec<Frame> = std::iter::once(state).chain(call).collect();
                    let node = enter(&mut self.recording, &mut self.log, watched.record, *tid, &leaves, elapsed);
                    watched.blocked = node.map(|node| (at, node));
                }
            }
        }
    }

    fn list(&mut self, now: u64) {
        let listed = tasks::list();
        self.threads.retain(|tid, _| listed.contains(tid));
        for tid in listed {
            self.threads.entry(tid).or_insert_with(|| Watched::new(tid, now));
        }
    }

    /// Looks a last time, so that each thread's values sum to the elapsed time.
    pub(crate) fn stop(mut self, tree: &mut Tree) {
        self.tick();
        // Handlers that were just signalled need a moment; what they do not take is counted here.
        std::thread::sleep(std::time::Duration::from_millis(2));
        handler::arm_wall(false);
        thread::each(|state| {
            let left = state.pending_wall_ns.swap(0, Ordering::AcqRel);
            let root = tree.child(Place::NOWHERE, Frame::pseudo(Pseudo::Root(Root::Wall, state.record_id())));
            let labels = Some(state.label_set()).filter(|set| !set.is_none()).map(Pseudo::Labels);
            let frames = [Pseudo::Truncated(Truncated::StackUnreadable), Pseudo::State(State::OnCpu)];
            let place =
                labels.into_iter().chain(frames).fold(root, |place, frame| tree.child(place?, Frame::pseudo(frame)));
            if let Some(place) = place.filter(|_| left > 0) {
                tree.add_time(place.node(), 1, left);
            }
        });
    }
}

/// Asks a running thread for its stack. False if it has no state to keep the elapsed time in.
fn signal(tid: u32, state: Option<&'static ThreadState>, elapsed_ns: u64) -> bool {
    if let Some(state) = state {
        state.pending_wall_ns.fetch_add(elapsed_ns, Ordering::AcqRel);
    }
    let sent = queue_signal(tid, handler::SIGNAL, handler::value(0)).is_ok();
    state.is_some() && sent
}

/// Enters the captured stack with `leaves` below it.
fn enter(
    recording: &mut thread::Recording,
    log: &mut LogCursor,
    thread: RecordId,
    tid: u32,
    leaves: &[Frame],
    elapsed_ns: u64,
) -> Option<RecordId> {
    let root = recording.tree.child(Place::NOWHERE, Frame::pseudo(Pseudo::Root(Root::Wall, thread)))?;
    let below = match recording.labels {
        RecordId::NONE => root,
        set => recording.tree.child(root, Frame::pseudo(Pseudo::Labels(set)))?,
    };
    let mut place = walk::intern_below(recording, below)?;
    for leaf in leaves {
        place = recording.tree.child(place, *leaf)?;
    }
    let node = place.node();
    recording.tree.add_time(node, 1, elapsed_ns);
    super::log(log, thread, tid, node, elapsed_ns);
    Some(node)
}

impl Watched {
    fn new(tid: u32, now: u64) -> Self {
        let mut record = RecordId::NONE;
        thread::each(|state| {
            if state.tid() == tid {
                record = state.record_id();
            }
        });
        if record.is_none() {
            record = thread::record_for(tid, &tasks::name(tid)).unwrap_or(RecordId::NONE);
        }
        Self {
            status: File::open(format!("/proc/self/task/{tid}/syscall")).ok(),
            record,
            cpu_ns: clock_ns(thread_cpu_clock(tid)),
            looked_ns: now,
            blocked: None,
        }
    }

    fn status(&self) -> Status {
        let Some(file) = &self.status else { return Status::Unknown };
        let mut buffer = [0; 256];
        let Ok(length) = file.read_at(&mut buffer, 0) else { return Status::Unknown };
        let line = String::from_utf8_lossy(&buffer[..length]);
        parse(line.trim())
    }
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
        _ => Status::Unknown,
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
        assert_eq!(parse(""), Status::Unknown);
    }
}
