//! The processed profile format of Firefox Profiler, for <https://profiler.firefox.com> and `@firefox-devtools/profiler-cli`.
//!
//! - Time: each thread is a track, each observation a sample at its time, weighing as many samples as it stands for; CPU time is the
//!   sample's CPU delta, in microseconds. A profile of time without a count of samples weighs in milliseconds, rounded so that their
//!   sum is right. Leaf frames have the category of the thread's state: on-CPU, runnable, off-CPU; what was lost has one of its own.
//! - Memory: native allocations of the process's first track, which is where the viewer looks for them. `Allocations` shows the bytes
//!   asked, `Retained allocations` those in use. Numbers of objects have no place there: with [`Options::sample_type`] a profile of
//!   objects becomes samples that weigh objects.
//! - Comments are markers over the whole time, and so is each reason that something was lost for, with how much that was.
//!
//! Observations without a time of their own begin with the profile, those of each thread one after the other.
//!
//! A weight is a number of 32 bits there. A larger one is split into at most [`MAX_SPLIT`] samples; what is beyond is not shown, and a
//! marker says how much.

use super::{one_line, svg, timeline};
use crate::{Frame, LabelValue, Options, Profile, Sample, StackId, Stacks, Symbols, Thread, ThreadId, names};
use fxprof_processed_profile as fx;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

/// More samples than this are never made of repeated observations.
const MAX_REPEATED: i64 = 200_000;
/// Samples that a weight beyond 32 bits becomes.
pub const MAX_SPLIT: i64 = 1024;

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let column = options.column(profile)?;
    let mut writer = Writer::new(profile, symbols, options);
    match profile.sample_types.get(column) {
        Some(of) if of.unit == "bytes" => writer.allocations(column),
        Some(of) if of.unit == "nanoseconds" => writer.times(column)?,
        _ => writer.counts(column)?,
    }
    writer.comments();
    writer.losses();
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    serde_json::to_writer(&mut out, &writer.out)?;
    out.flush()
}

/// Colours of the tracks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Category {
    Other,
    OnCpu,
    Runnable,
    OffCpu,
    Allocation,
    Lost,
}

impl Category {
    const ALL: [(Self, &'static str, fx::CategoryColor); 5] = [
        (Self::OnCpu, "On-CPU", fx::CategoryColor::Yellow),
        (Self::Runnable, "Runnable", fx::CategoryColor::Orange),
        (Self::OffCpu, "Off-CPU", fx::CategoryColor::LightBlue),
        (Self::Allocation, "Allocation", fx::CategoryColor::Green),
        (Self::Lost, "Lost", fx::CategoryColor::Red),
    ];

    /// The state that a sample is labelled with.
    fn of_state(sample: &Sample) -> Option<Self> {
        let state = sample.labels.iter().find(|label| label.key == "state")?;
        match &state.value {
            LabelValue::Text(text) if text == "on-cpu" => Some(Self::OnCpu),
            LabelValue::Text(text) if text == "runnable" => Some(Self::Runnable),
            LabelValue::Text(text) if text == "off-cpu" => Some(Self::OffCpu),
            _ => None,
        }
    }
}

struct Writer<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    out: fx::Profile,
    categories: FxHashMap<Category, fx::CategoryHandle>,
    processes: FxHashMap<u32, fx::ProcessHandle>,
    /// The first of each process.
    first_threads: FxHashMap<u32, fx::ThreadHandle>,
    threads: FxHashMap<Option<ThreadId>, fx::ThreadHandle>,
    stacks: FxHashMap<(fx::ThreadHandle, StackId, Category), fx::StackHandle>,
    /// State of what a thread was seen doing; events say nothing about it.
    states: FxHashMap<(Option<ThreadId>, StackId), Category>,
    /// What did not fit into a weight.
    beyond: i128,
}

impl<'a> Writer<'a> {
    fn new(profile: &'a Profile, symbols: &'a Symbols, options: &Options) -> Self {
        let start = UNIX_EPOCH + Duration::from_nanos(unsigned(profile.start_unix_ns));
        let is_time = profile.period_type.as_ref().is_some_and(|t| t.unit == "nanoseconds");
        let interval = if is_time { unsigned(profile.period) } else { 0 };
        let mut out = fx::Profile::new(
            &svg::title(profile, options),
            start.into(),
            fx::SamplingInterval::from_nanos(if interval == 0 { 1_000_000 } else { interval }),
        );
        out.set_os_name("Linux");
        out.set_symbolicated(true);
        let mut categories = FxHashMap::default();
        categories.insert(Category::Other, fx::CategoryHandle::OTHER);
        for (category, name, color) in Category::ALL {
            categories.insert(category, out.add_category(name, color));
        }
        let mut states = FxHashMap::default();
        for sample in &profile.samples {
            if let Some(state) = Category::of_state(sample) {
                states.entry((sample.thread, sample.stack)).or_insert(state);
            }
        }
        let mut writer = Self {
            profile,
            symbols,
            out,
            categories,
            processes: FxHashMap::default(),
            first_threads: FxHashMap::default(),
            threads: FxHashMap::default(),
            stacks: FxHashMap::default(),
            states,
            beyond: 0,
        };
        (0..profile.threads.len() as u32).for_each(|id| _ = writer.thread(Some(ThreadId(id))));
        // What belongs to nobody in particular needs a place, and so do the comments.
        if profile.threads.is_empty() || profile.samples.iter().any(|sample| sample.thread.is_none()) {
            writer.thread(None);
        }
        writer
    }

    fn thread(&mut self, id: Option<ThreadId>) -> fx::ThreadHandle {
        if let Some(known) = self.threads.get(&id) {
            return *known;
        }
        let nobody = Thread { name: "[no thread]".into(), ..Thread::default() };
        let thread = id.and_then(|id| self.profile.thread(id)).unwrap_or(&nobody);
        let pid = if id.is_none() { self.profile.threads.first().map_or(0, |first| first.pid) } else { thread.pid };
        let begin = fx::Timestamp::from_nanos_since_reference(0);
        let process = *self.processes.entry(pid).or_insert_with(|| {
            let name = if thread.process.is_empty() { "process" } else { &thread.process };
            self.out.add_process(&one_line(name), pid, begin)
        });
        let is_main = thread.tid != 0 && thread.tid == pid;
        let handle = self.out.add_thread(process, thread.tid, begin, is_main);
        self.out.set_thread_name(handle, &one_line(&thread.name));
        self.first_threads.entry(pid).or_insert(handle);
        self.threads.insert(id, handle);
        handle
    }

    /// The stack, its leaf in this category. `None`: no frames.
    fn stack(&mut self, thread: fx::ThreadHandle, stack: StackId, leaf: Category) -> Option<fx::StackHandle> {
        // Root-most last: what is not known yet.
        let mut unknown = Vec::new();
        let (mut at, mut category) = (stack, leaf);
        let mut found = loop {
            if at == Stacks::ROOT {
                break None;
            }
            if let Some(known) = self.stacks.get(&(thread, at, category)) {
                break Some(*known);
            }
            unknown.push((at, category));
            at = self.profile.stacks.parent(at);
            category = Category::Other;
        };
        for (stack, category) in unknown.into_iter().rev() {
            let Some(frame) = self.profile.stacks.frame(stack) else { continue };
            let names = names::of(frame, self.profile, self.symbols);
            let innermost = names.len().saturating_sub(1);
            for (i, name) in names.into_iter().rev().enumerate() {
                let lost = matches!(frame, Frame::Named(name) if is_loss(name));
                let category = match category {
                    _ if lost => Category::Lost,
                    category if i == innermost => category,
                    _ => Category::Other,
                };
                let info = fx::FrameInfo {
                    frame: fx::Frame::Label(self.out.intern_string(&name)),
                    category_pair: self.categories[&category].into(),
                    flags: fx::FrameFlags::empty(),
                };
                let frame = self.out.intern_frame(thread, info);
                found = Some(self.out.intern_stack(thread, found, frame));
            }
            found.into_iter().for_each(|handle| _ = self.stacks.insert((thread, stack, category), handle));
        }
        found
    }

    /// A stack that stands for one without frames too.
    fn stack_or_none(&mut self, thread: fx::ThreadHandle, stack: StackId, leaf: Category) -> Option<fx::StackHandle> {
        if stack != Stacks::ROOT {
            return self.stack(thread, stack, leaf);
        }
        let info = fx::FrameInfo {
            frame: fx::Frame::Label(self.out.intern_string(crate::named::NO_STACK)),
            category_pair: self.categories[&leaf].into(),
            flags: fx::FrameFlags::empty(),
        };
        let frame = self.out.intern_frame(thread, info);
        Some(self.out.intern_stack(thread, None, frame))
    }

    fn since_start(&self, unix_ns: i64) -> fx::Timestamp {
        fx::Timestamp::from_nanos_since_reference(unsigned(unix_ns.saturating_sub(self.profile.start_unix_ns)))
    }

    fn times(&mut self, column: usize) -> io::Result<()> {
        let profile = self.profile;
        let counted = profile.column("samples").is_some_and(|column| profile.sample_types[column].unit == "count");
        let is_cpu = profile.sample_types[column].kind == "cpu";
        // The CPU delta of a sample is that since the one before it: without a first one, the first would have none.
        let threads: Vec<_> = self.threads.values().copied().collect();
        for thread in threads {
            let begin = fx::Timestamp::from_nanos_since_reference(0);
            self.out.add_sample(thread, begin, None, fx::CpuDelta::ZERO, 0);
        }
        // What rounding left over, so that it is not lost in the sum.
        let mut nanos = 0_i128;
        timeline::entries(profile, column, MAX_REPEATED, |entry| {
            let thread = self.thread(entry.thread);
            let of_sample = entry.sample.and_then(Category::of_state);
            let state = of_sample.or_else(|| self.states.get(&(entry.thread, entry.stack)).copied());
            let default = if is_cpu { Category::OnCpu } else { Category::Other };
            let stack = self.stack_or_none(thread, entry.stack, state.unwrap_or(default));
            let used_cpu = match state {
                None => is_cpu,
                Some(state) => state == Category::OnCpu,
            };
            let delta = fx::CpuDelta::from_nanos(if used_cpu { unsigned(entry.value) } else { 0 });
            let weight = if counted {
                entry.count
            } else {
                let before = nanos / 1_000_000;
                nanos += i128::from(entry.value);
                crate::profile::clamp(nanos / 1_000_000 - before)
            };
            // A sample stands for the time before it. Events say when that was over.
            let end = entry.unix_ns.saturating_add(if entry.sample.is_some() { entry.value.max(0) } else { 0 });
            let at = self.since_start(end);
            self.sample(thread, at, stack, delta, weight);
            Ok(())
        })?;
        if !counted {
            self.weigh(fx::WeightType::TracingMs);
        }
        Ok(())
    }

    /// Samples that weigh what they count.
    fn counts(&mut self, column: usize) -> io::Result<()> {
        let profile = self.profile;
        let begin = fx::Timestamp::from_nanos_since_reference(0);
        for sample in &profile.samples {
            let value = sample.values.get(column).copied().unwrap_or(0);
            if value != 0 {
                let thread = self.thread(sample.thread);
                let stack = self.stack_or_none(thread, sample.stack, Category::Other);
                self.sample(thread, begin, stack, fx::CpuDelta::ZERO, value);
            }
        }
        Ok(())
    }

    fn sample(
        &mut self,
        thread: fx::ThreadHandle,
        at: fx::Timestamp,
        stack: Option<fx::StackHandle>,
        mut delta: fx::CpuDelta,
        weight: i64,
    ) {
        let mut rest = weight;
        for _ in 0..MAX_SPLIT {
            let part = rest.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
            self.out.add_sample(thread, at, stack, delta, part);
            delta = fx::CpuDelta::ZERO;
            rest -= i64::from(part);
            if rest == 0 {
                return;
            }
        }
        self.beyond += i128::from(rest);
    }

    fn weigh(&mut self, by: fx::WeightType) {
        let threads: Vec<_> = self.threads.values().copied().collect();
        threads.into_iter().for_each(|thread| self.out.set_thread_samples_weight_type(thread, by.clone()));
    }

    /// What is in use was allocated and stays; the rest was allocated and freed.
    fn allocations(&mut self, column: usize) {
        let profile = self.profile;
        let (asked, in_use) = (profile.column("alloc_space"), profile.column("inuse_space"));
        let begin = fx::Timestamp::from_nanos_since_reference(0);
        let end = fx::Timestamp::from_nanos_since_reference(unsigned(profile.duration_ns));
        let mut address = 0;
        for sample in &profile.samples {
            let value = |column: usize| sample.values.get(column).copied().unwrap_or(0);
            let pid = sample.thread.and_then(|id| profile.thread(id)).map(|thread| thread.pid);
            let thread = self.thread(sample.thread);
            let thread = pid.and_then(|pid| self.first_threads.get(&pid).copied()).unwrap_or(thread);
            let (stays, freed) = match (asked, in_use) {
                (Some(asked), Some(in_use)) if column == asked || column == in_use => {
                    (value(in_use), value(asked).saturating_sub(value(in_use)))
                }
                _ => (value(column), 0),
            };
            if (stays, freed) == (0, 0) {
                continue;
            }
            let stack = self.stack_or_none(thread, sample.stack, Category::Allocation);
            let mut add = |size: i64, at, address| self.out.add_allocation_sample(thread, at, stack, address, size);
            if stays != 0 {
                address += 1;
                add(stays, begin, address);
            }
            if freed > 0 {
                address += 1;
                add(freed, begin, address);
                add(-freed, end, address);
            } else if freed < 0 {
                // More in use than was allocated meanwhile: freed later than it was allocated earlier. No pair of samples says that.
                self.beyond += i128::from(freed);
            }
        }
    }

    fn comments(&mut self) {
        let profile = self.profile;
        let thread = self.thread(profile.threads.first().map(|_| ThreadId(0)));
        let mut texts: Vec<String> = profile.comments.iter().map(|comment| one_line(comment).into_owned()).collect();
        if self.beyond != 0 {
            texts.push(format!("{} could not be expressed in this format", self.beyond));
        }
        texts.iter().for_each(|text| self.note(thread, "Comment", text, Category::Other));
    }

    /// All values of what was lost, whichever of them is shown: samples of a loss are few, and easily missed.
    fn losses(&mut self) {
        let profile = self.profile;
        let mut losses: BTreeMap<(Option<ThreadId>, &str), Vec<i128>> = BTreeMap::new();
        for sample in &profile.samples {
            if let Some(Frame::Named(name)) = profile.stacks.frame(sample.stack)
                && is_loss(name)
            {
                let sums = losses.entry((sample.thread, name)).or_insert_with(|| vec![0; profile.sample_types.len()]);
                sums.iter_mut().zip(&sample.values).for_each(|(sum, value)| *sum += i128::from(*value));
            }
        }
        for ((thread, name), sums) in losses {
            let values = profile.sample_types.iter().zip(sums).filter(|(_, sum)| *sum != 0);
            let values: Vec<String> = values
                .map(|(of, sum)| match &*of.unit {
                    "count" => format!("{sum} {}", of.kind),
                    unit => format!("{sum} {unit} of {}", of.kind),
                })
                .collect();
            let thread = self.thread(thread);
            self.note(thread, "Lost", &one_line(&format!("{name} {}", values.join(", "))), Category::Lost);
        }
    }

    /// A marker over the whole time.
    fn note(&mut self, thread: fx::ThreadHandle, name: &str, text: &str, category: Category) {
        let begin = fx::Timestamp::from_nanos_since_reference(0);
        let end = fx::Timestamp::from_nanos_since_reference(unsigned(self.profile.duration_ns));
        let (name, text) = (self.out.intern_string(name), self.out.intern_string(text));
        let note = Note { name, text, category: self.categories[&category] };
        self.out.add_marker(thread, fx::MarkerTiming::Interval(begin, end), note);
    }
}

/// A comment of the profile or a loss, as a marker.
struct Note {
    name: fx::StringHandle,
    text: fx::StringHandle,
    category: fx::CategoryHandle,
}

impl fx::StaticSchemaMarker for Note {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "ProfileComment";
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const FIELDS: &'static [fx::StaticSchemaMarkerField] = &[fx::StaticSchemaMarkerField {
        key: "text",
        label: "Text",
        format: fx::MarkerFieldFormat::String,
        flags: fx::MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut fx::Profile) -> fx::StringHandle {
        self.name
    }

    fn category(&self, _: &mut fx::Profile) -> fx::CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> fx::StringHandle {
        self.text
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

fn is_loss(name: &str) -> bool {
    name.starts_with("[lost")
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
