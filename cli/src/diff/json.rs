//! The report for scripts. Within version 1 members are only ever added.

use super::judge::{Judgement, Severity};
use super::report::Report;
use profile::difference::Change;
use serde::Serialize;
use std::io::{self, Write};

const SCHEMA: &str = "profile-recorder.diff";
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
    version: u32,
    verdict: String,
    severity: Severity,
    warnings: &'a [String],
    only_in_base: &'a [String],
    only_in_head: &'a [String],
    cases: Vec<Case<'a>>,
}

#[derive(Serialize)]
struct Case<'a> {
    name: &'a str,
    metrics: Vec<Metric<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blame: Option<Blame<'a>>,
}

#[derive(Serialize)]
struct Metric<'a> {
    name: &'a str,
    unit: &'a str,
    #[serde(flatten)]
    values: Values,
    exact: bool,
    status: &'a str,
    severity: Severity,
    limits: &'a [Judgement],
}

/// The members that every change has. `base` and `delta` are left out where there is no base.
#[derive(Serialize)]
struct Values {
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<i64>,
    head: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// Half of the 95 % confidence interval; 0 if exact.
    half_width: f64,
}

#[derive(Serialize)]
struct Blame<'a> {
    metric: &'a str,
    unit: &'a str,
    new: usize,
    grown: usize,
    shrunk: usize,
    gone: usize,
    noise: usize,
    same: usize,
    moved: usize,
    renamed: Vec<Renamed<'a>>,
    stacks: Vec<Stack<'a>>,
    functions: Vec<Function<'a>>,
}

#[derive(Serialize)]
struct Renamed<'a> {
    old: &'a str,
    new: &'a str,
}

#[derive(Serialize)]
struct Stack<'a> {
    status: &'a str,
    #[serde(flatten)]
    values: Values,
    moved: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<Level<'a>>,
    /// Leaf first.
    frames: Vec<Level<'a>>,
}

#[derive(Serialize)]
struct Level<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<&'a str>,
    own: Values,
    total: Values,
}

impl Values {
    fn new(change: Change, has_base: bool) -> Self {
        Self {
            base: has_base.then_some(change.base),
            head: change.head,
            delta: has_base.then(|| change.delta()),
            ratio: change.ratio().filter(|_| has_base),
            half_width: change.half_width(),
        }
    }
}

fn level(level: &profile::sites::Level) -> Level<'_> {
    Level { name: &level.name, file: level.file.as_deref(), line: (level.line != 0).then_some(level.line) }
}

/// Writes it.
pub(super) fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let cases = report.cases.iter().map(|case| Case {
        name: &case.name,
        metrics: case
            .metrics
            .iter()
            .map(|judged| Metric {
                name: &judged.metric.name,
                unit: &judged.metric.unit,
                values: Values::new(judged.metric.change, report.has_base),
                exact: judged.metric.is_exact,
                status: judged.status(),
                severity: judged.severity(),
                limits: &judged.judgements,
            })
            .collect(),
        blame: case.blame.as_ref().map(|blame| Blame {
            metric: &blame.metric,
            unit: &blame.unit,
            new: blame.counts.new,
            grown: blame.counts.grown,
            shrunk: blame.counts.shrunk,
            gone: blame.counts.gone,
            noise: blame.counts.noise,
            same: blame.counts.same,
            moved: blame.counts.moved,
            renamed: blame.comparison.renamed().into_iter().map(|(old, new)| Renamed { old, new }).collect(),
            stacks: blame
                .stacks
                .iter()
                .map(|stack| Stack {
                    status: stack.status.name(),
                    values: Values::new(stack.change, true),
                    moved: stack.moved,
                    site: stack.site.as_ref().map(level),
                    frames: stack.levels.iter().map(level).collect(),
                })
                .collect(),
            functions: blame
                .functions
                .iter()
                .map(|function| Function {
                    name: &function.name,
                    was: function.was.as_deref(),
                    own: Values::new(function.own, true),
                    total: Values::new(function.total, true),
                })
                .collect(),
        }),
    });
    let document = Document {
        schema: SCHEMA,
        version: VERSION,
        verdict: report.verdict(),
        severity: report.severity(),
        warnings: report.warnings(),
        only_in_base: &report.unpaired.base,
        only_in_head: &report.unpaired.head,
        cases: cases.collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
