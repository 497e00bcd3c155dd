//! The table as text, for the terminal and for whoever reads no terminal.

use super::snapshot::Snapshot;
use super::table::{Row, Table};
use crate::numbers::{human_bytes, human_nanos, with_commas};
use std::io::{self, Write};

/// The heading of the rows.
pub(super) const HEADING: &str = "      self        %       total        %     per second  name";

/// One table, printed.
pub(super) struct Printed<'a> {
    pub(super) title: &'a str,
    pub(super) snapshot: &'a Snapshot,
    pub(super) table: &'a Table,
    /// What to print, in order, and how many of all rows that is.
    pub(super) rows: &'a [&'a Row],
    pub(super) most: usize,
}

impl Printed<'_> {
    /// Writes it.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}\n{}", self.title, summary(self.snapshot, self.table))?;
        for note in notes(self.snapshot, self.table) {
            writeln!(out, "{note}")?;
        }
        writeln!(out, "\n{HEADING}")?;
        for row in self.rows.iter().take(self.most) {
            writeln!(out, "{}", line(self.table, row))?;
        }
        match self.rows.len().saturating_sub(self.most) {
            0 => Ok(()),
            more => writeln!(out, "... {} more", with_commas(more as i64)),
        }
    }
}

/// What was measured, and how much of it.
pub(super) fn summary(snapshot: &Snapshot, table: &Table) -> String {
    let mode = snapshot.question.mode;
    let of = crate::diff::canonical_metric(&table.sample_type.kind);
    let amount = amount(table, table.sum.own);
    let over = match snapshot.window() {
        Some(window) => format!("in {:.1} s", window.as_secs_f64()),
        None if mode == profile::Mode::Heap => "live now".to_owned(),
        None if mode == profile::Mode::Threads => "now".to_owned(),
        None => "since the start".to_owned(),
    };
    let rate = table.sum.per_second.map_or_else(String::new, |rate| format!(", {}", per_second(table, rate)));
    let samples = snapshot.profile.column("samples").filter(|_| mode.is_time());
    let samples =
        samples.map_or_else(String::new, |column| format!(", {} samples", with_commas(snapshot.profile.total(column))));
    format!("{}, {of}: {amount} {over}{rate}{samples}", mode.name())
}

/// What a reader should know: losses first.
pub(super) fn notes(snapshot: &Snapshot, table: &Table) -> Vec<String> {
    let lost = (table.lost != 0).then(|| {
        format!(
            "not recorded in full: {} ({}) without a stack",
            amount(table, table.lost),
            share(table, table.lost).trim()
        )
    });
    lost.into_iter().chain(snapshot.profile.comments.iter().cloned()).collect()
}

/// One row: numbers in columns, then the name.
pub(super) fn line(table: &Table, row: &Row) -> String {
    let rate = row.per_second.map_or_else(|| "-".to_owned(), |rate| per_second(table, rate));
    format!(
        "{:>10}  {}  {:>10}  {}  {rate:>13}  {}",
        amount(table, row.own),
        share(table, row.own),
        amount(table, row.total),
        share(table, row.total),
        row.name
    )
}

fn amount(table: &Table, value: i64) -> String {
    match &*table.sample_type.unit {
        "bytes" => human_bytes(value),
        "nanoseconds" => human_nanos(value),
        _ => with_commas(value),
    }
}

fn per_second(table: &Table, rate: f64) -> String {
    // Growth says its direction; a rate of time has only one.
    let sign = if rate > 0.0 && table.sample_type.kind.starts_with("inuse") { "+" } else { "" };
    format!("{sign}{}/s", amount(table, rate.round() as i64))
}

fn share(table: &Table, value: i64) -> String {
    let whole = if table.sum.own == 0 { 1 } else { table.sum.own };
    format!("{:>6.1}%", 100.0 * value as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::By;
    use crate::top::table::Sort;
    use crate::top::table::tests::answer;
    use profile::Mode;
    use std::time::{Duration, Instant};

    fn printed(snapshot: &Snapshot, before: Option<&Snapshot>, by: By, most: usize) -> String {
        let table = Table::new(snapshot, before, by, 1);
        let rows = table.shown("", Sort::Own, false);
        let mut text = Vec::new();
        let printed = Printed { title: "app (7)", snapshot, table: &table, rows: &rows, most };
        printed.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_table_of_time_says_its_window_its_rates_and_what_was_lost() {
        let mut snapshot = answer(
            Mode::Cpu,
            Instant::now(),
            &[(&["main", "f"], 1_500_000_000), (&["main", "g"], 490_000_000), (&["[lost: store full]"], 10_000_000)],
        );
        snapshot.profile.comments.push("app (pid 7): a note".to_owned());
        let expected = "\
app (7)
cpu, cpu: 2.00 s in 2.0 s, 1.00 s/s, 3 samples
not recorded in full: 10.0 ms (0.5%) without a stack
app (pid 7): a note

      self        %       total        %     per second  name
    1.50 s    75.0%      1.50 s    75.0%     750.0 ms/s  f
  490.0 ms    24.5%    490.0 ms    24.5%     245.0 ms/s  g
... 2 more
";
        assert_eq!(printed(&snapshot, None, By::Function, 2), expected);
    }

    #[test]
    fn a_table_of_memory_says_what_it_grows_by() {
        let begun = Instant::now();
        let before = answer(Mode::Heap, begun, &[(&["main", "malloc"], 4096)]);
        let now = answer(Mode::Heap, begun + Duration::from_secs(1), &[(&["main", "malloc"], 8192)]);
        let expected = "\
app (7)
heap, live: 8.0 KiB live now, +4.0 KiB/s

      self        %       total        %     per second  name
   8.0 KiB   100.0%     8.0 KiB   100.0%     +4.0 KiB/s  malloc < main
";
        assert_eq!(printed(&now, Some(&before), By::Stack, 9), expected);
        assert!(printed(&now, None, By::Stack, 9).contains("live now\n"), "no rate without a table before");
    }

    #[test]
    fn a_table_of_nothing_divides_by_nothing() {
        let nothing = answer(Mode::Wall, Instant::now(), &[]);
        assert!(printed(&nothing, None, By::Function, 9).contains(": 0 s in 2.0 s, 0 s/s, 0 samples"));
    }
}
