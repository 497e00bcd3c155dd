//! Many profiles into one.

use crate::import::{SameThread, Target};
use crate::{Profile, SampleType};

impl Profile {
    /// One profile with the samples of all: of several processes, or of several windows of one.
    ///
    /// Equal mappings, threads and samples become one. Only columns that every profile has are kept: a sum over profiles of which one
    /// did not track a type would be wrong. A profile without columns is taken as nothing at all.
    pub fn merge(profiles: impl IntoIterator<Item = Self>) -> Self {
        let mut profiles: Vec<Self> = profiles.into_iter().filter(|p| !p.sample_types.is_empty()).collect();
        if profiles.len() < 2 {
            return profiles.pop().unwrap_or_default();
        }
        let first = &profiles[0];
        let types: Vec<SampleType> = first
            .sample_types
            .iter()
            .filter(|t| profiles.iter().all(|p| p.sample_types.contains(t)))
            .cloned()
            .collect();
        let default = first.sample_types.get(first.default_column()).filter(|_| first.default_sample_type.is_some());
        let mut target = Target::new(
            Self {
                default_sample_type: default.and_then(|kept| types.iter().position(|t| t == kept)),
                period_type: first.period_type.clone(),
                period: first.period,
                ..Self::new(types)
            },
            SameThread::IfEqual,
        );
        for profile in &profiles {
            let imported = target.import(profile);
            let columns: Vec<usize> = target
                .profile
                .sample_types
                .iter()
                .filter_map(|kept| profile.sample_types.iter().position(|t| t == kept))
                .collect();
            let sample = |sample| sample;
            target.add(&imported, &profile.samples, sample, |sample| {
                columns.iter().map(|i| sample.values.get(*i).copied().unwrap_or(0))
            });
            target.profile.events.extend(profile.events.iter().map(|event| imported.event(*event)));
            for comment in &profile.comments {
                if !target.profile.comments.contains(comment) {
                    target.profile.comments.push(comment.clone());
                }
            }
        }
        let starts = profiles.iter().map(|p| p.start_unix_ns).filter(|start| *start != 0);
        let end = profiles.iter().map(|p| p.start_unix_ns.saturating_add(p.duration_ns)).max().unwrap_or(0);
        let mut merged = target.profile;
        merged.start_unix_ns = starts.min().unwrap_or(0);
        merged.duration_ns = end.saturating_sub(merged.start_unix_ns);
        merged.events.sort_unstable();
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressKind, Event, Frame, Labels, Mapping, MappingId, Sample, Svma, Thread, ThreadId};

    fn process(pid: u32, start: u64, value: i64) -> Profile {
        let mut profile =
            Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
        profile.mappings = vec![
            Mapping { start, bias: start, path: "/bin/app".into(), ..Mapping::default() },
            Mapping { start: 0x7000, bias: 0x7000, path: "/lib/libc.so".into(), ..Mapping::default() },
        ];
        profile.threads = vec![Thread { pid, tid: pid, name: "main".into(), process: "app".into(), slot: 9 }];
        let frames = [0, 1].map(|m| Frame::Address {
            mapping: Some(MappingId(m)),
            svma: Svma(16),
            kind: AddressKind::ReturnAddress,
        });
        let stack = profile.stacks.intern(frames);
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(0)),
            labels: Labels::new(),
            values: crate::values![1, value],
        });
        profile.events.push(Event { unix_ns: value, thread: ThreadId(0), stack, weight: value });
        profile.start_unix_ns = 1000 + i64::from(pid);
        profile.duration_ns = 100;
        profile
    }

    #[test]
    fn processes_keep_their_own_mappings_and_share_equal_ones() {
        let merged = Profile::merge([process(1, 0x1000, 10), process(2, 0x2000, 5)]);
        assert_eq!(merged.mappings.len(), 3, "{:?}", merged.mappings);
        assert_eq!(merged.threads.len(), 2);
        assert!(merged.has_several_processes());
        assert_eq!((merged.total(0), merged.total(1)), (2, 15));
        assert_eq!((merged.start_unix_ns, merged.duration_ns), (1001, 101));
        assert_eq!(merged.events.iter().map(|e| (e.unix_ns, e.thread.0)).collect::<Vec<_>>(), [(5, 1), (10, 0)]);
    }

    #[test]
    fn windows_of_one_process_add_up() {
        let merged = Profile::merge([process(1, 0x1000, 10), process(1, 0x1000, 5)]);
        assert_eq!(merged.samples.len(), 1);
        assert_eq!(merged.samples[0].values[..], [2, 15]);
        assert_eq!((merged.mappings.len(), merged.threads.len()), (2, 1));
    }

    #[test]
    fn a_type_that_one_profile_did_not_track_is_left_out() {
        let mut other = process(2, 0x2000, 5);
        other.sample_types.remove(0);
        other.samples[0].values.remove(0);
        let merged = Profile::merge([process(1, 0x1000, 10), other, Profile::default()]);
        assert_eq!(merged.sample_types, [SampleType::new("cpu", "nanoseconds")]);
        assert_eq!(merged.total(0), 15);
    }

    #[test]
    fn nothing_merged_is_nothing() {
        assert_eq!(Profile::merge([]), Profile::default());
    }
}
