//! `profrec diff`: what a change of the program did to its profile.

mod cases;
mod input;
mod json;
mod judge;
mod limit;
mod lists;
mod markdown;
mod metric;
mod page;
mod report;
mod services;
mod text;
mod thresholds;

use crate::args::{Diff, DiffFormat};
use crate::ending::Ending;
use crate::error::{Error, warn};
use crate::output::to_standard_output;
use crate::pending::PendingFile;
use cases::Pair;
use judge::Severity;
pub(crate) use limit::Limit;
pub(crate) use metric::canonical as canonical_metric;
use report::Report;
use std::io::{self, Write};
use std::path::Path;
use thresholds::Thresholds;

/// Exit code when a limit is exceeded.
const EXCEEDED: u8 = 3;

/// Compares, writes and judges.
pub(crate) fn diff(diff: &Diff) -> Result<Ending, Error> {
    let thresholds = match &diff.thresholds {
        Some(path) => Some(Thresholds::read(path, diff.update)?),
        None => None,
    };
    let outputs = diff
        .outputs
        .iter()
        .map(|(path, format)| PendingFile::create(path.clone()).map(|file| (file, *format)))
        .collect::<Result<Vec<_>, _>>()?;
    let update = match (&diff.thresholds, diff.update) {
        (Some(path), true) => Some(PendingFile::create(path.clone())?),
        _ => None,
    };
    let pairs = cases::pairs(diff.base.as_deref(), &diff.head)?;
    let mut cases = Vec::with_capacity(pairs.len());
    for pair in &pairs {
        let read = |path: &Path| -> Result<input::Input, Error> {
            let (input, notes) = input::read(path, &diff.symbol_dirs)?;
            if let (false, Some(note)) = (diff.quiet, crate::record::one_note(&notes)) {
                warn(note);
            }
            Ok(input)
        };
        cases.push((pair, pair.base.as_deref().map(read).transpose()?, read(&pair.head)?));
    }
    let thresholds_in_force = thresholds.as_ref().filter(|_| !diff.update);
    let report = Report::new(diff, &cases, cases::unpaired(diff.base.as_deref(), &diff.head)?, thresholds_in_force)?;
    if outputs.is_empty() {
        to_standard_output(|out| write(diff.format, &report, out))?;
    }
    for (file, format) in outputs {
        file.finish(|out| write(format, &report, out))?;
    }
    if let (Some(file), Some(mut thresholds)) = (update, thresholds) {
        thresholds.update(&report, &diff.metrics);
        file.finish(|out| thresholds.write(out))?;
    }
    if !diff.quiet {
        report.warnings().iter().for_each(warn);
    }
    let exceeded = report.severity() == Severity::Exceeded;
    if exceeded && !diff.outputs.is_empty() && !diff.quiet {
        warn(report.verdict());
    }
    Ok(Ending::Code(if exceeded { EXCEEDED } else { 0 }))
}

fn write(format: DiffFormat, report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    match format {
        DiffFormat::Text => text::write(report, out),
        DiffFormat::Markdown => markdown::write(report, out),
        DiffFormat::Json => json::write(report, out),
        DiffFormat::BenchmarkAction => services::write_benchmark_action(report, out),
        DiffFormat::Bmf => services::write_bmf(report, out),
        DiffFormat::Svg => page::write_svg(report, out),
        DiffFormat::Html => page::write_html(report, out),
    }
}

/// What a case is read from, with what was read.
type Read<'a> = (&'a Pair, Option<input::Input>, input::Input);
