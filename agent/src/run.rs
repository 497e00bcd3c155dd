//! The life of an agent: start, cycles, reload, end.

use crate::collect::Collector;
use crate::cycle::{self, Context, Cycle};
use crate::overhead::Governor;
use crate::queue::Account;
use crate::settings::Settings;
use crate::sinks::Sink;
use crate::stats::Stats;
use crate::{Error, discover, health, logs, machine, reason};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// Answers that are read at one time.
const ANSWERS: usize = 4;

/// What an agent leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Profiles that processes answered with.
    pub profiles: u64,
    /// Files that could not be written.
    pub output_errors: u64,
    /// What became of the profiles for each sink, by its name.
    pub accounts: BTreeMap<String, Account>,
}

/// Checks settings as far as that goes without recording or sending anything, and tells what they come to, a line each.
///
/// # Errors
/// If the agent could not start with them.
pub fn check(settings: Settings) -> Result<Vec<String>, Error> {
    let settings = settings.complete()?;
    let mut lines = Vec::new();
    if let Some(output) = &settings.output {
        lines.push(format!("output: {}", output.directory.display()));
    }
    for sink in &settings.sinks {
        Sink::check(sink)?;
        lines.push(format!("sink {}: {} at {}", sink.name, sink.kind, sink.url));
    }
    if !settings.sinks.is_empty() {
        lines.push(format!("queues: {}", settings.state_dir()?.display()));
    }
    let found = discover::processes(&settings, discover::own_token()?.as_ref());
    lines.push(format!("{} processes could be recorded now", found.len()));
    for found in found {
        let modes: Vec<&str> = found.modes.iter().map(|mode| mode.name()).collect();
        lines.push(format!("  {} at {}: {}", found.name, found.address, modes.join(", ")));
    }
    Ok(lines)
}

/// Runs until one cycle is over, or, if it is to be continuous, until SIGTERM or SIGINT, which end a cycle early: what was recorded until then is kept. SIGHUP makes it ask `reload` for new settings, which
/// are in force from the next cycle on; settings that do not fit are reported, and the old ones stay.
///
/// # Errors
/// If it cannot start.
pub fn run(settings: Settings, reload: &dyn Fn() -> Result<Settings, Error>) -> Result<Finished, Error> {
    let settings = settings.complete()?;
    logs::show(&settings.log);
    allow_descriptors();
    let cannot = |e: std::io::Error| Error::failure(format!("cannot start: {}", reason(&e)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let finished = runtime.block_on(live(settings, reload));
    // Looks at files, which may hang on a dead mount, are not waited for.
    runtime.shutdown_background();
    finished
}

/// Each process takes a descriptor while it is recorded.
fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // As many as this process may have; with fewer, connections fail and are counted.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

enum Wish {
    End,
    Reload,
}

/// What signals asked for so far.
struct Asked<'a> {
    signals: &'a mut Signals,
    reload: &'a dyn Fn() -> Result<Settings, Error>,
    /// Settings of the next cycle on.
    new: Option<Box<Settings>>,
}

/// The end was asked for twice: nothing is waited for.
struct Ended;

impl Signals {
    fn new() -> Result<Self, Error> {
        let of = |kind| signal(kind).map_err(|e| Error::failure(format!("cannot wait for signals: {}", reason(&e))));
        Ok(Self {
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            hang_up: of(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
            _ = self.hang_up.recv() => Wish::Reload,
        }
    }
}

async fn live(first: Settings, reload: &dyn Fn() -> Result<Settings, Error>) -> Result<Finished, Error> {
    let mut signals = Signals::new()?;
    let stats = Arc::new(Stats::default());
    if let Some(address) = &first.listen {
        let bound = health::listen(address, Arc::clone(&stats)).await?;
        tracing::info!(address = %bound, "health and metrics");
    }
    let mut settings = Arc::new(first);
    let mut number = 0;
    loop {
        let agent = Agent::start(Arc::clone(&settings), &stats)?;
        let mut asked = Asked { signals: &mut signals, reload, new: None };
        let _ = agent.cycles(&mut asked, &mut number).await;
        let new = asked.new.filter(|_| settings.continuous && !agent.context.is_ending());
        agent.end(new.is_none()).await;
        match new {
            Some(new) => settings = Arc::new(*new),
            None => break,
        }
    }
    let numbers = stats.numbers();
    let (profiles, output_errors) = (numbers.profiles, numbers.output_errors);
    Ok(Finished { profiles, output_errors, accounts: numbers.accounts.clone() })
}

/// An agent with one set of settings.
struct Agent {
    context: Arc<Context>,
    sinks: Arc<Vec<Sink>>,
}

impl Agent {
    fn start(settings: Arc<Settings>, stats: &Arc<Stats>) -> Result<Self, Error> {
        let states = if settings.sinks.is_empty() { PathBuf::new() } else { settings.state_dir()? };
        let sinks = settings.sinks.iter().map(|sink| Sink::start(sink, &states)).collect::<Result<Vec<_>, _>>()?;
        let sinks = Arc::new(sinks);
        let context = Context {
            own_token: discover::own_token()?,
            collector: Collector::start(Arc::clone(&settings), Arc::clone(&sinks), Arc::clone(stats))?,
            stats: Arc::clone(stats),
            room: Arc::new(Semaphore::new(ANSWERS)),
            costs: Mutex::new(HashMap::new()),
            end: watch::Sender::new(None),
            settings,
        };
        Ok(Self { context: Arc::new(context), sinks })
    }

    /// One cycle after the other, until something else is asked for.
    async fn cycles(&self, asked: &mut Asked<'_>, number: &mut u64) -> Result<(), Ended> {
        let settings = &self.context.settings;
        let mut governor = Governor::new(settings.max_overhead, settings.frequency);
        let mut before: Option<JoinHandle<f64>> = None;
        if settings.continuous && *number == 0 {
            let wait = settings.duration.mul_f64(settings.jitter * fastrand::f64());
            self.or_signal(self.context.sleep_until(Instant::now() + wait), asked).await?;
        }
        while asked.new.is_none() && !self.context.is_ending() {
            let begun = (Instant::now(), own_seconds());
            let cycle = Arc::new(Cycle::begin(*number, self.length(), governor));
            *number += 1;
            {
                let mut numbers = self.context.stats.numbers();
                (numbers.due, numbers.frequency) = (Some(cycle.ends), governor.frequency());
            }
            let answers = self.or_signal(cycle::record(&self.context, &cycle), asked).await?;
            if let Some(before) = before.take() {
                // Cycles overlap by the time that answers take; if that is longer than a cycle, they wait for each other.
                let recorders = self.or_signal(before, asked).await?.unwrap_or(0.0);
                let own = own_seconds() - begun.1;
                let elapsed = begun.0.elapsed().as_secs_f64() * machine::processors() as f64;
                let cost = (recorders + own) / elapsed.max(0.001);
                governor.measured(cost);
                self.context.stats.numbers().overhead = cost;
            }
            let ending = tokio::spawn(finish(Arc::clone(&self.context), cycle, answers));
            if settings.continuous && asked.new.is_none() && !self.context.is_ending() {
                before = Some(ending);
            } else {
                let _ = self.or_signal(ending, asked).await?;
                if !settings.continuous {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The length of the next cycle: machines that began at one time drift apart.
    fn length(&self) -> Duration {
        let settings = &self.context.settings;
        let jitter = if settings.continuous { settings.jitter * (2.0 * fastrand::f64() - 1.0) } else { 0.0 };
        settings.duration.mul_f64(1.0 + jitter / 2.0)
    }

    /// What the work comes to; that comes early once a signal asked for the end.
    async fn or_signal<T>(&self, work: impl Future<Output = T>, asked: &mut Asked<'_>) -> Result<T, Ended> {
        tokio::pin!(work);
        loop {
            let wish = tokio::select! {
                done = &mut work => return Ok(done),
                wish = asked.signals.next() => wish,
            };
            match wish {
                Wish::End if self.context.is_ending() => {
                    self.context.end.send_replace(Some(Instant::now()));
                    return Err(Ended);
                }
                Wish::End => {
                    tracing::info!("ending, with what was recorded so far");
                    self.context.end.send_replace(Some(Instant::now() + self.context.settings.drain));
                }
                Wish::Reload => match (asked.reload)().and_then(Settings::complete) {
                    Ok(settings) => {
                        if (&settings.listen, &settings.log)
                            != (&self.context.settings.listen, &self.context.settings.log)
                        {
                            tracing::warn!("a new listen or log takes a restart");
                        }
                        tracing::info!("the configuration was read again; it is in force from the next cycle on");
                        asked.new = Some(Box::new(settings));
                    }
                    Err(e) => tracing::error!(error = %e, "the configuration is not used; the old one stays"),
                },
            }
        }
    }

    /// Lets queues empty, for a while, if the agent ends.
    async fn end(self, for_good: bool) {
        let Self { context, sinks } = self;
        let until = context.end.borrow().unwrap_or_else(|| Instant::now() + context.settings.drain);
        let stats = Arc::clone(&context.stats);
        // Of an interrupted cycle, tasks may still hold it; they end with the runtime.
        drop(context);
        while for_good && sinks.iter().any(|sink| sink.account().kept > 0) && Instant::now() < until {
            sleep(Duration::from_millis(50)).await;
        }
        stats.numbers().accounts = sinks.iter().map(|sink| (sink.name().to_owned(), sink.account())).collect();
        // Waits for the requests that are on their way.
        let _ = tokio::task::spawn_blocking(move || drop(sinks)).await;
    }
}

/// Waits for all answers of a cycle and writes its files. Returns the processor time that recorders took, in seconds.
async fn finish(context: Arc<Context>, cycle: Arc<Cycle>, mut answers: JoinSet<()>) -> f64 {
    let all = async { while answers.join_next().await.is_some() {} };
    tokio::select! {
        () = all => {}
        () = context.too_late() => {
            tracing::warn!("some recorders did not answer in time; what they recorded in this cycle is lost");
        }
    }
    drop(answers);
    context.collector.end(Arc::clone(&cycle)).await;
    *cycle.cost.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processor time of this process so far.
fn own_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0);
    // User and system time, in ticks, of which there are a hundred a second on every Linux.
    (ticks(11) + ticks(12)) / 100.0
}
