//! What the target answered once.

use super::question::Question;
use crate::diff::canonical_metric;
use crate::error::Error;
use ::agent::recorders::{Address, Failure, get};
use profile::decode::{self, Limits};
use profile::{Frame, Profile, SampleType, Symbols, names};
use std::time::{Duration, Instant};

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) question: Question,
    pub(super) profile: Profile,
    pub(super) symbols: Symbols,
    pub(super) taken: Instant,
}

impl Snapshot {
    /// Asks, and waits for the answer.
    pub(super) fn ask(address: &Address, question: Question) -> Result<Self, Failure> {
        let body = get(address, &question.path(), question.measures(), None)?;
        let (profile, symbols) = decode::read(&body, Limits::default()).map_err(|e| Failure::Refused {
            error: Error::failure(format!("what {address} answers is no profile: {e}; is it a recorder?")),
            retry_after: None,
        })?;
        Ok(Self { question, profile, symbols, taken: Instant::now() })
    }

    /// How long a time was measured; `None` for what was taken at one moment.
    pub(super) fn window(&self) -> Option<Duration> {
        let measured = u64::try_from(self.profile.duration_ns).ok().filter(|ns| *ns != 0).map(Duration::from_nanos);
        self.question.mode.is_time().then(|| measured.unwrap_or_else(|| self.question.measures()))
    }

    /// The column of a metric by any of its names; without a name, the one to show first.
    pub(super) fn column(&self, metric: Option<&str>) -> Option<usize> {
        let Some(metric) = metric else { return Some(self.profile.default_column()) };
        let is_named = |kind: &SampleType| canonical_metric(&kind.kind) == canonical_metric(metric);
        self.profile.sample_types.iter().position(is_named)
    }

    /// What the metrics are called that there are.
    pub(super) fn metrics(&self) -> Vec<String> {
        self.profile.sample_types.iter().map(|kind| canonical_metric(&kind.kind)).collect()
    }

    /// The process that answered, as the profile tells: name and pid.
    pub(super) fn process(&self) -> Option<String> {
        let thread = self.profile.threads.iter().find(|thread| thread.pid != 0)?;
        let name = if thread.process.is_empty() { &thread.name } else { &thread.process };
        let name = name.rsplit('/').next().unwrap_or(name);
        Some(format!("{name} ({})", thread.pid))
    }

    /// The names of a stack's frames, its leaf first.
    pub(super) fn frames(&self, stack: profile::StackId) -> impl Iterator<Item = String> + '_ {
        let frames = self.profile.stacks.frames_leaf_first(stack);
        let names = |frame: &Frame| -> Vec<String> {
            names::of(frame, &self.profile, &self.symbols).into_iter().map(|name| name.into_owned()).collect()
        };
        frames.flat_map(names)
    }
}
