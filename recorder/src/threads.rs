//! Every thread's stack, once: what `threads` answers, and Go's clients call `goroutine`.

use profile::{Frame, Profile, Sample, SampleType, ThreadId};
use std::collections::BTreeMap;

/// One sample for each thread of a profile of elapsed time: the stack that it was at for longest, with its labels. Time without any stack only counts for who was never seen.
pub(crate) fn once_each(wall: &Profile) -> Profile {
    let column = wall.default_column();
    let time = |sample: &Sample| sample.values.get(column).copied().unwrap_or(0);
    // A thread that was registered while it was looked at has two records.
    let key = |thread: ThreadId| match wall.thread(thread).map_or(0, |known| known.tid) {
        0 => (0, thread.0),
        tid => (tid, 0),
    };
    let rank = |sample: &Sample| (is_seen(wall, sample), time(sample));
    let mut longest: BTreeMap<(u32, u32), &Sample> = BTreeMap::new();
    for sample in wall.samples.iter().filter(|sample| time(sample) > 0) {
        let Some(thread) = sample.thread else { continue };
        let known = longest.entry(key(thread)).or_insert(sample);
        if rank(sample) > rank(known) {
            *known = sample;
        }
    }
    let samples =
        longest.into_values().map(|sample| Sample { values: profile::values![1], ..sample.clone() }).collect();
    Profile {
        mappings: wall.mappings.clone(),
        threads: wall.threads.clone(),
        stacks: wall.stacks.clone(),
        start_unix_ns: wall.start_unix_ns,
        samples,
        ..Profile::new(vec![SampleType::new("threads", "count")])
    }
}

/// How many of these threads have a stack.
pub(crate) fn seen(threads: &Profile) -> usize {
    threads.samples.iter().filter(|sample| is_seen(threads, sample)).count()
}

/// Whether there is more to a stack than why there is none.
fn is_seen(profile: &Profile, sample: &Sample) -> bool {
    let is_reason = |frame: &Frame| matches!(frame, Frame::Named(name) if name.starts_with("[truncated: "));
    !profile.stacks.frames_leaf_first(sample.stack).all(is_reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::Thread;

    #[test]
    fn each_thread_counts_once_at_its_longest_stack() {
        let mut wall = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("wall", "nanoseconds")]);
        let mut sample = |thread: u32, stack: &[&'static str], nanos: i64| {
            let stack = wall.stacks.intern(stack.iter().copied().map(Frame::named));
            wall.samples.push(Sample {
                stack,
                thread: Some(ThreadId(thread)),
                labels: profile::Labels::new(),
                values: profile::values![1, nanos],
            });
            stack
        };
        let reason = ["[truncated: stack unreadable]"];
        sample(0, &["start", "short"], 1);
        let long = sample(0, &["start", "long"], 9);
        sample(0, &reason, 20);
        let other = sample(1, &["start", "other"], 5);
        sample(2, &["start", "ended before"], 0);
        let unseen = sample(3, &reason, 3);
        wall.samples.push(Sample { thread: None, ..wall.samples[0].clone() });
        wall.threads.resize(4, Thread::default());
        let threads = once_each(&wall);
        assert_eq!(threads.sample_types, [SampleType::new("threads", "count")]);
        let stacks: Vec<_> = threads.samples.iter().map(|s| (s.thread, s.stack, s.values.clone())).collect();
        let once = [(0, long), (1, other), (3, unseen)];
        assert_eq!(stacks, once.map(|(thread, stack)| (Some(ThreadId(thread)), stack, profile::values![1])));
        assert_eq!(seen(&threads), 2);
    }
}
