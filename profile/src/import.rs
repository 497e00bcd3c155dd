//! Bringing the contents of one profile into another.

use crate::{Event, Frame, Labels, Mapping, MappingId, Profile, Sample, StackId, Stacks, Thread, ThreadId};
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
    samples: FxHashMap<SampleKey, u32>,
    /// Number of each set of labels, those of no labels 0.
    label_sets: FxHashMap<Labels, u32>,
    /// Where the next sample is found, if it comes in the same order as those before: snapshots of one process do.
    next: usize,
}

/// What tells samples apart: stack, thread and 1, or 0, and labels. There are as many as samples, so it is small.
type SampleKey = (StackId, u32, u32);

/// Where the contents of a profile are found in the target.
pub(crate) struct Imported {
    threads: Vec<ThreadId>,
    stacks: Vec<StackId>,
}

impl Imported {
    fn stack(&self, sample: &Sample) -> StackId {
        self.stacks[sample.stack.index()]
    }

    fn thread(&self, sample: &Sample) -> Option<ThreadId> {
        sample.thread.map(|id| self.threads[id.index()])
    }

    /// Whether two samples are one in the target, the other of a profile that is found by `others`.
    pub(crate) fn is_same(&self, sample: &Sample, others: &Self, other: &Sample) -> bool {
        (self.stack(sample), self.thread(sample)) == (others.stack(other), others.thread(other))
            && sample.labels == other.labels
    }

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
            label_sets: FxHashMap::default(),
            next: 0,
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
        let is_first = profile.stacks.is_empty() && profile.stacks.frames().is_empty();
        if is_first && mappings.iter().zip(0..).all(|(mapping, id)| mapping.0 == id) {
            profile.stacks = other.stacks.contents();
            return Imported { threads, stacks: (0..other.stacks.len() as u32).map(StackId).collect() };
        }
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
        let mut guess = Stacks::ROOT;
        for id in (0..other.stacks.len() as u32).map(StackId) {
            let here = match other.stacks.leaf_id(id) {
                Some(leaf) => {
                    let parent = stacks[other.stacks.parent(id).index()];
                    profile.stacks.push_guessed(parent, frames[leaf.index()], guess)
                }
                None => id,
            };
            stacks.push(here);
            guess = StackId(here.0 + 1);
        }
        Imported { threads, stacks }
    }

    /// For samples of a profile that was imported.
    fn make_room(&mut self, samples: usize) {
        if self.profile.samples.is_empty() {
            self.profile.samples.reserve(samples);
            self.samples.reserve(samples);
        }
        self.next = 0;
    }

    /// Adds what `items` tell of samples of the profile that `imported` came from: of each the sample, and the values that are added.
    pub(crate) fn add<'a, T, V: Iterator<Item = i64>>(
        &mut self,
        imported: &Imported,
        items: &'a [T],
        sample: impl Fn(&'a T) -> &'a Sample,
        values: impl Fn(&'a T) -> V,
    ) {
        /// So many are looked for before any is added: each step waits for memory, and those of one kind wait together.
        const AT_ONCE: usize = 128;
        self.make_room(items.len());
        let mut places = [0; AT_ONCE];
        for some in items.chunks(AT_ONCE) {
            let mut known = self.profile.samples.len();
            for (item, place) in some.iter().zip(&mut places) {
                *place = self.place(imported, sample(item), known);
                known = known.max(*place + 1);
            }
            for (item, place) in some.iter().zip(places) {
                match self.profile.samples.get_mut(place) {
                    Some(existing) => {
                        let sums = existing.values.iter_mut().zip(values(item));
                        sums.for_each(|(sum, value)| *sum = sum.saturating_add(value));
                    }
                    None => {
                        let sample = sample(item);
                        self.profile.samples.push(Sample {
                            stack: imported.stack(sample),
                            thread: imported.thread(sample),
                            labels: sample.labels.clone(),
                            values: values(item).collect(),
                        });
                    }
                }
            }
        }
    }

    /// Which of the target's samples it is; `known` if it is the next new one.
    fn place(&mut self, imported: &Imported, sample: &Sample, known: usize) -> usize {
        let (stack, thread) = (imported.stack(sample), imported.thread(sample));
        let is_same = |other: &&Sample| (other.stack, other.thread) == (stack, thread) && other.labels == sample.labels;
        let place = match self.profile.samples.get(self.next).filter(is_same) {
            Some(_) => self.next,
            None => {
                let key = (stack, thread.map_or(0, |id| id.0 + 1), self.label_set(&sample.labels));
                let known = u32::try_from(known).expect("fewer than 2^32 samples");
                *self.samples.entry(key).or_insert(known) as usize
            }
        };
        self.next = place + 1;
        place
    }

    /// The number of a set of labels.
    fn label_set(&mut self, labels: &Labels) -> u32 {
        if labels.is_empty() {
            return 0;
        }
        if let Some(known) = self.label_sets.get(labels) {
            return *known;
        }
        let id = self.label_sets.len() as u32 + 1;
        self.label_sets.insert(labels.clone(), id);
        id
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
