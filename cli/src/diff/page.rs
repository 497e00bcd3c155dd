//! The report as a picture, and as a page that needs nothing else.

use super::judge::Severity;
use super::lists;
use super::report::{Case, Report, percent, signed};
use crate::numbers::with_commas;
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

/// Writes the page.
pub(super) fn write_html(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let state = match report.severity() {
        Severity::Exceeded => "bad",
        Severity::Warned | Severity::Noise => "odd",
        Severity::Within => "good",
    };
    let verdict = escaped(&report.verdict());
    writeln!(out, "{HEAD}<title>{verdict}</title>\n<style>\n{}</style>\n</head>\n<body>", include_str!("page.css"))?;
    writeln!(out, "<h1 class=\"{state}\">{verdict}</h1>")?;
    if !report.warnings().is_empty() {
        writeln!(out, "<ul class=\"warnings\">")?;
        for warning in report.warnings() {
            writeln!(out, "<li>{}</li>", escaped(warning))?;
        }
        writeln!(out, "</ul>")?;
    }
    for case in &report.cases {
        if report.cases.len() > 1 {
            writeln!(out, "<h2>{}</h2>", escaped(&case.name))?;
        }
        metrics(report, case, out)?;
        blame(report, case, out)?;
    }
    writeln!(out, "</body>\n</html>")
}

const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width\">\n\
    <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\">\n";

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
            escaped(&metric.name),
            if metric.unit == "nanoseconds" { " (ns)" } else { "" },
            with_commas(change.head),
            percent(change),
            escaped(&limits.join(", ")),
            judged.status()
        )?;
    }
    writeln!(out, "</tbody>\n</table>")
}

fn blame(report: &Report<'_>, case: &Case<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Some(blame) = &case.blame else { return Ok(()) };
    let here = std::env::current_dir().unwrap_or_default();
    writeln!(out, "<h3>{}</h3>\n<p>{}</p>", escaped(&blame.metric), escaped(&lists::counts(blame)))?;
    for (number, stack) in blame.stacks.iter().take(LISTED).enumerate() {
        // The first is what a reader came for.
        let open = if number == 0 { " open" } else { "" };
        let state = if stack.change.delta() > 0 { "more" } else { "less" };
        writeln!(
            out,
            "<details{open}><summary><span class=\"n {state}\">{}</span> {} <code>{}</code> <small>{} to {}</small></summary>\n<ol>",
            signed(stack.change.delta()),
            stack.status.name(),
            escaped(&lists::place(stack, &here)),
            with_commas(stack.change.base),
            with_commas(stack.change.head)
        )?;
        for level in &stack.levels {
            writeln!(out, "<li><code>{}</code></li>", escaped(&lists::level(level, &here)))?;
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
                escaped(&lists::function(function))
            )?;
        }
        writeln!(out, "</tbody>\n</table>")?;
    }
    let mut picture = Vec::new();
    blame.comparison.write_svg(blame.column, &title(report, case), &mut picture)?;
    let picture = String::from_utf8_lossy(&picture);
    let picture = picture.find("<svg").map_or("", |start| &picture[start..]);
    let height = picture.split("height=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("400");
    // The graph's script notes its state in the address, which a frame like this one does not have.
    let style = "body{margin:0;overflow:hidden}svg{display:block;width:100%}";
    let document = format!(
        "<!doctype html><meta charset=\"utf-8\"><script>history.replaceState=()=>{{}}</script><style>{style}</style>{picture}"
    );
    let document = document.replace('&', "&amp;").replace('\'', "&#39;");
    writeln!(
        out,
        "<iframe title=\"Flame graph of the difference\" style=\"height:{height}px\" srcdoc='{document}'></iframe>"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
