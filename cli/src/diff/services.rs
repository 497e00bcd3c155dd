//! The head's metrics as services take them that keep a history: github-action-benchmark's `customSmallerIsBetter`, and Bencher's metric format.

use super::report::Report;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

#[derive(Serialize)]
struct Entry<'a> {
    name: String,
    unit: &'a str,
    value: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<String>,
}

/// Writes an array with an entry for each metric of each case.
pub(super) fn write_benchmark_action(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let entries = report.cases.iter().flat_map(|case| {
        case.metrics.iter().map(move |judged| {
            let (metric, change) = (&judged.metric, judged.metric.change);
            let width = change.half_width();
            Entry {
                name: format!("{}/{}", case.name, metric.name),
                unit: &metric.unit,
                value: change.head,
                range: (width > 0.0).then(|| format!("± {width:.0}")),
                extra: report.has_base.then(|| format!("base: {}", change.base)),
            }
        })
    });
    serde_json::to_writer_pretty(&mut *out, &entries.collect::<Vec<_>>())?;
    writeln!(out)
}

#[derive(Serialize)]
struct Measure {
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_value: Option<f64>,
}

/// Writes an object: case, metric, value.
pub(super) fn write_bmf(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let cases = report.cases.iter().map(|case| {
        let measures = case.metrics.iter().map(|judged| {
            let (value, width) = (judged.metric.change.head as f64, judged.metric.change.half_width());
            let bound = |bound: f64| (width > 0.0).then_some(bound);
            let measure = Measure { value, lower_value: bound(value - width), upper_value: bound(value + width) };
            (judged.metric.name.as_str(), measure)
        });
        (case.name.as_str(), measures.collect::<BTreeMap<_, _>>())
    });
    serde_json::to_writer_pretty(&mut *out, &cases.collect::<BTreeMap<_, _>>())?;
    writeln!(out)
}
