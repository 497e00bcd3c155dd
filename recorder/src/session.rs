//! One recording from arm to disarm, and the engines that clients share.
//!
//! Called from: threads of the recorder, one for each request. Counters only grow, so a window is the difference of two snapshots, and any number of clients can
//! look at the same time. Time sampling runs on one thread for all clients of a mode, at one rate; a client that asks for another rate is told
//! when to come again.

use crate::engine::{self, Engine};
use crate::sampler::{tasks, wall};
use crate::{objects, snapshot, start, threads};
use capture::region;
use profile::Profile;
use profile::store::{Counters, Decoded};
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

pub use profile::Mode;

/// What one recording shall measure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) mode: Mode,
    /// Ticks per second of the time modes.
    pub(crate) hz: u32,
    /// Length of the window; `None`: since the start (allocs), now (heap).
    pub(crate) seconds: Option<f64>,
    /// Mean bytes between sampled allocations during the window; `None`: as configured.
    pub(crate) interval: Option<u64>,
}

/// Asks a running recording to end early, and tells whether it has begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    flags: AtomicU8,
    /// The thread that records, once it waits.
    waiting: OnceLock<Thread>,
}

impl Cancel {
    const FINISH: u8 = 1;
    const CANCEL: u8 = 2;
    const BEGUN: u8 = 4;

    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// What was recorded so far is the profile.
    pub(crate) fn finish(&self) {
        self.raise(Self::FINISH);
    }

    /// Nobody waits for the profile any more.
    pub(crate) fn cancel(&self) {
        self.raise(Self::CANCEL);
    }

    fn raise(&self, flag: u8) {
        self.0.flags.fetch_or(flag, Ordering::SeqCst);
        // Either the thread is found here, or it finds the flag.
        fence(Ordering::SeqCst);
        if let Some(thread) = self.0.waiting.get() {
            thread.unpark();
        }
    }

    fn has(&self, flags: u8) -> bool {
        self.0.flags.load(Ordering::SeqCst) & flags != 0
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.has(Self::CANCEL)
    }

    /// Whether the recording shall end, one way or the other.
    pub(crate) fn ends(&self) -> bool {
        self.has(Self::FINISH | Self::CANCEL)
    }

    /// Whether what happens now is recorded. (Of a recording without a window, nothing is said.)
    pub(crate) fn has_begun(&self) -> bool {
        self.has(Self::BEGUN)
    }

    /// Waits until the recording shall end, or until then. One thread does.
    pub(crate) fn wait_until(&self, then: Option<Instant>) {
        self.0.waiting.get_or_init(std::thread::current);
        fence(Ordering::SeqCst);
        while !self.ends() {
            match then.map(|then| then.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => return,
                Some(left) => std::thread::park_timeout(left),
            }
        }
    }
}

/// Why there is no profile.
#[derive(Debug)]
pub(crate) enum SessionError {
    /// Another session runs that cannot be shared.
    Busy { retry_after: Duration },
    /// This process cannot record that.
    Unavailable(String),
    /// The flag was raised.
    Cancelled,
}

/// Readies the store, and samples allocations from now on: one in `interval_bytes` bytes on average, 0 for none. Does nothing if it was called before.
pub(crate) fn prepare(interval_bytes: u64) -> Result<(), SessionError> {
    if start::in_library(interval_bytes) {
        Ok(())
    } else {
        Err(SessionError::Unavailable("the kernel refuses memory for the store".to_owned()))
    }
}

/// Records on the calling thread until the window is over.
pub(crate) fn record(request: &Request, cancel: &Cancel) -> Result<Profile, SessionError> {
    // Whoever was there before named an interval, or none.
    if !start::is_in_library() {
        prepare(start::DEFAULT_ALLOC_INTERVAL)?;
    }
    objects::notice_changes();
    match request.mode {
        Mode::Cpu | Mode::Wall | Mode::OffCpu => time(request, cancel),
        Mode::Allocs | Mode::Heap => allocations(request, cancel),
        Mode::Threads => once(cancel),
    }
}

/// Exact counts of every allocation function so far, and live memory.
pub(crate) fn counters() -> Counters {
    snapshot::counters().unwrap_or_default()
}

fn time(request: &Request, cancel: &Cancel) -> Result<Profile, SessionError> {
    let window = Duration::from_secs_f64(request.seconds.unwrap_or(30.0));
    let engine = if request.mode == Mode::Cpu { Engine::Cpu } else { Engine::Wall };
    let running = engine::join(engine, request.hz, window)?;
    // Blocked threads are looked at from outside: a client that asks for them alone has nobody sent a signal. From the window's begin on: what ran before it is accounted for.
    let _running_threads = (request.mode == Mode::Wall).then(wall::WithRunning::new);
    let of_mode = |decoded: Decoded| if engine == Engine::Cpu { decoded.cpu } else { decoded.wall };
    let before = take()?;
    let begun = Instant::now();
    let waited = wait(window, cancel);
    let elapsed = begun.elapsed().min(window);
    // The last client's leave ends the sampling, and accounts for the time since each thread's last sample.
    drop(running);
    waited?;
    let after = take()?;
    let started_ns = (before.start_unix_ns, before.duration_ns);
    let mut profile = difference(of_mode(after.decoded), of_mode(before.decoded), request)?;
    profile::store::settle(&mut profile);
    if request.mode == Mode::OffCpu {
        profile::store::keep_blocked(&mut profile);
    }
    profile.period = i64::from(1_000_000_000 / request.hz);
    profile.comments.extend(profile::store::rate_reached(&profile));
    profile.start_unix_ns = started_ns.0 + started_ns.1;
    profile.duration_ns = i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX);
    Ok(profile)
}

fn allocations(request: &Request, cancel: &Cancel) -> Result<Profile, SessionError> {
    let sampled = engine::Sampling::join(request.interval, request.seconds)?;
    let before = match request.seconds {
        None => None,
        Some(seconds) => {
            let before = take()?;
            wait(Duration::from_secs_f64(seconds), cancel)?;
            Some(before)
        }
    };
    let after = take()?;
    drop(sampled);
    // A process that was just started may not have allocated anything yet; a scraper does not take that for an error.
    let nothing_seen = after.decoded.counts.calls.iter().all(|calls| *calls == 0);
    let mut profile = match before {
        None => after.decoded.allocs.unwrap_or_default(),
        Some(before) => difference(after.decoded.allocs, before.decoded.allocs, request)?,
    };
    if nothing_seen {
        profile.comments.push(
            "no allocation was seen: is RecordingAllocator the program's #[global_allocator], or the preload library loaded?".to_owned(),
        );
    }
    let wanted = if request.mode == Mode::Heap { "inuse_space" } else { "alloc_objects" };
    profile.default_sample_type = profile.column(wanted);
    Ok(profile)
}

/// Every thread's stack, once: a moment of the wall-clock sampling that may run already.
fn once(cancel: &Cancel) -> Result<Profile, SessionError> {
    /// Rate of the look, if nobody else looks.
    const HZ: u32 = 100;
    /// How long threads that run may wait for a processor.
    const TURNS: Duration = Duration::from_secs(2);
    let (running, hz) = engine::join_at_any_rate(Engine::Wall, HZ)?;
    let _running_threads = wall::WithRunning::new();
    let before = take()?;
    // Two ticks: each thread is looked at once at least.
    let mut waited = wait(Duration::from_nanos(2_500_000_000 / u64::from(hz)), cancel);
    // A thread that runs takes its own stack, when it gets a processor to do so.
    let begun = Instant::now();
    while waited.is_ok() && begun.elapsed() < TURNS && threads::seen(&stacks_since(&before)?) < tasks::list().len() {
        waited = wait(TURNS / 40, cancel);
    }
    drop(running);
    waited?;
    stacks_since(&before)
}

/// Each thread's stack, as far as it was seen since.
fn stacks_since(before: &Taken) -> Result<Profile, SessionError> {
    let after = take()?.decoded.wall;
    let after = after.ok_or_else(|| SessionError::Unavailable("the store holds no thread's stack".to_owned()))?;
    let before = before.decoded.wall.clone().unwrap_or_else(|| Profile::new(after.sample_types.clone()));
    Ok(threads::once_each(&Profile::difference(&after, &before)))
}

fn difference(after: Option<Profile>, before: Option<Profile>, request: &Request) -> Result<Profile, SessionError> {
    let after =
        after.ok_or_else(|| SessionError::Unavailable(format!("the store holds nothing of mode {}", request.mode)))?;
    Ok(Profile::difference(&after, &before.unwrap_or_else(|| Profile::new(after.sample_types.clone()))))
}

struct Taken {
    decoded: Decoded,
    start_unix_ns: i64,
    duration_ns: i64,
}

fn take() -> Result<Taken, SessionError> {
    let decoded = snapshot::take().ok_or_else(|| {
        let reason = if region::header().is_none() {
            "there is no store"
        } else {
            "the process may not have the memory that it takes"
        };
        SessionError::Unavailable(reason.to_owned())
    })?;
    let any = decoded.allocs.as_ref().or(decoded.cpu.as_ref()).or(decoded.wall.as_ref());
    let (start_unix_ns, duration_ns) = any.map_or((0, 0), |p| (p.start_unix_ns, p.duration_ns));
    Ok(Taken { decoded, start_unix_ns, duration_ns })
}

fn wait(window: Duration, cancel: &Cancel) -> Result<(), SessionError> {
    cancel.raise(Cancel::BEGUN);
    cancel.wait_until(Some(Instant::now() + window));
    if cancel.is_cancelled() { Err(SessionError::Cancelled) } else { Ok(()) }
}
