//! What processes answered: read on a thread of its own, handed to the sinks one by one, and added up for the files of this machine.

use crate::cycle::Cycle;
use crate::discover::Found;
use crate::process::Process;
use crate::settings::{Output, Settings};
use crate::sinks::{Origin, Sink};
use crate::stats::Stats;
use crate::{Error, machine, names, output, reason};
use hyper::body::Bytes;
use profile::decode::{self, Limits};
use profile::encode::col::About;
use profile::{Mode, Profile, SampleType};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// A profile may unpack to so many times its bytes.
const UNPACKED: usize = 16;
/// Most remarks of a file about all processes.
const MOST_COMMENTS: usize = 100;
/// So many profiles are merged into one at a time: what is in memory grows with the logarithm of their number.
const MERGED_AT_ONCE: usize = 8;

/// An answer.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) cycle: u64,
    pub(crate) found: Arc<Found>,
    pub(crate) process: Arc<Process>,
    pub(crate) mode: Mode,
    pub(crate) body: Bytes,
    /// Given back when the answer is dealt with.
    pub(crate) _room: OwnedSemaphorePermit,
}

enum Work {
    Recorded(Box<Recorded>),
    /// Nothing more comes of this cycle.
    End(Arc<Cycle>, oneshot::Sender<()>),
}

/// The thread, from outside.
#[derive(Debug)]
pub(crate) struct Collector {
    sender: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Starts it.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn start(settings: Arc<Settings>, sinks: Arc<Vec<Sink>>, stats: Arc<Stats>) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel();
        let machine = machine::metadata();
        let reader = Reader { settings, sinks, stats, machine, cycles: HashMap::new() };
        let thread =
            std::thread::Builder::new().name("profrec-collect".to_owned()).spawn(move || reader.run(&receiver));
        let thread = thread.map_err(|e| Error::failure(format!("cannot start a thread: {}", reason(&e))))?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    /// Takes an answer over.
    pub(crate) fn take(&self, recorded: Recorded) {
        if let Some(sender) = &self.sender {
            // It ends only when this is dropped.
            let _ = sender.send(Work::Recorded(Box::new(recorded)));
        }
    }

    /// Says that a cycle is over, and waits until its files are written.
    pub(crate) async fn end(&self, cycle: Arc<Cycle>) {
        let (done, waits) = oneshot::channel();
        if let Some(sender) = &self.sender
            && sender.send(Work::End(cycle, done)).is_ok()
        {
            let _ = waits.await;
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Reader {
    settings: Arc<Settings>,
    sinks: Arc<Vec<Sink>>,
    stats: Arc<Stats>,
    machine: Map<String, Value>,
    cycles: HashMap<u64, BTreeMap<Mode, Merger>>,
}

impl Reader {
    fn run(mut self, receiver: &Receiver<Work>) {
        for work in receiver {
            match work {
                Work::Recorded(recorded) => self.recorded(&recorded),
                Work::End(cycle, done) => {
                    self.end(&cycle);
                    let _ = done.send(());
                }
            }
        }
    }

    fn recorded(&mut self, recorded: &Recorded) {
        let Recorded { found, process, mode, body, .. } = recorded;
        let most = usize::try_from(self.settings.max_profile).unwrap_or(usize::MAX).saturating_mul(UNPACKED);
        let (mut profile, symbols) = match decode::read(body, Limits { bytes: most }) {
            Ok(read) => read,
            Err(e) => {
                self.stats.missed("unreadable");
                tracing::warn!(process = found.name, mode = mode.name(), error = %e, "what was answered is no profile");
                return;
            }
        };
        keep_columns(&mut profile, |kind| is_of(*mode, kind));
        if profile.samples.is_empty() {
            return;
        }
        let mut labels = found.labels.clone();
        let service = labels.get("service_name").map(String::as_str).or(process.service()).unwrap_or(&found.name);
        let origin = Origin { service: service.to_owned(), labels: labels.clone(), mode: Some(*mode) };
        let origin = origin.with_labels(&names::about(process));
        for sink in self.sinks.iter() {
            let mut host = crate::settings::Labels::from([("hostname".to_owned(), machine::host_name())]);
            host.extend(origin.labels.clone());
            sink.accept(&profile, &symbols, &Origin { labels: host, ..origin.clone() });
        }
        if self.settings.output.is_some() {
            labels.remove("service_name");
            let named = names::by_name(&profile, &symbols, process, &labels, self.settings.appids);
            self.cycles.entry(recorded.cycle).or_default().entry(*mode).or_default().push(named);
        }
    }

    fn end(&mut self, cycle: &Cycle) {
        let merged = self.cycles.remove(&cycle.number).unwrap_or_default();
        if let Some(output) = &self.settings.output {
            if merged.is_empty() && !cycle.is_cut_short() {
                tracing::warn!("nothing was recorded in this cycle; 'profrec list' shows who could be");
            }
            for (mode, merger) in merged {
                self.write(output, cycle, mode, merger.finish());
            }
            if let Err(e) = output.retain() {
                tracing::warn!(error = reason(&e), "cannot remove old files");
            }
        }
        let mut numbers = self.stats.numbers();
        numbers.cycles += 1;
        numbers.accounts = self.sinks.iter().map(|sink| (sink.name().to_owned(), sink.account())).collect();
    }

    fn write(&self, output: &Output, cycle: &Cycle, mode: Mode, mut profile: Profile) {
        let end = cycle.start + cycle.length();
        let nanos = |time: std::time::SystemTime| {
            time.duration_since(std::time::SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
        };
        (profile.start_unix_ns, profile.duration_ns) = (nanos(cycle.start), nanos(end) - nanos(cycle.start));
        let comments = profile.comments.len();
        if comments > MOST_COMMENTS {
            profile.comments.truncate(MOST_COMMENTS);
            profile.comments.push(format!("and {} further remarks", comments - MOST_COMMENTS));
        }
        let labels = self.settings.labels.keys().chain(self.settings.targets.iter().flat_map(|t| t.labels.keys()));
        let keys: BTreeSet<&str> = labels.map(String::as_str).chain(names::ABOUT_PROCESS).collect();
        let keys: Vec<&str> = keys.into_iter().filter(|key| *key != "service_name").collect();
        let mut metadata = self.machine.clone();
        let of_cycle = json!({
            "sampling_frequency": mode.is_time().then(|| cycle.governor.frequency()),
            "mode": mode.name(),
            "continuous": self.settings.continuous,
            "processes": profile.threads.len(),
        });
        metadata.extend(of_cycle.as_object().cloned().unwrap_or_default());
        let metrics = cycle.load.lock().unwrap_or_else(PoisonError::into_inner).metrics();
        let about = About { metadata, metrics: Some(metrics), application_keys: &keys };
        let first = self.settings.modes.first() == Some(&mode);
        let written = output::Written {
            profile: &profile,
            mode: (!first).then(|| mode.name()),
            about: &about,
            title: format!("{mode} of {} processes on {}", profile.threads.len(), machine::host_name()),
        };
        match output.write(end, &written) {
            Ok(paths) => {
                let files: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
                tracing::info!(files = files.join(" "), processes = profile.threads.len(), "saved");
            }
            Err(e) => {
                self.stats.numbers().output_errors += 1;
                tracing::error!(directory = %output.directory.display(), error = reason(&e), "cannot write");
            }
        }
    }
}

/// What a mode of the agent is about: a window says what was allocated in it, a moment what is live.
fn is_of(mode: Mode, kind: &SampleType) -> bool {
    match mode {
        Mode::Allocs => kind.kind.starts_with("alloc_"),
        Mode::Heap => kind.kind.starts_with("inuse_"),
        _ => true,
    }
}

/// Leaves out the other columns, and samples that have nothing in those that stay.
fn keep_columns(profile: &mut Profile, is_kept: impl Fn(&SampleType) -> bool) {
    let kept: Vec<bool> = profile.sample_types.iter().map(is_kept).collect();
    if !kept.contains(&true) {
        return;
    }
    let stays = |column: usize| kept.get(column).copied().unwrap_or(false);
    let default = profile.default_sample_type.and_then(|at| profile.sample_types.get(at).cloned());
    let mut column = 0..;
    profile.sample_types.retain(|_| column.next().is_some_and(stays));
    profile.default_sample_type = default.and_then(|kind| profile.sample_types.iter().position(|kept| *kept == kind));
    for sample in &mut profile.samples {
        let mut column = 0..;
        sample.values.retain(|_| column.next().is_some_and(stays));
    }
    profile.samples.retain(|sample| sample.values.iter().any(|value| *value != 0));
}

/// Many profiles into one, a few at a time.
#[derive(Debug, Default)]
struct Merger {
    /// Each merged from so many of the level below.
    levels: Vec<Vec<Profile>>,
}

impl Merger {
    fn push(&mut self, profile: Profile) {
        let mut carried = Some(profile);
        for level in &mut self.levels {
            let Some(profile) = carried.take() else { return };
            level.push(profile);
            if level.len() == MERGED_AT_ONCE {
                carried = Some(Profile::merge(level.drain(..)));
            }
        }
        self.levels.extend(carried.map(|profile| vec![profile]));
    }

    fn finish(self) -> Profile {
        Profile::merge(self.levels.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Frame, Sample, Thread, ThreadId};

    fn process(pid: u32) -> Profile {
        let mut profile =
            Profile::new(vec![SampleType::new("alloc_space", "bytes"), SampleType::new("inuse_space", "bytes")]);
        profile.threads.push(Thread { pid, process: "app".into(), ..Thread::default() });
        let stack = profile.stacks.intern([Frame::named("main")]);
        let value = i64::from(pid);
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(0)),
            labels: profile::Labels::new(),
            values: profile::values![value, 0],
        });
        profile
    }

    #[test]
    fn any_number_of_processes_is_merged_and_nothing_lost() {
        for count in [1, 7, 8, 9, 64, 100, 600] {
            let mut merger = Merger::default();
            (1..=count).for_each(|pid| merger.push(process(pid)));
            assert!(merger.levels.iter().map(Vec::len).sum::<usize>() <= 4 * MERGED_AT_ONCE, "{count}");
            let merged = merger.finish();
            assert_eq!((merged.threads.len(), merged.total(0)), (count as usize, i64::from(count * (count + 1) / 2)));
        }
    }

    #[test]
    fn a_mode_has_its_columns_and_no_samples_of_zero() {
        let mut allocs = process(5);
        allocs.default_sample_type = Some(0);
        let mut heap = allocs.clone();
        keep_columns(&mut allocs, |kind| is_of(Mode::Allocs, kind));
        assert_eq!((allocs.sample_types.len(), allocs.default_sample_type, allocs.total(0)), (1, Some(0), 5));
        keep_columns(&mut heap, |kind| is_of(Mode::Heap, kind));
        assert_eq!((heap.sample_types[0].kind.as_ref(), heap.default_sample_type), ("inuse_space", None));
        assert!(heap.samples.is_empty());
    }
}
