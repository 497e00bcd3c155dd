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
use crate::{Event, Profile, Sample};
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
        let (changed, gone) = compared(newer, older, |a, b| new.is_same(a, &old, b));
        target.add(
            &new,
            &changed,
            |(sample, _)| *sample,
            |(sample, before)| {
                let before = before.iter().copied().chain(std::iter::repeat(0));
                sample.values.iter().zip(before).map(|(now, before)| now.saturating_sub(before))
            },
        );
        target.add(&old, &gone, |sample| *sample, |sample| sample.values.iter().map(|v| v.saturating_neg()));
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

/// Samples of the newer snapshot that are not the same in the older one, each with the values that it had there (none: it is not known to have been there), and those of the older one that were not found
/// in the newer. A sample may be among both: what is added up in the end is right however little is found.
///
/// The samples of a process are told in one order, with new ones in between, and most of them did not change: to look at both snapshots side by side finds nearly all for a fraction of what a table takes.
fn compared<'a>(
    newer: &'a Profile,
    older: &'a Profile,
    is_same: impl Fn(&Sample, &Sample) -> bool,
) -> (Vec<(&'a Sample, &'a [i64])>, Vec<&'a Sample>) {
    /// Samples that may be looked at in vain: in the beginning, and more for each of the older snapshot's.
    const IN_VAIN: (usize, usize) = (1024, 8);
    let (mut changed, mut gone) = (Vec::new(), Vec::new());
    let (mut rest, mut in_vain) = (&*newer.samples, IN_VAIN.0);
    for sample in &older.samples {
        in_vain += IN_VAIN.1;
        let look = rest.len().min(in_vain / 2);
        match rest[..look].iter().position(|now| is_same(now, sample)) {
            Some(at) => {
                changed.extend(rest[..at].iter().map(|new| (new, &[][..])));
                let now = &rest[at];
                if now.values != sample.values {
                    changed.push((now, &sample.values[..]));
                }
                rest = &rest[at + 1..];
            }
            None => {
                gone.push(sample);
                in_vain -= look;
            }
        }
    }
    changed.extend(rest.iter().map(|new| (new, &[][..])));
    (changed, gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Labels, SampleType, Thread, ThreadId};

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
                labels: Labels::new(),
                values: crate::values![*alloc, *inuse],
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

    /// Sums by stack and thread; none that is nothing.
    fn sums(profile: &Profile, sign: i64) -> impl Iterator<Item = ((String, u32), i64)> {
        profile.samples.iter().map(move |sample| {
            let stack = format!("{:?}", profile.stacks.frames_leaf_first(sample.stack).collect::<Vec<_>>());
            let thread = sample.thread.map_or(0, |id| profile.threads[id.index()].slot);
            ((stack, thread), sign * sample.values[0])
        })
    }

    /// Samples in any order, several of one kind, some that are new and some that are gone: however many are found side by side.
    #[test]
    fn in_whatever_order_samples_stand_their_difference_is_that_of_the_sums() {
        let mut state = 1_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..60 {
            let mut profiles = [(); 2].map(|()| {
                let mut profile = Profile::new(vec![SampleType::new("alloc_space", "bytes")]);
                profile.threads = (1..4).map(|slot| Thread { pid: 7, slot, ..Thread::default() }).collect();
                profile
            });
            let kinds = 1 + random(3000);
            for kind in 0..kinds {
                // As often a stretch of new ones as one among others that did not change.
                let (share, is_kept) = (1 + kind * 8 / kinds, random(20) > 0);
                for (profile, is_in) in profiles.iter_mut().zip([is_kept || round % 3 == 0, random(8) < share]) {
                    for _ in 0..u64::from(is_in) * (1 + random(2)) {
                        let frames = ["a", "b", "c"].map(Frame::named);
                        let stack = (0..6).map(|bit| &frames[(kind >> bit) as usize % 3]).cloned();
                        let stack = profile.stacks.intern(stack);
                        let thread = Some(ThreadId((kind % 3) as u32));
                        profile.samples.push(Sample {
                            stack,
                            thread,
                            labels: Labels::new(),
                            values: crate::values![1 + (kind % 5) as i64],
                        });
                    }
                }
            }
            if round % 4 == 0 {
                profiles[0].samples.reverse();
            }
            let [newer, older] = profiles;
            let collected = |of: &mut dyn Iterator<Item = ((String, u32), i64)>| {
                let mut collected = std::collections::BTreeMap::new();
                of.for_each(|(key, value)| *collected.entry(key).or_insert(0) += value);
                collected.retain(|_, value| *value != 0);
                collected
            };
            let difference = Profile::difference(&newer, &older);
            let expected = collected(&mut sums(&newer, 1).chain(sums(&older, -1)));
            assert_eq!(difference.samples.len(), expected.len(), "round {round}: each is told once");
            assert_eq!(collected(&mut sums(&difference, 1)), expected, "round {round}");
        }
    }

    #[test]
    fn a_snapshot_minus_itself_is_empty() {
        let snapshot = snapshot(150, 8, &[("a", 10, 10), ("b", 20, 20)]);
        let window = Profile::difference(&snapshot, &snapshot);
        assert!(window.samples.is_empty() && window.events.is_empty() && window.stacks.is_empty());
        assert_eq!(window.sample_types, snapshot.sample_types);
    }
}
