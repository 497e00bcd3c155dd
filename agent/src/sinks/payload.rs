//! What all sinks are sent: one process, one mode, one window.

use crate::settings::Labels;
use profile::Mode;
use profile::{Frame, Profile, Sample, Stacks};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Name of the frame below which samples stand that were too many for the engine.
const TOO_MANY: &str = "[smaller samples, added up]";

/// Where a profile comes from, as engines want to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The application.
    pub(crate) service: String,
    /// Everything else that tells it from others.
    pub(crate) labels: Labels,
    /// What was measured.
    pub(crate) mode: Option<Mode>,
}

impl Origin {
    /// The same with labels of the sink; `service_name` renames the service.
    pub(crate) fn with_labels(&self, more: &Labels) -> Self {
        let mut origin = self.clone();
        origin.labels.extend(more.clone());
        if let Some(service) = origin.labels.remove("service_name") {
            origin.service = service;
        }
        origin
    }
}

/// A random id (UUID version 4), by which an engine can tell what it was sent twice.
pub(super) fn id() -> std::io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/uuid").map(|id| id.trim_end().to_owned())
}

/// Labels by which an engine of Prometheus's kind makes a series of a profile: `__name__`, which says what it is, `service_name`, an engine's own, and as many of the others as there is room for.
pub(super) fn series_labels(
    profile: &Profile,
    origin: &Origin,
    own: &[(&str, &str)],
    most: usize,
) -> BTreeMap<String, String> {
    let known = [("__name__", series_name(profile)), ("service_name", origin.service.as_str())];
    let own = known.iter().chain(own).map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let own: BTreeMap<String, String> = own.collect();
    let room = most.saturating_sub(own.len());
    let mut all: BTreeMap<String, String> =
        origin.labels.iter().take(room).map(|(name, value)| (label_name(name), value.clone())).collect();
    all.extend(own);
    all
}

/// Names of labels are those of Prometheus.
fn label_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

fn series_name(profile: &Profile) -> &'static str {
    match profile.sample_types.last() {
        Some(kind) if kind.is_memory() => "memory",
        Some(kind) if kind.kind == "wall" => "wall",
        Some(kind) if kind.kind == "off_cpu" => "off_cpu",
        Some(kind) if kind.kind == "threads" => "goroutines",
        _ => "process_cpu",
    }
}

/// The profile without what engines would make series of (threads, system calls), and with at most so many samples.
///
/// No value is lost: what is too much is added up below one frame.
pub(super) fn reduced(profile: &Profile, most: usize, threads: bool) -> Profile {
    let mut profile = profile.clone();
    profile.events.clear();
    profile.aggregate(threads, |label| label != "syscall");
    if profile.samples.len() <= most {
        return profile;
    }
    let column = profile.default_column();
    let weight = |sample: &Sample| std::cmp::Reverse(sample.values.get(column).map_or(0, |value| value.unsigned_abs()));
    profile.samples.sort_by_key(weight);
    let small = profile.samples.split_off(most.saturating_sub(1));
    let mut values: profile::Values = profile::values![0; profile.sample_types.len()];
    for sample in &small {
        for (sum, value) in values.iter_mut().zip(&sample.values) {
            *sum = sum.saturating_add(*value);
        }
    }
    let frame = profile.stacks.frame_id(Frame::Named(Cow::Borrowed(TOO_MANY)));
    let stack = profile.stacks.push(Stacks::ROOT, frame);
    profile.samples.push(Sample { stack, thread: None, labels: profile::Labels::new(), values });
    profile.comments.push(format!("{} samples of the smallest values are one: {TOO_MANY}", small.len()));
    // What only they referred to.
    profile.aggregate(threads, |_| true);
    profile
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Label, SampleType, Thread, ThreadId};

    #[test]
    fn threads_and_small_samples_are_added_up_and_nothing_is_lost() {
        let mut profile =
            Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
        profile.threads = (0..2).map(|tid| Thread { tid, ..Thread::default() }).collect();
        for number in 0..100_i64 {
            let stack = profile.stacks.intern([Frame::named("main"), Frame::Named(format!("f{}", number / 2).into())]);
            let labels = vec![Label::text("syscall", format!("call {number}")), Label::text("route", "/")];
            let thread = Some(ThreadId(number as u32 % 2));
            profile.samples.push(Sample {
                stack,
                thread,
                labels: labels.into(),
                values: profile::values![1, 10 * number],
            });
        }
        let all = reduced(&profile, 50, false);
        assert_eq!((all.samples.len(), all.total(0), all.total(1)), (50, 100, 49_500));
        assert!(all.threads.is_empty() && all.samples.iter().all(|sample| sample.labels.len() == 1));
        let few = reduced(&profile, 10, false);
        assert_eq!((few.samples.len(), few.total(0), few.total(1)), (10, 100, 49_500));
        assert_eq!(few.samples[0].values[..], [2, 980 + 990], "the largest first");
        assert_eq!(reduced(&profile, 1000, true).samples.len(), 100);
    }
}
