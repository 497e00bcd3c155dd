//! What changed: between two snapshots of a process ([`Profile::difference`]), and between two profiles that have nothing but the names of functions in
//! common, as those of two builds ([`Comparison`]).

mod blame;
mod canonical;
mod comparison;
mod estimate;
mod moves;
mod paths;
mod rows;
mod svg;

pub use comparison::{Column, Comparison, Counts, FunctionChange, StackChange};
pub use estimate::{Change, Status};
pub use paths::Side;

pub(crate) use canonical::canonical;

use crate::import::{SameThread, Target};
use crate::{Event, Profile};
use rustc_hash::FxHashSet;

impl Profile {
    /// What `newer` holds beyond `older`, two snapshots of one process with the same columns.
    ///
    /// Values can be negative: memory that was in use is in use no more. Samples that did not change are left out. Comments are those of
    /// `newer`, and count from where it began.
    pub fn difference(newer: &Self, older: &Self) -> Self {
        let end = |p: &Self| p.start_unix_ns.saturating_add(p.duration_ns);
        let mut target = Target::new(
            Self {
                default_sample_type: newer.default_sample_type,
                period_type: newer.period_type.clone(),
                period: newer.period,
                start_unix_ns: end(older),
                duration_ns: end(newer).saturating_sub(end(older)),
                comments: newer.comments.clone(),
                ..Self::new(newer.sample_types.clone())
            },
            SameThread::IfSameSlot,
        );
        let (new, old) = (target.import(newer), target.import(older));
        target.add(&new, &newer.samples, |sample| sample.values.iter().copied());
        target.add(&old, &older.samples, |sample| sample.values.iter().map(|v| v.saturating_neg()));
        // Times are in nanoseconds: no two events of a stack share one.
        let identity = |e: Event| (e.unix_ns, e.stack, e.weight);
        let seen: FxHashSet<_> = older.events.iter().map(|e| identity(old.event(*e))).collect();
        let mut profile = target.profile;
        profile.events = newer.events.iter().map(|e| new.event(*e)).filter(|e| !seen.contains(&identity(*e))).collect();
        profile.samples.retain(|sample| sample.values.iter().any(|value| *value != 0));
        profile.drop_unused();
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Sample, SampleType, Thread, ThreadId};

    fn snapshot(end: i64, tid: u32, stacks: &[(&'static str, i64, i64)]) -> Profile {
        let mut profile =
            Profile::new(vec![SampleType::new("alloc_space", "bytes"), SampleType::new("inuse_space", "bytes")]);
        profile.threads = vec![Thread { pid: 7, tid, name: format!("t{tid}"), slot: 3, ..Thread::default() }];
        profile.start_unix_ns = 100;
        profile.duration_ns = end - 100;
        for (frame, alloc, inuse) in stacks {
            let stack = profile.stacks.intern([Frame::named("main"), Frame::named(frame)]);
            profile.events.push(Event { unix_ns: *alloc, thread: ThreadId(0), stack, weight: 1 });
            profile.samples.push(Sample {
                stack,
                thread: Some(ThreadId(0)),
                labels: vec![],
                values: vec![*alloc, *inuse],
            });
        }
        profile
    }

    #[test]
    fn a_window_holds_what_changed_in_it() {
        let older = snapshot(150, 8, &[("freed", 10, 10), ("same", 20, 20)]);
        // Meanwhile another thread of that name took the record over, and stacks were found in another order.
        let newer = snapshot(170, 0, &[("same", 20, 20), ("new", 5, 5), ("freed", 10, 0)]);
        let window = Profile::difference(&newer, &older);
        assert_eq!((window.start_unix_ns, window.duration_ns), (150, 20));
        assert_eq!(window.threads, newer.threads);
        let values: Vec<_> =
            window.samples.iter().map(|s| (window.stacks.frame(s.stack).unwrap(), &s.values[..])).collect();
        assert_eq!(values, [(&Frame::named("new"), &[5, 5][..]), (&Frame::named("freed"), &[0, -10][..])]);
        assert_eq!(window.events.iter().map(|e| e.unix_ns).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn a_snapshot_minus_itself_is_empty() {
        let snapshot = snapshot(150, 8, &[("a", 10, 10), ("b", 20, 20)]);
        let window = Profile::difference(&snapshot, &snapshot);
        assert!(window.samples.is_empty() && window.events.is_empty() && window.stacks.is_empty());
        assert_eq!(window.sample_types, snapshot.sample_types);
    }
}
