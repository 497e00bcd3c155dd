//! The report as a picture, and as a part of the flame graph page.

use super::judge::Severity;
use super::lists;
use super::report::{Case, Report, percent, signed};
use crate::numbers::with_commas;
use profile::encode::html::{self, Compared, escape};
use std::io::{self, Write};

/// Stacks and functions of each case.
const LISTED: usize = 100;

/// Writes the differential flame graph of the only case.
pub(super) fn write_svg(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why.to_owned()));
    let [case] = report.cases.as_slice() else {
        return refuse("a flame graph shows one case; name two files, or write a page (.html)");
    };
    let Some(blame) = &case.blame else { return refuse("counters have no stacks to draw; compare profiles") };
    blame.comparison.write_svg(blame.column, &title(report, case), out)
}

fn title(report: &Report<'_>, case: &Case<'_>) -> String {
    if report.cases.len() == 1 && case.name == "profile" { "base and head".to_owned() } else { case.name.clone() }
}

/// Writes the flame graph page with both sides of every case in it, below the report.
pub(super) fn write_html(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut told = Vec::new();
    tell(report, &mut told)?;
    let prefix = |case: &Case<'_>| if report.cases.len() > 1 { format!("{}: ", case.name) } else { String::new() };
    let compared = report.cases.iter().filter_map(|case| {
        let comparison = &case.blame.as_ref()?.comparison;
        let column = comparison.columns().get(case.blame.as_ref()?.column)?;
        let (base, head) = comparison.sides();
        Some(Compared { name: prefix(case), base, head, shown: column.sample_type.clone() })
    });
    let compared: Vec<Compared<'_>> = compared.collect();
    html::encode_comparison(&report.verdict(), &String::from_utf8_lossy(&told), &compared, out)
}

/// The report as a part of the page.
fn tell(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let state = match report.severity() {
        Severity::Exceeded => "bad",
        Severity::Warned | Severity::Noise => "odd",
        Severity::Within => "good",
    };
    writeln!(out, "<h2 class=\"{state}\">{}</h2>", escape(&report.verdict()))?;
    if !report.warnings().is_empty() {
        writeln!(out, "<ul class=\"warnings\">")?;
        for warning in report.warnings() {
            writeln!(out, "<li>{}</li>", escape(warning))?;
        }
        writeln!(out, "</ul>")?;
    }
    for case in &report.cases {
        if report.cases.len() > 1 {
            writeln!(out, "<h3>{}</h3>", escape(&case.name))?;
        }
        metrics(report, case, out)?;
        blame(case, out)?;
    }
    Ok(())
}

fn metrics(report: &Report<'_>, case: &Case<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "<table>\n<thead><tr><th>Metric</th><th>Base</th><th>Head</th><th>Change</th><th></th><th>Limit</th><th>Status</th></tr></thead>\n<tbody>"
    )?;
    for judged in &case.metrics {
        let (metric, change) = (&judged.metric, judged.metric.change);
        let (base, delta) = match report.has_base {
            true => (with_commas(change.base), signed(change.delta())),
            false => Default::default(),
        };
        let width = match change.half_width() {
            0.0 => String::new(),
            width => format!(" ± {}", with_commas(width.round() as i64)),
        };
        let limits: Vec<&str> = judged.judgements.iter().map(|j| j.limit.as_str()).collect();
        let state = if judged.severity() == Severity::Exceeded { "bad" } else { "" };
        writeln!(
            out,
            "<tr class=\"{state}\"><td>{}{}</td><td class=\"n\">{base}</td><td class=\"n\">{}</td><td class=\"n\">{delta}{width}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
            escape(&metric.name),
            if metric.unit == "nanoseconds" { " (ns)" } else { "" },
            with_commas(change.head),
            percent(change),
            escape(&limits.join(", ")),
            judged.status()
        )?;
    }
    writeln!(out, "</tbody>\n</table>")
}

fn blame(case: &Case<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Some(blame) = &case.blame else { return Ok(()) };
    let here = std::env::current_dir().unwrap_or_default();
    writeln!(out, "<h4>{}</h4>\n<p>{}</p>", escape(&blame.metric), escape(&lists::counts(blame)))?;
    for (number, stack) in blame.stacks.iter().take(LISTED).enumerate() {
        // The first is what a reader came for.
        let open = if number == 0 { " open" } else { "" };
        let state = if stack.change.delta() > 0 { "more" } else { "less" };
        writeln!(
            out,
            "<details{open}><summary><span class=\"n {state}\">{}</span> {} <code>{}</code> <small>{} to {}</small></summary>\n<ol>",
            signed(stack.change.delta()),
            stack.status.name(),
            escape(&lists::place(stack, &here)),
            with_commas(stack.change.base),
            with_commas(stack.change.head)
        )?;
        for level in &stack.levels {
            writeln!(out, "<li><code>{}</code></li>", escape(&lists::level(level, &here)))?;
        }
        writeln!(out, "</ol></details>")?;
    }
    if !blame.functions.is_empty() {
        writeln!(out, "<table>\n<thead><tr><th>Own</th><th>With callees</th><th>Function</th></tr></thead>\n<tbody>")?;
        for function in blame.functions.iter().take(LISTED) {
            writeln!(
                out,
                "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td><code>{}</code></td></tr>",
                signed(function.own.delta()),
                signed(function.total.delta()),
                escape(&lists::function(function))
            )?;
        }
        writeln!(out, "</tbody>\n</table>")?;
    }
    Ok(())
}
