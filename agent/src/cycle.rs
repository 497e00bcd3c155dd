//! One cycle: every process that is there, or comes meanwhile, is recorded until its end.

use crate::collect::{Collector, Recorded};
use crate::discover::{self, Found};
use crate::machine::Load;
use crate::overhead::Governor;
use crate::process::Process;
use crate::recorders::{Address, Failure, Question};
use crate::settings::{Secret, Settings};
use crate::stats::Stats;
use profile::Mode;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep_until, timeout, timeout_at};

/// Shortest recording that is worth the trouble.
const SHORTEST: Duration = Duration::from_millis(500);
/// How long a recorder may take to tell what it cost.
const METRICS: Duration = Duration::from_secs(2);
/// Most bytes of that.
const MOST_METRICS: usize = 1 << 20;

/// What the tasks of all cycles share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) own_token: Option<Secret>,
    pub(crate) collector: Collector,
    pub(crate) stats: Arc<Stats>,
    /// Answers that may be in memory at one time.
    pub(crate) room: Arc<Semaphore>,
    /// Processor time that each recorder has told of.
    pub(crate) costs: Mutex<HashMap<Address, f64>>,
    /// Until when answers are waited for, if the agent is to end: recorders are told to answer before their time.
    pub(crate) end: watch::Sender<Option<Instant>>,
}

impl Context {
    pub(crate) fn is_ending(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Waits until the agent is to end.
    async fn ending(&self) {
        // The sender is here, so this cannot fail.
        let _ = self.end.subscribe().wait_for(Option::is_some).await;
    }

    /// Waits until nobody waits for answers any more.
    pub(crate) async fn too_late(&self) {
        self.ending().await;
        let end = *self.end.borrow();
        if let Some(end) = end {
            sleep_until(end.into()).await;
        }
    }

    /// Waits until then, or until the agent is to end.
    pub(crate) async fn sleep_until(&self, then: Instant) {
        let _ = timeout_at(then.into(), self.ending()).await;
    }
}

/// When a cycle is, and at what rate.
#[derive(Debug)]
pub(crate) struct Cycle {
    pub(crate) number: u64,
    pub(crate) start: SystemTime,
    begun: Instant,
    /// When it is to be over.
    pub(crate) ends: Instant,
    /// How long it was, once it is over.
    length: OnceLock<Duration>,
    pub(crate) governor: Governor,
    pub(crate) load: Mutex<Load>,
    /// Processor time that recorders took during the cycle, in seconds.
    pub(crate) cost: Mutex<f64>,
}

impl Cycle {
    pub(crate) fn begin(number: u64, length: Duration, governor: Governor) -> Self {
        let begun = Instant::now();
        Self {
            number,
            start: SystemTime::now(),
            begun,
            ends: begun + length,
            length: OnceLock::new(),
            governor,
            load: Mutex::new(Load::begin()),
            cost: Mutex::new(0.0),
        }
    }

    /// How long it was; its planned length as long as it goes on.
    pub(crate) fn length(&self) -> Duration {
        self.length.get().copied().unwrap_or(self.ends - self.begun)
    }

    /// Whether it was ended before its time.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.length() < self.ends - self.begun
    }

    fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }
}

/// Why there is no profile.
#[derive(Clone, Copy, Debug)]
enum Missed {
    /// Somebody else records at another rate, or too much at once.
    Busy,
    /// It answered that it will not.
    Refused,
    /// It went away, or does not answer.
    Gone,
    /// What it answered is larger than allowed, or broke off.
    Incomplete,
}

impl Missed {
    const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Gone => "gone",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Records until the cycle's end; what is returned still waits for answers.
pub(crate) async fn record(context: &Arc<Context>, cycle: &Arc<Cycle>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let mut known: HashSet<Address> = HashSet::new();
    let mut skipped = 0;
    while !cycle.left().is_zero() && !context.is_ending() {
        let (settings, token) = (Arc::clone(&context.settings), context.own_token.clone());
        let found = spawn_blocking(move || discover::processes(&settings, token.as_ref())).await.unwrap_or_default();
        let turns = found.into_iter().filter(|found| cycle.governor.includes(&found.address, cycle.number));
        for found in turns.filter(|_| cycle.left() >= SHORTEST) {
            if known.contains(&found.address) {
                continue;
            }
            if known.len() >= context.settings.max_processes {
                skipped += 1;
                continue;
            }
            known.insert(found.address.clone());
            tasks.spawn(process(Arc::clone(context), Arc::clone(cycle), found));
        }
        context.stats.numbers().processes = known.len() as u64;
        cycle.load.lock().unwrap_or_else(PoisonError::into_inner).look();
        let next = Instant::now() + context.settings.scan;
        context.sleep_until(next.min(cycle.ends)).await;
    }
    let _ = cycle.length.set(cycle.begun.elapsed().min(cycle.ends - cycle.begun));
    if skipped > 0 {
        tracing::warn!(looks = skipped, max_processes = context.settings.max_processes, "processes were not recorded");
    }
    tasks
}

/// Records one process in all of its modes.
async fn process(context: Arc<Context>, cycle: Arc<Cycle>, found: Found) {
    let pid = match found.pid {
        Some(pid) => Some(pid),
        None => peer(&found.address).await,
    };
    let looked = spawn_blocking(move || pid.map(Process::look).unwrap_or_default()).await.unwrap_or_default();
    let (process, found) = (Arc::new(looked), Arc::new(found));
    let mut modes = JoinSet::new();
    for mode in found.modes.iter().copied() {
        let (context, cycle, found, process) =
            (Arc::clone(&context), Arc::clone(&cycle), Arc::clone(&found), Arc::clone(&process));
        modes.spawn(async move {
            if let Err((missed, why)) = mode_of(&context, &cycle, &found, &process, mode).await {
                let level_is_low = matches!(missed, Missed::Gone);
                context.stats.missed(missed.name());
                let (name, at) = (&found.name, found.address.to_string());
                // Processes end; that is nobody's mistake.
                if level_is_low {
                    tracing::debug!(process = name, at, mode = mode.name(), error = why, "no profile");
                } else {
                    tracing::warn!(process = name, at, mode = mode.name(), error = why, "no profile");
                }
            }
        });
    }
    while modes.join_next().await.is_some() {}
    if let Ok(Some(cost)) = timeout(METRICS, cost(&found)).await {
        let mut costs = context.costs.lock().unwrap_or_else(PoisonError::into_inner);
        // What it cost before it was first looked at was not ours.
        let before = costs.insert(found.address.clone(), cost).filter(|before| *before <= cost);
        if let Some(before) = before {
            *cycle.cost.lock().unwrap_or_else(PoisonError::into_inner) += cost - before;
        }
    }
}

/// The process that listens at a socket, if this machine sees it.
async fn peer(address: &Address) -> Option<u32> {
    let Address::Unix(path) = address else { return None };
    let stream = timeout(METRICS, UnixStream::connect(path)).await.ok()?.ok()?;
    u32::try_from(stream.peer_cred().ok()?.pid()?).ok().filter(|pid| *pid != 0)
}

/// Processor time that recording took in a process so far, in seconds: of its threads in handlers, and of the recorder's own.
async fn cost(found: &Found) -> Option<f64> {
    let token = found.token.as_ref().map(Secret::reveal);
    let question = Question { address: &found.address, path: "/metrics", token, measures: Duration::ZERO };
    let body = question.ask().await.ok()?.body(MOST_METRICS).await.ok()?;
    let text = String::from_utf8_lossy(&body);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    Some(value("profile_recorder_handler_seconds_total ")? + value("profile_recorder_own_cpu_seconds_total ")?)
}

async fn mode_of(
    context: &Context,
    cycle: &Cycle,
    found: &Arc<Found>,
    process: &Arc<Process>,
    mode: Mode,
) -> Result<(), (Missed, String)> {
    let token = found.token.as_ref().map(Secret::reveal);
    // A moment is looked at when the cycle is over, and may come a little later.
    let last = if is_moment(mode) { cycle.ends + context.settings.scan } else { cycle.ends };
    if is_moment(mode) {
        context.sleep_until(cycle.ends).await;
    }
    let answer = loop {
        let left = last.saturating_duration_since(Instant::now());
        let path = path(&context.settings, cycle, found, mode, left);
        let measures = if is_moment(mode) { Duration::ZERO } else { left };
        let question = Question { address: &found.address, path: &path, token, measures };
        match question.ask_until(context.ending()).await {
            Ok(answer) => break answer,
            Err(Failure::Unanswered(error)) => return Err((Missed::Gone, error.to_string())),
            Err(Failure::Refused { error, retry_after: Some(wait) }) => {
                let wait = wait.max(SHORTEST);
                if wait + SHORTEST > left || context.is_ending() {
                    return Err((Missed::Busy, error.to_string()));
                }
                context.sleep_until(Instant::now() + wait).await;
            }
            Err(Failure::Refused { error, retry_after: None }) => return Err((Missed::Refused, error.to_string())),
        }
    };
    // The recorder waits with its answer until there is room for it here.
    let room = Arc::clone(&context.room).acquire_owned().await.map_err(|e| (Missed::Gone, e.to_string()))?;
    let most = usize::try_from(context.settings.max_profile).unwrap_or(usize::MAX);
    let body = answer.body(most).await.map_err(|e| (Missed::Incomplete, crate::Error::from(e).to_string()))?;
    let mut numbers = context.stats.numbers();
    numbers.profiles += 1;
    numbers.profile_bytes += body.len() as u64;
    drop(numbers);
    let (found, process) = (Arc::clone(found), Arc::clone(process));
    context.collector.take(Recorded { cycle: cycle.number, found, process, mode, body, _room: room });
    Ok(())
}

/// Whether what there is at one moment is asked for, and not what happens in a window.
fn is_moment(mode: Mode) -> bool {
    mode == Mode::Heap
}

fn path(settings: &Settings, cycle: &Cycle, found: &Found, mode: Mode, left: Duration) -> String {
    let mut path = format!("/debug/pprof/{mode}?format=raw&symbols={}", settings.symbols.name());
    if !is_moment(mode) {
        path.push_str(&format!("&seconds={:.3}", left.as_secs_f64()));
    }
    if mode.is_time() {
        path.push_str(&format!("&hz={}", found.frequency.min(cycle.governor.frequency())));
    } else if let (Mode::Allocs, Some(interval)) = (mode, settings.alloc_interval) {
        path.push_str(&format!("&interval={interval}"));
    }
    path
}
