//! The values of a store, as profiles.

use super::nodes::{Modules, Nodes, Place, lost_frame};
use super::{Decoded, saturate, text_of, unsampled};
use crate::{Event, Labels, Profile, Sample, SampleType, StackId, Stacks, Thread, ThreadId, Values};
use layout::{
    AllocValuesFields, HeaderFields, Lost, NodeFields, OBJECTS_FRACTION_BITS, RecordId, Root, ThreadFields,
    TimeSampleFields, TimeValuesFields, View, modes,
};
use rustc_hash::FxHashMap;

/// Columns of a store's values before they are what a profile shows: object counts still have fractions.
type Raw = [u64; 5];

/// Samples with equal keys are one.
type Key = (StackId, Option<ThreadId>, Labels);

/// Adds the profiles that the store holds.
pub(super) fn add(view: &View<'_>, header: &HeaderFields, decoded: &mut Decoded) {
    let modules = Modules::new(view, &decoded.exe);
    let mut building = Building {
        view: *view,
        nodes: Nodes::new(*view, &modules),
        process: decoded.process().to_owned(),
        pid: decoded.pid,
        threads: Vec::new(),
        of_record: FxHashMap::default(),
        trees: Default::default(),
        unreadable: 0,
    };
    building.values();
    building.lost(decoded);
    building.unsampled(header, decoded);
    let events = building.events(header);
    for (root, recorded) in [
        (Root::Allocs, decoded.records_allocations()),
        (Root::Cpu, decoded.modes & modes::CPU != 0),
        (Root::Wall, decoded.modes & modes::WALL != 0),
    ] {
        if !recorded && building.trees[root as usize].order.is_empty() {
            continue;
        }
        let mut profile = building.profile(root, header, decoded, &events[root as usize]);
        profile.mappings.clone_from(&modules.mappings);
        profile.drop_unused();
        match root {
            Root::Allocs => decoded.allocs = Some(profile),
            Root::Cpu => decoded.cpu = Some(profile),
            Root::Wall => decoded.wall = Some(profile),
        }
    }
}

/// The samples of one tree, in the order in which they were found.
#[derive(Default)]
struct Samples {
    order: Vec<(Key, Raw)>,
    index: FxHashMap<Key, usize>,
}

impl Samples {
    fn add(&mut self, key: Key, raw: Raw) {
        let index = *self.index.entry(key.clone()).or_insert(self.order.len());
        match self.order.get_mut(index) {
            Some((_, sums)) => sums.iter_mut().zip(raw).for_each(|(sum, value)| *sum = sum.saturating_add(value)),
            None => self.order.push((key, raw)),
        }
    }
}

struct Building<'a> {
    view: View<'a>,
    nodes: Nodes<'a>,
    process: String,
    pid: u32,
    threads: Vec<Thread>,
    /// By record and, for single samples of a record that stands for several threads, by thread id.
    of_record: FxHashMap<(RecordId, u32), Option<ThreadId>>,
    /// By the number of the tree's [`Root`].
    trees: [Samples; 4],
    /// Nodes with values whose stack could not be read.
    unreadable: u64,
}

impl Building<'_> {
    fn values(&mut self) {
        let view = self.view;
        for (id, _, node) in view.records::<NodeFields>() {
            if node.values == 0 || node.frame == 0 {
                continue;
            }
            let Some(place) = self.nodes.place(id) else {
                self.unreadable += 1;
                continue;
            };
            let values = RecordId(node.values);
            let raw = match place.root {
                Root::Allocs => view.get::<AllocValuesFields>(values).map(|v| {
                    let freed_objects_q16 = v.freed_objects_q16.saturating_add(v.freed_elsewhere_objects_q16);
                    let freed_bytes = v.freed_bytes.saturating_add(v.freed_elsewhere_bytes);
                    [v.objects_q16, v.bytes, freed_objects_q16, freed_bytes, v.temporary_objects_q16]
                }),
                Root::Cpu | Root::Wall => view.get::<TimeValuesFields>(values).map(|v| [v.samples, v.nanos, 0, 0, 0]),
            };
            let Some(raw) = raw else {
                self.unreadable += 1;
                continue;
            };
            // The text of a label set may not be there in full yet: the next snapshot has it.
            let Some(key) = self.key(place) else {
                self.unreadable += 1;
                continue;
            };
            self.trees[place.root as usize].add(key, raw);
        }
    }

    fn key(&mut self, place: Place) -> Option<Key> {
        Some((place.stack, self.thread(place.thread, 0), self.nodes.labels(place)?))
    }

    /// The thread of a record. With a `tid` that the record does not have, the thread with that id.
    fn thread(&mut self, record: RecordId, tid: u32) -> Option<ThreadId> {
        if let Some(known) = self.of_record.get(&(record, tid)) {
            return *known;
        }
        let found = self.view.get::<ThreadFields>(record).filter(|f| f.used != 0 || f.tid != 0 || f.name != [0, 0]);
        let id = found.map(|fields| {
            if tid == fields.tid && tid != 0 {
                return self.thread(record, 0);
            }
            self.threads.push(Thread {
                pid: self.pid,
                tid: if tid == 0 { fields.tid } else { tid },
                name: text_of(&fields.name, 16),
                process: self.process.clone(),
                slot: if tid == 0 { record.0 } else { 0 },
            });
            Some(ThreadId(self.threads.len() as u32 - 1))
        });
        *self.of_record.entry((record, tid)).or_insert(id.flatten())
    }

    /// Values that were counted in the header alone, as samples of their own: bytes belong to allocations, time to the one tree of time if there is one.
    fn lost(&mut self, decoded: &Decoded) {
        let time = match (decoded.modes & modes::CPU != 0, decoded.modes & modes::WALL != 0) {
            (true, false) => Some(Root::Cpu),
            (false, true) => Some(Root::Wall),
            _ => None,
        };
        let allocations = decoded.records_allocations().then_some(Root::Allocs);
        for loss in &decoded.lost {
            // For these two the values are in place, only details are missing.
            if loss.weight == 0 || matches!(loss.reason, Lost::LogFull | Lost::LiveTableFull) {
                continue;
            }
            let Some(root) = (if loss.reason.is_time() { time } else { allocations }) else { continue };
            let stack = self.nodes.stacks[root as usize].intern([lost_frame(loss.reason)]);
            let count =
                if root == Root::Allocs { loss.events.saturating_mul(1 << OBJECTS_FRACTION_BITS) } else { loss.events };
            self.trees[root as usize].add((stack, None, Labels::new()), [count, loss.weight, 0, 0, 0]);
        }
    }

    /// CPU time of threads, and of the process, that no sample explains, as samples of their own.
    fn unsampled(&mut self, header: &HeaderFields, decoded: &Decoded) {
        if decoded.modes & modes::CPU == 0 || header.last_cpu_ns == 0 {
            return;
        }
        let stack = self.nodes.stacks[Root::Cpu as usize].intern([unsampled::frame()]);
        let view = self.view;
        for (id, _, thread) in view.records::<ThreadFields>().filter(|(_, _, thread)| thread.unsampled_cpu_ns != 0) {
            let key = (stack, self.thread(id, 0), Labels::new());
            self.trees[Root::Cpu as usize].add(key, [0, thread.unsampled_cpu_ns, 0, 0, 0]);
        }
        let spent = header.last_cpu_ns.saturating_sub(header.start_cpu_ns);
        let tree = &mut self.trees[Root::Cpu as usize];
        let sampled = tree.order.iter().fold(0_u64, |sum, (_, [_, nanos, ..])| sum.saturating_add(*nanos));
        let left = spent.saturating_sub(sampled);
        if left != 0 {
            tree.add((stack, None, Labels::new()), [0, left, 0, 0, 0]);
        }
    }

    /// The single samples by tree, each in the order of their times.
    fn events(&mut self, header: &HeaderFields) -> [Vec<Event>; 4] {
        let mut events: [Vec<Event>; 4] = Default::default();
        let view = self.view;
        for (_, _, sample) in view.records::<TimeSampleFields>().filter(|(_, _, sample)| sample.node != 0) {
            let Some(place) = self.nodes.place(RecordId(sample.node)) else { continue };
            let Some(thread) = self.thread(RecordId(sample.thread), sample.tid) else { continue };
            let since_start = i128::from(sample.monotonic_ns) - i128::from(header.start_monotonic_ns);
            events[place.root as usize].push(Event {
                unix_ns: crate::profile::clamp(i128::from(header.start_realtime_ns) + since_start),
                thread,
                stack: place.stack,
                weight: saturate(sample.weight_ns),
            });
        }
        events.iter_mut().for_each(|events| events.sort_unstable());
        events
    }

    fn profile(&mut self, root: Root, header: &HeaderFields, decoded: &Decoded, events: &[Event]) -> Profile {
        let heap = header.modes & modes::HEAP != 0;
        let (types, default, period_type, period) = match root {
            Root::Allocs => {
                let columns = if heap { &HEAP[..] } else { &ALLOCS[..] };
                let default = if heap { IN_USE_BYTES } else { 0 };
                (columns, Some(default), SampleType::new("space", "bytes"), header.alloc_interval_bytes)
            }
            Root::Cpu => (&CPU[..], None, SampleType::new("cpu", "nanoseconds"), header.period_ns),
            Root::Wall => (&WALL[..], None, SampleType::new("wall", "nanoseconds"), header.period_ns),
        };
        let samples = std::mem::take(&mut self.trees[root as usize]).order.into_iter().filter_map(|(key, raw)| {
            let values = if root == Root::Allocs {
                allocations(raw, heap)
            } else {
                raw[..2].iter().map(|v| saturate(*v)).collect()
            };
            let (stack, thread, labels) = key;
            values.iter().any(|v| *v != 0).then(|| Sample { stack, thread, labels, values })
        });
        Profile {
            sample_types: types.to_vec(),
            default_sample_type: default,
            period_type: Some(period_type),
            period: saturate(period),
            start_unix_ns: decoded.start_unix_ns,
            duration_ns: decoded.duration_ns,
            mappings: Vec::new(),
            threads: self.threads.clone(),
            samples: samples.collect(),
            stacks: std::mem::replace(&mut self.nodes.stacks[root as usize], Stacks::new()),
            events: events.to_vec(),
            comments: self.comments(root, decoded),
        }
    }

    fn comments(&self, root: Root, decoded: &Decoded) -> Vec<String> {
        let who = format!("{} (pid {})", decoded.process(), decoded.pid);
        let time = root != Root::Allocs;
        let mut comments: Vec<String> = decoded
            .lost
            .iter()
            .filter(|loss| loss.reason == Lost::LabelsFull || loss.reason.is_time() == time)
            .map(|loss| format!("{who}: {loss}"))
            .collect();
        comments.extend(decoded.unseen().filter(|_| !time).map(|unseen| format!("{who}: {unseen}")));
        comments.extend(decoded.unfollowed_texts().map(|text| format!("{who}: {text}")));
        if self.unreadable != 0 {
            comments.push(format!("{who}: {} stacks in its store could not be read", self.unreadable));
        }
        comments
    }
}

static ALLOCS: [SampleType; 3] = [
    SampleType::new("alloc_objects", "count"),
    SampleType::new("alloc_space", "bytes"),
    SampleType::new("temporary_objects", "count"),
];
static HEAP: [SampleType; 5] = [
    SampleType::new("alloc_objects", "count"),
    SampleType::new("alloc_space", "bytes"),
    SampleType::new("inuse_objects", "count"),
    SampleType::new("inuse_space", "bytes"),
    SampleType::new("temporary_objects", "count"),
];
const IN_USE_BYTES: usize = 3;
static CPU: [SampleType; 2] = [SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")];
static WALL: [SampleType; 2] = [SampleType::new("samples", "count"), SampleType::new("wall", "nanoseconds")];

/// What a profile shows of allocations. Fractions of objects end here.
fn allocations([objects_q16, bytes, freed_objects_q16, freed_bytes, temporary_q16]: Raw, heap: bool) -> Values {
    let whole = |q16: u64| saturate(q16.saturating_add(1 << (OBJECTS_FRACTION_BITS - 1)) >> OBJECTS_FRACTION_BITS);
    let mut values = crate::values![whole(objects_q16), saturate(bytes)];
    if heap {
        // A free can be read that came after its allocation was: nothing is in use less than not at all.
        values.push(whole(objects_q16.saturating_sub(freed_objects_q16)));
        values.push(saturate(bytes.saturating_sub(freed_bytes)));
    }
    values.push(whole(temporary_q16));
    values
}
