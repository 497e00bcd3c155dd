//! Every thread's stack, once: what `threads` answers, and Go's clients call `goroutine`.

use profile::{Profile, Sample, SampleType, ThreadId};
use std::collections::BTreeMap;

/// One sample for each thread of a profile of elapsed time: the stack that it was at for longest, with its labels.
pub(crate) fn once_each(wall: &Profile) -> Profile {
    let column = wall.default_column();
    let time = |sample: &Sample| sample.values.get(column).copied().unwrap_or(0);
    // A thread that was registered while it was looked at has two records.
    let key = |thread: ThreadId| match wall.thread(thread).map_or(0, |known| known.tid) {
        0 => (0, thread.0),
        tid => (tid, 0),
    };
    let mut longest: BTreeMap<(u32, u32), &Sample> = BTreeMap::new();
    for sample in wall.samples.iter().filter(|sample| time(sample) > 0) {
        let Some(thread) = sample.thread else { continue };
        let known = longest.entry(key(thread)).or_insert(sample);
        if time(sample) > time(known) {
            *known = sample;
        }
    }
    let samples = longest.into_values().map(|sample| Sample { values: vec![1], ..sample.clone() }).collect();
    Profile {
        mappings: wall.mappings.clone(),
        threads: wall.threads.clone(),
        stacks: wall.stacks.clone(),
        start_unix_ns: wall.start_unix_ns,
        samples,
        ..Profile::new(vec![SampleType::new("threads", "count")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Frame, Thread};

    #[test]
    fn each_thread_counts_once_at_its_longest_stack() {
        let mut wall = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("wall", "nanoseconds")]);
        let mut sample = |thread: u32, leaf: &'static str, nanos: i64| {
            let stack = wall.stacks.intern(["start", leaf].map(Frame::named));
            wall.samples.push(Sample {
                stack,
                thread: Some(ThreadId(thread)),
                labels: Vec::new(),
                values: vec![1, nanos],
            });
            stack
        };
        let (_, long, other) = (sample(0, "short", 1), sample(0, "long", 9), sample(1, "other", 5));
        sample(2, "ended before", 0);
        wall.samples.push(Sample { thread: None, ..wall.samples[0].clone() });
        wall.threads.resize(3, Thread::default());
        let threads = once_each(&wall);
        assert_eq!(threads.sample_types, [SampleType::new("threads", "count")]);
        let stacks: Vec<_> = threads.samples.iter().map(|s| (s.thread, s.stack, s.values.clone())).collect();
        assert_eq!(stacks, [(Some(ThreadId(0)), long, vec![1]), (Some(ThreadId(1)), other, vec![1])]);
    }
}
