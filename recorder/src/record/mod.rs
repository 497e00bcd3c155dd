//! Recordings that the program itself begins, without a server.

#[cfg(feature = "criterion")]
mod criterion;
mod error;
mod recorded;

#[cfg(feature = "criterion")]
pub use self::criterion::CriterionProfiler;
pub use error::{RecordError, RecordErrorKind};
pub use recorded::Profile;
pub(crate) use recorded::{reset_in_child, symbols, title, try_to_create};

use crate::limits::{DEFAULT_HZ, DEFAULT_SECONDS, MAX_HZ, MAX_INTERVAL, MAX_SECONDS};
use crate::own;
use crate::session::{self, Cancel, Mode, Request, SessionError};
use std::thread::JoinHandle;
use std::time::Duration;
use symbolize::Detail;

/// Longer than any process lives: a recording that only its owner ends.
pub(crate) const WITHOUT_END: f64 = 1e9;
/// How often [`Recorder::start`] looks whether the recording has begun, which takes a few milliseconds.
const BEGIN_STEP: Duration = Duration::from_micros(500);

/// Records a profile of this process, without a server.
///
/// Either for some seconds, while other threads work:
///
/// ```
/// use profile_recorder::{Format, Recorder};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let profile = Recorder::cpu().hz(99).seconds(0.1).record()?;
/// profile.write_to(std::env::temp_dir().join("cpu.svg"))?; // the extension says which format
/// let mut pprof = Vec::new();
/// profile.encode(Format::Pprof, &mut pprof)?;
/// # assert_eq!(pprof[..2], [0x1f, 0x8b]);
/// # Ok(())
/// # }
/// ```
///
/// or around a piece of work:
///
/// ```
/// # use profile_recorder::{RecordingAllocator, Recorder};
/// # #[global_allocator]
/// # static ALLOC: RecordingAllocator = RecordingAllocator::system();
/// # fn main() -> Result<(), profile_recorder::RecordError> {
/// let session = Recorder::allocs().interval(1).start()?; // every allocation of all threads
/// let words: Vec<String> = "a b c".split(' ').map(str::to_owned).collect();
/// let profile = session.stop()?;
/// # drop(words);
/// assert!(profile.total("alloc_objects") >= Some(4)); // three strings, the vector
/// # Ok(())
/// # }
/// ```
///
/// Recordings share the samplers with each other and with a server's: as many as like can run at once, if the time modes among them use one rate and the windows of
/// allocations one interval. It takes a thread of its own for each, which is not recorded.
///
/// # Benchmarks
///
/// With the feature `criterion`, [`CriterionProfiler`](crate::CriterionProfiler) writes a profile of each benchmark. divan has no such hook: record around all that it runs, and choose the
/// benchmarks by its own argument (`cargo bench --bench words -- split`).
///
/// ```no_run
/// # mod divan { pub fn main() {} }
/// use profile_recorder::Recorder;
///
/// fn main() {
///     let session = Recorder::cpu().hz(999).start();
///     divan::main();
///     let written = session.and_then(|session| session.stop()).map(|profile| profile.write_to("target/words.svg"));
///     println!("{written:?}");
/// }
/// ```
///
/// divan's own `AllocProfiler` can be wrapped like any other allocator, so that it counts and this crate records:
/// `RecordingAllocator::new(divan::AllocProfiler::system())`.
#[derive(Clone, Debug)]
#[must_use = "nothing is recorded before `record` or `start`"]
pub struct Recorder {
    mode: Mode,
    hz: u32,
    seconds: Option<f64>,
    interval: Option<u64>,
    detail: Detail,
}

impl Recorder {
    /// A recorder of that mode: at 99 Hz, with all that can be found out about addresses.
    pub const fn new(mode: Mode) -> Self {
        Self { mode, hz: DEFAULT_HZ, seconds: None, interval: None, detail: Detail::Full }
    }

    /// CPU time of running threads.
    pub const fn cpu() -> Self {
        Self::new(Mode::Cpu)
    }

    /// Elapsed time of every thread, running or not.
    pub const fn wall() -> Self {
        Self::new(Mode::Wall)
    }

    /// Elapsed time of blocked threads alone.
    pub const fn off_cpu() -> Self {
        Self::new(Mode::OffCpu)
    }

    /// Allocations, freed or not. The program's global allocator must be a [`RecordingAllocator`](crate::RecordingAllocator), and the preload library serves as well: else the profile is
    /// empty and says so.
    pub const fn allocs() -> Self {
        Self::new(Mode::Allocs)
    }

    /// Allocations that are still live.
    pub const fn heap() -> Self {
        Self::new(Mode::Heap)
    }

    /// Every thread's stack, once.
    pub const fn threads() -> Self {
        Self::new(Mode::Threads)
    }

    /// Ticks per second of the time modes, 1 to 10,000. The default is 99.
    pub const fn hz(mut self, hz: u32) -> Self {
        self.hz = hz;
        self
    }

    /// Length of the recording in seconds, greater than 0 and at most 3,600.
    ///
    /// [`record`](Self::record) takes 30 for the time modes unless told; allocations are those since the start then, the heap is what is live now. A recording that was
    /// [started](Self::start) goes on until it is stopped unless told, and ends by itself after that time if it was.
    pub fn seconds(mut self, seconds: impl Into<f64>) -> Self {
        self.seconds = Some(seconds.into());
        self
    }

    /// Mean bytes between two recorded allocations while the recording lasts; 1 records every one, and the values are exact. Unless told, the interval in force is kept: 512 KiB, or that of
    /// the program's server.
    pub const fn interval(mut self, bytes: u64) -> Self {
        self.interval = Some(bytes);
        self
    }

    /// How much to find out about the addresses when the recording ends. Lines and inlined functions cost about 40 microseconds an address, names about one.
    pub const fn symbols(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// Records for the time that was set, and waits for the end.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range, or something runs that cannot be shared, or the kernel refuses what recording takes ([`RecordErrorKind`]).
    pub fn record(self) -> Result<Profile, RecordError> {
        let default = self.mode.is_time().then_some(DEFAULT_SECONDS);
        let window = self.seconds.or(default).filter(|_| self.mode != Mode::Threads);
        self.begin(window)?.end()
    }

    /// Starts a recording that goes on until it is stopped. It has begun when this returns.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record); and of [`threads`](Self::threads), which is a moment without length.
    pub fn start(self) -> Result<Session, RecordError> {
        if self.mode == Mode::Threads {
            return Err(RecordError::setting("threads are looked at once: use `record`".to_owned()));
        }
        let window = Some(self.seconds.unwrap_or(WITHOUT_END));
        self.begin(window)
    }

    fn begin(self, window: Option<f64>) -> Result<Session, RecordError> {
        self.check(window)?;
        let Self { mode, hz, detail, interval, .. } = self;
        let request = Request { mode, hz, seconds: window, interval: interval.filter(|_| mode.is_memory()) };
        let cancel = Cancel::new();
        let flag = cancel.clone();
        let thread =
            own::spawn("profrec-record", move || Ok(Profile::named(session::record(&request, &flag)?, mode, detail)));
        let thread = thread.map_err(|error| RecordError::unavailable(format!("cannot start a thread: {error}")))?;
        while !cancel.has_begun() && !thread.is_finished() {
            std::thread::sleep(BEGIN_STEP);
        }
        let session = Session { cancel, pid: std::process::id(), thread: Some(thread) };
        // Who could not begin has a reason, and whoever asked hears it now.
        if session.cancel.has_begun() || window.is_none() {
            Ok(session)
        } else {
            Err(session.end().err().unwrap_or_else(RecordError::bug))
        }
    }

    fn check(&self, window: Option<f64>) -> Result<(), RecordError> {
        let refuse = |text: String| Err(RecordError::setting(text));
        match (self.seconds, self.interval) {
            (Some(seconds), _) if !(seconds > 0.0 && seconds <= MAX_SECONDS) => {
                refuse(format!("{seconds} seconds: more than 0 and at most {MAX_SECONDS} are needed"))
            }
            (_, Some(bytes)) if !(1..=MAX_INTERVAL).contains(&bytes) => {
                refuse(format!("an interval of {bytes} bytes: 1 to {MAX_INTERVAL} are needed"))
            }
            (_, Some(_)) if self.mode.is_memory() && window.is_none() => {
                refuse("an interval belongs to a window: `seconds` is needed too".to_owned())
            }
            _ if self.mode.is_time() && !(1..=MAX_HZ).contains(&self.hz) => {
                refuse(format!("{} Hz: 1 to {MAX_HZ} are needed", self.hz))
            }
            _ => Ok(()),
        }
    }
}

/// A recording that runs. Nothing is left of it when it is dropped without [`stop`](Self::stop).
#[derive(Debug)]
#[must_use = "what was recorded is lost when this is dropped"]
pub struct Session {
    cancel: Cancel,
    /// The process that it belongs to.
    pid: u32,
    /// Taken when it ends.
    thread: Option<JoinHandle<Result<Profile, SessionError>>>,
}

impl Session {
    /// Ends the recording, finds the names, and returns what was recorded.
    ///
    /// # Errors
    ///
    /// If what was recorded cannot be read any more, or it is the parent's: a forked child has none of its threads.
    pub fn stop(self) -> Result<Profile, RecordError> {
        if self.is_of_this_process() {
            self.cancel.finish();
        }
        self.end()
    }

    fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Waits for the end of the recording.
    fn end(mut self) -> Result<Profile, RecordError> {
        if !self.is_of_this_process() {
            return Err(RecordError::unavailable(
                "the recording is that of the process that forked this one".to_owned(),
            ));
        }
        let Some(thread) = self.thread.take() else { return Err(RecordError::bug()) };
        thread.join().map_err(|_| RecordError::bug())?.map_err(RecordError::from)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.is_of_this_process() {
            self.cancel.cancel();
        } else {
            // Nothing that the C library could detach.
            std::mem::forget(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_child::in_child;

    #[test]
    fn a_forked_child_does_not_wait_for_the_threads_of_its_parent() {
        let session = || Recorder::off_cpu().start().unwrap();
        let (stopped, dropped) = (session(), session());
        assert!(in_child(move || {
            drop(dropped);
            stopped.stop().is_err_and(|error| error.to_string().contains("forked"))
        }));
    }
}
