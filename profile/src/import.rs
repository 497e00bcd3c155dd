//! Bringing the contents of one profile into another.

use crate::{Event, Frame, Label, Mapping, MappingId, Profile, Sample, StackId, Thread, ThreadId};
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// When two threads of different profiles are the same.
#[derive(Clone, Copy)]
pub(crate) enum SameThread {
    /// All that is known about them is equal.
    IfEqual,
    /// They have the same number in the store of the same process, whatever happened to name and tid in between.
    IfSameSlot,
}

#[derive(PartialEq, Eq, Hash)]
enum ThreadKey {
    Whole(Thread),
    Slot { pid: u32, slot: u32 },
}

impl SameThread {
    fn key(self, thread: &Thread) -> ThreadKey {
        match self {
            Self::IfSameSlot if thread.slot != 0 => ThreadKey::Slot { pid: thread.pid, slot: thread.slot },
            _ => ThreadKey::Whole(thread.clone()),
        }
    }
}

/// A profile that others are brought into.
pub(crate) struct Target {
    pub(crate) profile: Profile,
    same_thread: SameThread,
    mappings: FxHashMap<Mapping, MappingId>,
    threads: FxHashMap<ThreadKey, ThreadId>,
    samples: FxHashMap<(StackId, Option<ThreadId>, Vec<Label>), usize>,
}

/// Where the contents of a profile are found in the target.
pub(crate) struct Imported {
    threads: Vec<ThreadId>,
    stacks: Vec<StackId>,
}

impl Imported {
    pub(crate) fn event(&self, event: Event) -> Event {
        Event { stack: self.stacks[event.stack.index()], thread: self.threads[event.thread.index()], ..event }
    }
}

impl Target {
    /// A target without samples and events; everything else is taken from `profile`'s head.
    pub(crate) fn new(profile: Profile, same_thread: SameThread) -> Self {
        Self {
            profile,
            same_thread,
            mappings: FxHashMap::default(),
            threads: FxHashMap::default(),
            samples: FxHashMap::default(),
        }
    }

    /// Enters mappings, threads and stacks of `other`.
    pub(crate) fn import(&mut self, other: &Profile) -> Imported {
        let profile = &mut self.profile;
        let mappings: Vec<MappingId> = other
            .mappings
            .iter()
            .map(|m| intern(&mut self.mappings, &mut profile.mappings, m.clone(), m, MappingId))
            .collect();
        let threads = other
            .threads
            .iter()
            .map(|t| intern(&mut self.threads, &mut profile.threads, self.same_thread.key(t), t, ThreadId))
            .collect();
        let frames: Vec<_> = other
            .stacks
            .frames()
            .iter()
            .map(|frame| {
                profile.stacks.frame_id(match frame {
                    Frame::Address { mapping, svma, kind } => Frame::Address {
                        mapping: mapping.and_then(|id| mappings.get(id.index()).copied()),
                        svma: *svma,
                        kind: *kind,
                    },
                    named => named.clone(),
                })
            })
            .collect();
        let mut stacks = Vec::with_capacity(other.stacks.len());
        for id in (0..other.stacks.len() as u32).map(StackId) {
            stacks.push(match other.stacks.leaf_id(id) {
                Some(leaf) => profile.stacks.push(stacks[other.stacks.parent(id).index()], frames[leaf.index()]),
                None => id,
            });
        }
        Imported { threads, stacks }
    }

    /// Adds a sample of the profile that `imported` came from, its values chosen and changed by `values`.
    pub(crate) fn add(&mut self, imported: &Imported, sample: &Sample, values: impl Iterator<Item = i64>) {
        let stack = imported.stacks[sample.stack.index()];
        let thread = sample.thread.map(|id| imported.threads[id.index()]);
        let samples = &mut self.profile.samples;
        let index = *self.samples.entry((stack, thread, sample.labels.clone())).or_insert(samples.len());
        if let Some(existing) = samples.get_mut(index) {
            for (sum, value) in existing.values.iter_mut().zip(values) {
                *sum = sum.saturating_add(value);
            }
        } else {
            samples.push(Sample { stack, thread, labels: sample.labels.clone(), values: values.collect() });
        }
    }
}

fn intern<K: Hash + Eq, T: Clone, I: Copy>(
    ids: &mut FxHashMap<K, I>,
    all: &mut Vec<T>,
    key: K,
    value: &T,
    id: impl Fn(u32) -> I,
) -> I {
    *ids.entry(key).or_insert_with(|| {
        all.push(value.clone());
        id(u32::try_from(all.len() - 1).expect("fewer than 2^32"))
    })
}
