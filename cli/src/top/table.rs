//! The rows: functions or stacks with what they account for.

use super::snapshot::Snapshot;
use crate::args::By;
use profile::Mode;
use profile::top::{self, Leaf};
use profile::{Frame, SampleType, StackId, Stacks};
use std::cmp::Ordering;
use std::collections::HashMap;

/// What stands between the frames of a stack in one line, its leaf first.
pub(super) const CALLER: &str = " < ";

/// A function or a stack.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// What it is called.
    pub(super) name: String,
    /// What was measured in it.
    pub(super) own: i64,
    /// What was measured in it and below it.
    pub(super) total: i64,
    /// `own` by the second; of what is counted since the start, its growth since the table before. `None`: there was none.
    pub(super) per_second: Option<f64>,
}

/// Every row of one metric.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// What the numbers are.
    pub(super) sample_type: SampleType,
    /// The rows in no particular order.
    pub(super) rows: Vec<Row>,
    /// What all of them account for together.
    pub(super) sum: Row,
    /// What of that could not be recorded with its stack.
    pub(super) lost: i64,
}

/// What rows are put in order by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Own,
    Total,
    PerSecond,
    Name,
}

impl Sort {
    /// In the order in which a key goes through them.
    pub(super) const ALL: [Self; 4] = [Self::Own, Self::Total, Self::PerSecond, Self::Name];

    /// What a mode is first sorted by. What has been allocated since the start matters less than what is now; of what is live, the most.
    pub(super) fn first(mode: Mode) -> Self {
        if mode == Mode::Allocs { Self::PerSecond } else { Self::Own }
    }

    /// The heading of its column.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::Total => "total",
            Self::PerSecond => "per second",
            Self::Name => "name",
        }
    }

    /// The row to see first comes first: the largest, or the first of the alphabet.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let order = match self {
            Self::Own => (b.own, b.total).cmp(&(a.own, a.total)),
            Self::Total => (b.total, b.own).cmp(&(a.total, a.own)),
            Self::PerSecond => {
                let of = |row: &Row| row.per_second.unwrap_or(f64::NEG_INFINITY);
                of(b).total_cmp(&of(a)).then_with(|| b.own.cmp(&a.own))
            }
            Self::Name => Ordering::Equal,
        };
        order.then_with(|| a.name.cmp(&b.name))
    }
}

impl Table {
    /// The rows of an answer. `before` is what the same question was answered earlier, if it was asked.
    pub(super) fn new(snapshot: &Snapshot, before: Option<&Snapshot>, by: By, column: usize) -> Self {
        let mut rows = rows(snapshot, by, column);
        let profile = &snapshot.profile;
        let is_lost = |frame: &Frame| matches!(frame, Frame::Named(name) if name.starts_with("[lost"));
        let is_lost = |stack: StackId| profile.stacks.frames_leaf_first(stack).any(is_lost);
        let lost = sum(profile.samples.iter().filter(|sample| is_lost(sample.stack)).map(|s| value(&s.values, column)));
        let total = profile.total(column);
        let mut sum = Row { name: String::new(), own: total, total, per_second: None };
        match (snapshot.window(), before) {
            (Some(window), _) => {
                let seconds = window.as_secs_f64();
                rows.iter_mut().chain([&mut sum]).for_each(|row| row.per_second = Some(row.own as f64 / seconds));
            }
            (None, Some(before)) => {
                let seconds = snapshot.taken.saturating_duration_since(before.taken).as_secs_f64().max(1e-9);
                let mut earlier: HashMap<String, i64> =
                    self::rows(before, by, column).into_iter().map(|row| (row.name, row.own)).collect();
                let growth = |now: i64, then: i64| Some((now as f64 - then as f64) / seconds);
                for row in &mut rows {
                    row.per_second = growth(row.own, earlier.remove(&row.name).unwrap_or(0));
                }
                // What is no longer there has shrunk too.
                let gone = earlier.into_iter().filter(|(_, own)| *own != 0);
                rows.extend(gone.map(|(name, own)| Row { name, own: 0, total: 0, per_second: growth(0, own) }));
                sum.per_second = growth(total, before.profile.total(column));
            }
            (None, None) => {}
        }
        let sample_type = profile.sample_types.get(column).cloned();
        Self { sample_type: sample_type.unwrap_or(SampleType::new("samples", "count")), rows, sum, lost }
    }

    /// The rows whose names contain `filter`, whatever its case, in order.
    pub(super) fn shown(&self, filter: &str, sort: Sort, reversed: bool) -> Vec<&Row> {
        let filter = filter.to_lowercase();
        let mut shown: Vec<&Row> = self.rows.iter().filter(|row| row.name.to_lowercase().contains(&filter)).collect();
        shown.sort_by(|a, b| sort.compare(a, b));
        if reversed {
            shown.reverse();
        }
        shown
    }
}

fn rows(snapshot: &Snapshot, by: By, column: usize) -> Vec<Row> {
    let row = |name, own, total| Row { name, own, total, per_second: None };
    match by {
        By::Function => {
            let functions = top::functions(&snapshot.profile, &snapshot.symbols, column, Leaf::Caller);
            functions.into_iter().map(|f| row(f.name, f.self_value, f.total)).collect()
        }
        By::Stack => {
            let values = of_stacks(snapshot, column);
            // Stacks that differ in addresses alone are one.
            let mut of_name: HashMap<String, i64> = HashMap::new();
            for (stack, value) in values {
                let sum = of_name.entry(stack_name(snapshot, stack)).or_default();
                *sum = sum.saturating_add(value);
            }
            of_name.into_iter().map(|(name, value)| row(name, value, value)).collect()
        }
    }
}

/// The frames of the stack behind a row: of a function, of the heaviest stack that it occurs in, its leaf first.
pub(super) fn stack_of(snapshot: &Snapshot, by: By, column: usize, name: &str) -> Vec<String> {
    let holds = |stack: StackId| match by {
        By::Function => snapshot.frames(stack).any(|frame| frame == name),
        By::Stack => stack_name(snapshot, stack) == name,
    };
    let heaviest = of_stacks(snapshot, column).into_iter().filter(|(stack, _)| holds(*stack));
    let heaviest = heaviest.max_by_key(|(stack, value)| (*value, std::cmp::Reverse(*stack)));
    heaviest.map(|(stack, _)| snapshot.frames(stack).collect()).unwrap_or_default()
}

fn of_stacks(snapshot: &Snapshot, column: usize) -> HashMap<StackId, i64> {
    let mut values: HashMap<StackId, i64> = HashMap::new();
    for sample in &snapshot.profile.samples {
        let sum = values.entry(sample.stack).or_default();
        *sum = sum.saturating_add(value(&sample.values, column));
    }
    values.retain(|_, value| *value != 0);
    values
}

fn stack_name(snapshot: &Snapshot, stack: StackId) -> String {
    if stack == Stacks::ROOT {
        return "[no stack]".to_owned();
    }
    snapshot.frames(stack).collect::<Vec<_>>().join(CALLER)
}

fn value(values: &[i64], column: usize) -> i64 {
    values.get(column).copied().unwrap_or(0)
}

fn sum(values: impl Iterator<Item = i64>) -> i64 {
    values.fold(0, i64::saturating_add)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::top::question::tests::question;
    use profile::{Profile, Sample, Symbols};
    use std::time::{Duration, Instant};

    /// An answer with these stacks, root first, and bytes.
    pub(in crate::top) fn answer(mode: Mode, taken: Instant, stacks: &[(&[&'static str], i64)]) -> Snapshot {
        let kind = if mode.is_time() {
            SampleType::new("cpu", "nanoseconds")
        } else {
            SampleType::new("inuse_space", "bytes")
        };
        let mut profile = Profile::new(vec![SampleType::new("samples", "count"), kind]);
        profile.threads.push(profile::Thread { pid: 7, process: "/bin/app".into(), ..profile::Thread::default() });
        for (frames, value) in stacks {
            let stack = profile.stacks.intern(frames.iter().map(|name| profile::Frame::named(name)));
            profile.samples.push(Sample {
                stack,
                thread: None,
                labels: profile::Labels::new(),
                values: profile::values![1, *value],
            });
        }
        profile.duration_ns = if mode.is_time() { 2_000_000_000 } else { 0 };
        Snapshot { question: question(mode), profile, symbols: Symbols::new(), taken }
    }

    fn told(table: &Table, sort: Sort) -> Vec<(&str, i64, i64, Option<f64>)> {
        table.shown("", sort, false).into_iter().map(|r| (r.name.as_str(), r.own, r.total, r.per_second)).collect()
    }

    #[test]
    fn time_is_divided_by_the_window() {
        let answer =
            answer(Mode::Cpu, Instant::now(), &[(&["main", "f", "g"], 10), (&["main", "f"], 30), (&["[lost: x]"], 2)]);
        let table = Table::new(&answer, None, By::Function, 1);
        let expected = [
            ("f", 30, 40, Some(15.0)),
            ("g", 10, 10, Some(5.0)),
            ("[lost: x]", 2, 2, Some(1.0)),
            ("main", 0, 40, Some(0.0)),
        ];
        assert_eq!(told(&table, Sort::Own), expected);
        assert_eq!((table.sum.own, table.sum.per_second, table.lost), (42, Some(21.0), 2));
        let table = Table::new(&answer, None, By::Stack, 1);
        let names: Vec<&str> = told(&table, Sort::Total).iter().map(|row| row.0).collect();
        assert_eq!(names, ["f < main", "g < f < main", "[lost: x]"]);
    }

    #[test]
    fn live_memory_grows_and_shrinks_by_the_second_and_the_sum_is_conserved() {
        let begun = Instant::now();
        let before = answer(Mode::Heap, begun, &[(&["main", "f", "malloc"], 100), (&["main", "gone", "malloc"], 60)]);
        let now = answer(
            Mode::Heap,
            begun + Duration::from_secs(2),
            &[(&["main", "f", "malloc"], 140), (&["main", "new", "malloc"], 10)],
        );
        let first = Table::new(&now, None, By::Function, 1);
        assert!(first.rows.iter().all(|row| row.per_second.is_none()));
        let table = Table::new(&now, Some(&before), By::Function, 1);
        let rows = told(&table, Sort::PerSecond);
        assert_eq!(rows[..2], [("f", 140, 140, Some(20.0)), ("new", 10, 10, Some(5.0))]);
        assert_eq!(rows.last(), Some(&("gone", 0, 0, Some(-30.0))));
        let rates: f64 = table.rows.iter().filter_map(|row| row.per_second).sum();
        assert_eq!((rates, table.sum.per_second), (-5.0, Some(-5.0)));
    }

    #[test]
    fn rows_are_filtered_by_any_case_and_sorted_either_way() {
        let answer =
            answer(Mode::Cpu, Instant::now(), &[(&["Main", "alpha"], 1), (&["Main", "beta"], 1), (&["main"], 5)]);
        let table = Table::new(&answer, None, By::Function, 1);
        let names = |filter, sort, reversed| -> Vec<&str> {
            table.shown(filter, sort, reversed).into_iter().map(|row| row.name.as_str()).collect()
        };
        assert_eq!(names("MAIN", Sort::Name, false), ["Main", "main"]);
        assert_eq!(names("", Sort::Name, true), ["main", "beta", "alpha", "Main"]);
        assert_eq!(names("a", Sort::Own, false), ["main", "alpha", "beta", "Main"]);
        assert_eq!(names("nothing like it", Sort::Own, false), [""; 0]);
    }

    #[test]
    fn the_stack_behind_a_function_is_the_heaviest_with_it() {
        let answer = answer(Mode::Cpu, Instant::now(), &[(&["main", "f"], 1), (&["other", "f"], 3), (&["other"], 9)]);
        assert_eq!(stack_of(&answer, By::Function, 1, "f"), ["f", "other"]);
        assert_eq!(stack_of(&answer, By::Stack, 1, "f < main"), ["f", "main"]);
        assert_eq!(stack_of(&answer, By::Function, 1, "no such"), [""; 0]);
    }
}
