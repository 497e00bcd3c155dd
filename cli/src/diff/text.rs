//! The report for a terminal.

use super::lists;
use super::report::{Blame, Report, percent, signed};
use crate::numbers::with_commas;
use std::io::{self, Write};

/// Stacks and functions of each case.
const LISTED: usize = 10;
/// Levels of a stack.
const LEVELS: usize = 12;

/// Writes it.
pub(super) fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", report.verdict())?;
    for case in &report.cases {
        if report.cases.len() > 1 {
            writeln!(out, "\n{}", case.name)?;
        }
        writeln!(out, "\n{:<18} {:>18} {:>18} {:>16} {:>10}  status", "metric", "base", "head", "change", "")?;
        for judged in &case.metrics {
            let (metric, change) = (&judged.metric, judged.metric.change);
            let base = if report.has_base { with_commas(change.base) } else { String::new() };
            let delta = if report.has_base { signed(change.delta()) } else { String::new() };
            let width = match change.half_width() {
                0.0 => String::new(),
                width => format!(" (+-{} at 95%)", with_commas(width.round() as i64)),
            };
            let limits: Vec<&str> = judged.judgements.iter().map(|j| j.limit.as_str()).collect();
            let limits = if limits.is_empty() { String::new() } else { format!(" [{}]", limits.join(", ")) };
            let head = with_commas(change.head);
            let percent = percent(change);
            writeln!(
                out,
                "{:<18} {base:>18} {head:>18} {delta:>16} {percent:>10}  {}{limits}{width}",
                format!("{}{}", metric.name, unit(&metric.unit)),
                judged.status(),
            )?;
        }
        if let Some(blame) = &case.blame {
            self::blame(blame, out)?;
        }
    }
    Ok(())
}

fn unit(unit: &str) -> String {
    match unit {
        "count" | "bytes" => String::new(),
        "nanoseconds" => " (ns)".to_owned(),
        other => format!(" ({other})"),
    }
}

fn blame(blame: &Blame<'_>, out: &mut dyn Write) -> io::Result<()> {
    let here = std::env::current_dir().unwrap_or_default();
    writeln!(out, "\n{}, {}", blame.metric, lists::counts(blame))?;
    for stack in blame.stacks.iter().take(LISTED) {
        writeln!(
            out,
            "\n{:>16}  {}  {}",
            signed(stack.change.delta()),
            stack.status.name(),
            lists::place(stack, &here)
        )?;
        writeln!(out, "{:>16}  {} to {}", "", with_commas(stack.change.base), with_commas(stack.change.head))?;
        for level in stack.levels.iter().take(LEVELS) {
            writeln!(out, "{:>20}{}", "", lists::level(level, &here))?;
        }
        if stack.levels.len() > LEVELS {
            writeln!(out, "{:>20}... {} more", "", stack.levels.len() - LEVELS)?;
        }
    }
    if !blame.functions.is_empty() {
        writeln!(out, "\n{:>16} {:>16}  function", "own", "with callees")?;
    }
    for function in blame.functions.iter().take(LISTED) {
        let (own, total) = (signed(function.own.delta()), signed(function.total.delta()));
        writeln!(out, "{own:>16} {total:>16}  {}", lists::function(function))?;
    }
    for (old, new) in blame.comparison.renamed().iter().take(LISTED) {
        writeln!(out, "{:>33}  {old} is {new} now", "renamed")?;
    }
    Ok(())
}
