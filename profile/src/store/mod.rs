//! From the store that a recorded process writes to profiles.

mod blocked;
mod chosen;
mod nodes;
mod profiles;
mod rate;
mod syscalls;
mod unsampled;

use crate::Profile;
use crate::mapping::file_name;
use layout::{CalledFields, FUNCTIONS, Function, HeaderFields, Live, Lost, ThreadFields, Unfollowed, View, modes};
use std::fmt;

pub use blocked::keep_blocked;
pub use chosen::chosen;
pub use layout::BadStore as StoreError;
pub use rate::rate_reached;
pub use unsampled::{count_starts, settle};

/// What the store of one process holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The process.
    pub pid: u32,
    /// Its parent when recording began.
    pub parent_pid: u32,
    /// Path of its executable.
    pub exe: String,
    /// What was recorded: bits of [`layout::modes`].
    pub modes: u32,
    /// Whether the process ended in an orderly way.
    pub ended: bool,
    /// When recording began, in nanoseconds since 1970.
    pub start_unix_ns: i64,
    /// From then to the last sign of the process, in nanoseconds.
    pub duration_ns: i64,
    /// The process's CPU clock when recording began, in nanoseconds.
    pub start_cpu_ns: u64,
    /// The same clock at the last sign of the process; 0 if it was not noted.
    pub last_cpu_ns: u64,
    /// Exact counters of the allocation functions.
    pub counts: Counts,
    /// Live memory, if it was accounted for.
    pub live: Option<LiveMemory>,
    /// Allocations, if they were recorded.
    pub allocs: Option<Profile>,
    /// CPU time, if it was recorded.
    pub cpu: Option<Profile>,
    /// Elapsed time, if it was recorded.
    pub wall: Option<Profile>,
    /// What could not be recorded; also in the comments of the profiles.
    pub lost: Vec<Loss>,
    /// Whether the executable exports a `malloc` of its own, so that not all of its calls are seen; also in the comments.
    pub own_malloc: bool,
    /// Programs that the process or a child of it executed and that are not recorded, by reason; also in the comments.
    pub unfollowed: Vec<(Unfollowed, u32)>,
}

/// Live memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveMemory {
    /// What the bytes are.
    pub kind: Live,
    /// Bytes live at the last sign of the process.
    pub bytes: i64,
    /// The most that were live. Exact for one thread; each further thread can hide up to 32 KiB.
    pub peak_bytes: i64,
    /// When that was, in nanoseconds from the beginning of the recording; to within the time in which a thread's live memory changes by 32 KiB. 0 if it is not known: of a process that ended by a signal before it came to so much.
    pub peak_after_ns: i64,
}

/// Something that was not recorded where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: Lost,
    /// How many events.
    pub events: u64,
    /// What they stood for: bytes of allocations, nanoseconds of time.
    pub weight: u64,
}

/// Calls of every allocation function, and the bytes asked of it; indexed by [`Function`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of calls.
    pub calls: [u64; FUNCTIONS],
    /// Bytes asked in those calls.
    pub bytes: [u64; FUNCTIONS],
}

impl Counts {
    /// Calls of one function.
    pub const fn calls_of(&self, function: Function) -> u64 {
        self.calls[function as usize]
    }

    /// Bytes asked of one function.
    pub const fn bytes_of(&self, function: Function) -> u64 {
        self.bytes[function as usize]
    }

    /// The counts of a thread, or of those that have no record.
    fn of(functions: &[CalledFields; FUNCTIONS]) -> Self {
        Self { calls: functions.map(|called| called.calls), bytes: functions.map(|called| called.bytes) }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        self.calls.iter_mut().zip(other.calls).for_each(|(to, more)| add(to, more));
        self.bytes.iter_mut().zip(other.bytes).for_each(|(to, more)| add(to, more));
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, events, weight } = self;
        let what = match reason {
            Lost::LogFull => "times of single samples",
            Lost::LiveTableFull => "allocations whose end is not known",
            Lost::NoTimer => "threads",
            Lost::LabelsFull => "labels",
            _ => "events",
        };
        let weight = match weight {
            0 => String::new(),
            nanos if reason.is_time() => format!(", {}.{:03} ms", nanos / 1_000_000, nanos / 1000 % 1000),
            bytes => format!(", {bytes} bytes"),
        };
        write!(f, "lost: {events} {what}{weight} ({})", reason.reason())
    }
}

/// What is always counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of the allocation functions.
    pub counts: Counts,
    /// Live memory, if it is accounted for.
    pub live: Option<LiveMemory>,
}

/// Reads the counters alone out of the bytes of a store.
pub fn counters(bytes: &[u8]) -> Result<Counters, StoreError> {
    let view = View::new(bytes)?;
    let header = view.header();
    Ok(Counters { counts: counts(&view, &header), live: live(&view, &header) })
}

/// Reads the bytes of a store, whole or cut off anywhere. What cannot be read in them is left out and counted in the comments.
pub fn decode(bytes: &[u8]) -> Result<Decoded, StoreError> {
    let view = View::new(bytes)?;
    let header = view.header();
    let elapsed = header.last_monotonic_ns.saturating_sub(header.start_monotonic_ns);
    let mut decoded = Decoded {
        pid: header.pid,
        parent_pid: header.parent_pid,
        exe: text_of(&header.exe, header.exe_length),
        modes: header.modes,
        ended: header.ended != 0,
        start_unix_ns: saturate(header.start_realtime_ns),
        duration_ns: saturate(elapsed),
        start_cpu_ns: header.start_cpu_ns,
        last_cpu_ns: header.last_cpu_ns,
        counts: counts(&view, &header),
        live: live(&view, &header),
        lost: losses(&header),
        own_malloc: header.own_malloc != 0,
        unfollowed: Unfollowed::ALL
            .into_iter()
            .map(|reason| (reason, header.unfollowed[reason as usize]))
            .filter(|(_, programs)| *programs != 0)
            .collect(),
        ..Decoded::default()
    };
    profiles::add(&view, &header, &mut decoded);
    Ok(decoded)
}

impl Decoded {
    /// File name of the executable.
    pub fn process(&self) -> &str {
        file_name(&self.exe)
    }

    /// What cannot be seen of this process's allocations, in a line.
    pub fn unseen(&self) -> Option<String> {
        let text = "exports its own malloc; calls that it makes itself without an import slot are not seen";
        self.own_malloc.then(|| format!("{} {text}", self.process()))
    }

    /// Programs that the process or a child of it executed and that are not recorded: a text for each reason.
    fn unfollowed_texts(&self) -> impl Iterator<Item = String> {
        self.unfollowed
            .iter()
            .map(|(reason, programs)| format!("executed and not recorded: {programs} ({})", reason.reason()))
    }

    fn records_allocations(&self) -> bool {
        self.modes & (modes::ALLOCS | modes::HEAP) != 0
    }
}

fn counts(view: &View<'_>, header: &HeaderFields) -> Counts {
    let mut counts = Counts::of(&header.functions);
    for (_, _, thread) in view.records::<ThreadFields>() {
        counts += Counts::of(&thread.functions);
    }
    counts
}

fn live(view: &View<'_>, header: &HeaderFields) -> Option<LiveMemory> {
    let kind = Live::from_number(header.live);
    if kind == Live::Unknown {
        return None;
    }
    let brought_in = header.live_bytes as i64;
    let threads: Vec<ThreadFields> = view.records().map(|(_, _, thread)| thread).collect();
    let bytes = threads.iter().fold(brought_in, |sum, thread| sum.wrapping_add(thread.live_bytes()));
    // What a thread came to since it brought its own in last.
    let most = threads.iter().map(ThreadFields::most_live_bytes).max().unwrap_or(0).max(0);
    let since = brought_in.saturating_add(most).max(bytes);
    let known = header.peak_live_bytes as i64;
    let peaked = if since > known { header.last_monotonic_ns } else { 0 }.max(header.peak_monotonic_ns);
    Some(LiveMemory {
        kind,
        bytes,
        peak_bytes: since.max(known),
        peak_after_ns: saturate(peaked.saturating_sub(header.start_monotonic_ns)),
    })
}

fn losses(header: &HeaderFields) -> Vec<Loss> {
    let of = |reason: &Lost| Loss {
        reason: *reason,
        events: header.lost[*reason as usize],
        weight: header.lost_weight[*reason as usize],
    };
    Lost::ALL.iter().map(of).filter(|loss| loss.events != 0 || loss.weight != 0).collect()
}

/// The text in zero-padded words.
fn text_of(words: &[u64], length: u64) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let length = usize::try_from(length).unwrap_or(bytes.len()).min(bytes.len());
    let text = bytes[..length].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn saturate(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
