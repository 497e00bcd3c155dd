//! A profile as entries one after the other, for formats that have a line of time.

use crate::{Event, Profile, Sample, SampleType, StackId, ThreadId};
use rustc_hash::FxHashMap;
use std::io;

/// Something observed at one moment.
pub(super) struct Entry<'a> {
    pub(super) thread: Option<ThreadId>,
    /// When, in nanoseconds since 1970.
    pub(super) unix_ns: i64,
    /// What it stands for in the column. Negative in a difference alone.
    pub(super) value: i64,
    /// How many observations it is, if the profile counts them; else 1.
    pub(super) count: i64,
    pub(super) stack: StackId,
    /// The sample that it is a part of; `None` for an event, which knows no more than its thread.
    pub(super) sample: Option<&'a Sample>,
}

/// What events already said of a stack.
#[derive(Default)]
struct Covered {
    value: i128,
    count: i128,
}

/// Every entry of a column: events first, then what the samples hold beyond them.
///
/// Counts and values add up to those of the samples. A sample that stands for several observations becomes as many entries, as long as
/// they are not more than `max_repeated` in all.
pub(super) fn entries<'a>(
    profile: &'a Profile,
    column: usize,
    max_repeated: i64,
    mut each: impl FnMut(&Entry<'a>) -> io::Result<()>,
) -> io::Result<()> {
    let counts = profile.sample_types.iter().position(|t| *t == SampleType::new("samples", "count"));
    let count_of = |sample: &Sample| counts.map_or(1, |counts| sample.values.get(counts).copied().unwrap_or(0));
    // Events weigh in the last column.
    let events: &[Event] = if column + 1 == profile.sample_types.len() { &profile.events } else { &[] };
    let mut uncounted: FxHashMap<StackId, i128> = FxHashMap::default();
    if !events.is_empty() {
        for sample in &profile.samples {
            *uncounted.entry(sample.stack).or_default() += i128::from(count_of(sample).max(0));
        }
    }
    let mut covered: FxHashMap<StackId, Covered> = FxHashMap::default();
    for event in events {
        let of_stack = covered.entry(event.stack).or_default();
        let is_counted = uncounted.get(&event.stack).is_some_and(|all| of_stack.count < *all);
        of_stack.value += i128::from(event.weight);
        of_stack.count += i128::from(is_counted);
        each(&Entry {
            thread: Some(event.thread),
            unix_ns: event.unix_ns,
            value: event.weight,
            count: i64::from(is_counted),
            stack: event.stack,
            sample: None,
        })?;
    }
    // Not the total: negative counts of a difference take no entries away.
    let entries: i128 = profile.samples.iter().map(|sample| i128::from(count_of(sample).max(0))).sum();
    let repeats = counts.is_some() && entries <= i128::from(max_repeated);
    let advances = profile.sample_types.get(column).is_some_and(|t| t.unit == "nanoseconds");
    let mut clocks: FxHashMap<Option<ThreadId>, i64> = FxHashMap::default();
    for sample in &profile.samples {
        let (mut value, mut count) = (sample.values.get(column).copied().unwrap_or(0), count_of(sample));
        // Which thread of that stack the events belonged to does not matter for the sum.
        if let Some(covered) = covered.get_mut(&sample.stack) {
            value = take(&mut covered.value, value);
            count = take(&mut covered.count, count);
        }
        if value == 0 && (count == 0 || counts.is_none()) {
            continue;
        }
        // None has a value of zero while another has one.
        let repeated = if repeats && value > 0 { count.min(value).max(1) } else { 1 };
        let clock = clocks.entry(sample.thread).or_insert(profile.start_unix_ns);
        for i in 0..repeated {
            let part = |whole: i64| whole / repeated + i64::from(i < whole % repeated);
            let value = part(value);
            each(&Entry {
                thread: sample.thread,
                unix_ns: *clock,
                value,
                count: part(count),
                stack: sample.stack,
                sample: Some(sample),
            })?;
            if advances {
                *clock = clock.saturating_add(value.max(0));
            }
        }
    }
    Ok(())
}

/// What is left of `all` when `covered` is taken off, as far as it goes.
fn take(covered: &mut i128, all: i64) -> i64 {
    let used = (*covered).clamp(0, i128::from(all.max(0)));
    *covered -= used;
    all - used as i64
}
