//! The model: what was measured.

use crate::{AddressKey, Event, Mapping, MappingId, Sample, SampleType, Stacks, Thread, ThreadId};
use rustc_hash::FxHashSet;

/// What was measured, before anything is named.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The columns of [`Sample::values`].
    pub sample_types: Vec<SampleType>,
    /// The column to show first; `None`: the last.
    pub default_sample_type: Option<usize>,
    /// What `period` counts, if the profile was sampled.
    pub period_type: Option<SampleType>,
    /// Configured mean between two samples, in units of `period_type`.
    pub period: i64,
    /// When recording began, in nanoseconds since 1970; 0 if unknown.
    pub start_unix_ns: i64,
    /// How long was recorded, in nanoseconds; 0 if unknown or meaningless.
    pub duration_ns: i64,
    /// Files whose code was seen; the first is the main executable's.
    pub mappings: Vec<Mapping>,
    /// Threads that the samples refer to.
    pub threads: Vec<Thread>,
    /// Stacks that the samples refer to.
    pub stacks: Stacks,
    /// What was observed.
    pub samples: Vec<Sample>,
    /// Single observations with their times, as far as they were kept; they repeat a part of `samples`.
    pub events: Vec<Event>,
    /// What a reader should know: losses first of all.
    pub comments: Vec<String>,
}

impl Profile {
    /// A profile of these columns and nothing else.
    pub fn new(sample_types: Vec<SampleType>) -> Self {
        Self { sample_types, ..Self::default() }
    }

    /// Sum of a column; 0 if there is no such column. Sums beyond the range of `i64` stop at its end.
    pub fn total(&self, sample_type: usize) -> i64 {
        let sum: i128 = self.samples.iter().filter_map(|s| s.values.get(sample_type)).map(|v| i128::from(*v)).sum();
        clamp(sum)
    }

    /// The column to show first; 0 if there are none.
    pub fn default_column(&self) -> usize {
        let last = self.sample_types.len().saturating_sub(1);
        self.default_sample_type.map_or(last, |index| index.min(last))
    }

    /// The column of this kind.
    pub fn column(&self, kind: &str) -> Option<usize> {
        self.sample_types.iter().position(|t| t.kind == kind)
    }

    /// The mapping with this id.
    pub fn mapping(&self, id: MappingId) -> Option<&Mapping> {
        self.mappings.get(id.index())
    }

    /// The thread with this id.
    pub fn thread(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(id.index())
    }

    /// Every distinct address, for whoever finds the names.
    pub fn addresses(&self) -> impl Iterator<Item = AddressKey> {
        self.stacks.frames().iter().filter_map(|frame| frame.address())
    }

    /// Whether the threads belong to more than one process.
    pub fn has_several_processes(&self) -> bool {
        self.threads.iter().any(|t| (t.pid, &t.process) != (self.threads[0].pid, &self.threads[0].process))
    }

    /// Process ids of the threads, each once, 0 left out.
    pub fn pids(&self) -> Vec<u32> {
        let mut seen = FxHashSet::default();
        self.threads.iter().map(|t| t.pid).filter(|pid| *pid != 0 && seen.insert(*pid)).collect()
    }
}

pub(crate) fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}
