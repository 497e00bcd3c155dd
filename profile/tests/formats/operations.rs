//! Merging, subtracting, sorting: laws that hold for every profile.

use crate::support::Random;
use profile_recorder_profile::{
    AddressKind, Frame, Label, Mapping, MappingId, Profile, Sample, SampleType, Svma, Thread, ThreadId, values,
};

/// A profile of small parts, so that different ones have much in common.
fn random(seed: u64) -> Profile {
    let mut random = Random(seed);
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
    profile.mappings = (0..3)
        .map(|i| Mapping { start: i << 20, end: (i + 1) << 20, path: format!("/lib/{i}.so"), ..Mapping::default() })
        .collect();
    profile.threads = (0..3)
        .map(|i| Thread { pid: 1, tid: 10 + i, name: format!("worker {}", random.below(2)), ..Thread::default() })
        .collect();
    for _ in 0..random.below(40) {
        let frames: Vec<Frame> = (0..random.below(5))
            .map(|_| match random.below(3) {
                0 => Frame::Named(format!("f{}", random.below(3)).into()),
                n => Frame::Address {
                    mapping: Some(MappingId(n as u32)),
                    svma: Svma(random.below(3)),
                    kind: AddressKind::ReturnAddress,
                },
            })
            .collect();
        let stack = profile.stacks.intern(frames);
        let thread = random.below(4).checked_sub(1).map(|id| ThreadId(id as u32));
        let labels = (0..random.below(2)).map(|_| Label::number("n", random.below(2) as i64)).collect();
        let values = values![random.below(9) as i64, random.below(1 << 40) as i64 - (1 << 39)];
        profile.samples.push(Sample { stack, thread, labels, values });
    }
    profile
}

/// What is measured alone, in one order.
fn sorted(mut profile: Profile) -> Profile {
    profile.samples.retain(|sample| sample.values.iter().any(|value| *value != 0));
    profile.aggregate(true, |_| true);
    profile.samples.retain(|sample| sample.values.iter().any(|value| *value != 0));
    profile.mappings.sort();
    profile
}

fn totals(profile: &Profile) -> Vec<i64> {
    (0..2).map(|column| profile.total(column)).collect()
}

/// Every sample as texts, so that numbering does not matter.
fn contents(profile: &Profile) -> Vec<String> {
    let profile = sorted(profile.clone());
    let frame = |frame: &Frame| match frame {
        Frame::Address { mapping, svma, kind } => {
            format!("{}{svma:x}{kind:?}", mapping.map_or("", |id| &profile.mapping(id).unwrap().path))
        }
        Frame::Named(name) => name.to_string(),
    };
    let mut all: Vec<String> = profile
        .samples
        .iter()
        .map(|sample| {
            let frames: Vec<String> = profile.stacks.frames_leaf_first(sample.stack).map(frame).collect();
            let thread = sample.thread.map(|id| profile.thread(id).unwrap());
            format!("{frames:?} {thread:?} {:?} {:?}", sample.labels, sample.values)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn merging_adds_whatever_the_order_and_the_grouping() {
    for seed in 0..200 {
        let [a, b, c] = [seed, seed + 1000, seed + 2000].map(random);
        let ab = Profile::merge([a.clone(), b.clone()]);
        let sum: Vec<i64> = totals(&a).iter().zip(totals(&b)).map(|(a, b)| a + b).collect();
        assert_eq!(totals(&ab), sum, "seed {seed}");
        assert_eq!(contents(&ab), contents(&Profile::merge([b.clone(), a.clone()])), "seed {seed}");
        let left = Profile::merge([ab, c.clone()]);
        let right = Profile::merge([a.clone(), Profile::merge([b.clone(), c.clone()])]);
        assert_eq!(contents(&left), contents(&right), "seed {seed}");
        assert_eq!(contents(&left), contents(&Profile::merge([a, b, c])), "seed {seed}");
    }
}

#[test]
fn a_difference_is_what_is_missing_to_the_other() {
    for seed in 0..200 {
        let [a, b] = [seed, seed + 5000].map(random);
        let difference = Profile::difference(&b, &a);
        let expected: Vec<i64> = totals(&a).iter().zip(totals(&b)).map(|(a, b)| b - a).collect();
        assert_eq!(totals(&difference), expected, "seed {seed}");
        assert!(Profile::difference(&a, &a).samples.is_empty(), "seed {seed}");
        let back = Profile::difference(&a, &b);
        let cancelled = Profile::merge([difference.clone(), back]);
        assert_eq!(contents(&cancelled), Vec::<String>::new(), "seed {seed}");
        assert_eq!(contents(&Profile::merge([a, difference])), contents(&b), "seed {seed}");
    }
}

#[test]
fn sorting_changes_nothing_but_the_order() {
    for seed in 0..200 {
        let profile = random(seed);
        let mut sorted = profile.clone();
        sorted.sort();
        assert_eq!(contents(&sorted), contents(&profile), "seed {seed}");
        let once = sorted.clone();
        sorted.sort();
        assert_eq!(sorted, once, "seed {seed}");
    }
}
