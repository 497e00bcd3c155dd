//! What is reported, whatever the format.

use super::Read;
use super::cases::Unpaired;
use super::input::Input;
use super::judge::{self, Judgement, Severity};
use super::metric::{self, Metric};
use super::thresholds::Thresholds;
use crate::args::Diff;
use crate::error::Error;
use crate::numbers::with_commas;
use profile::difference::{Change, Comparison, Counts, FunctionChange, Side, StackChange, Status};
use profile::{Profile, Symbols};
use std::collections::{BTreeMap, BTreeSet};

/// Stacks and functions that the JSON report lists; the others list fewer.
const MOST_LISTED: usize = 100;

/// Everything that is told.
pub(super) struct Report<'a> {
    /// What the marker in a comment says.
    pub(super) name: String,
    /// Each pair of files.
    pub(super) cases: Vec<Case<'a>>,
    /// Files without a partner.
    pub(super) unpaired: Unpaired,
    /// Whether there is a base.
    pub(super) has_base: bool,
    warnings: Vec<String>,
}

/// One pair of files.
pub(super) struct Case<'a> {
    pub(super) name: String,
    pub(super) metrics: Vec<Judged>,
    pub(super) blame: Option<Blame<'a>>,
}

/// A metric with what it was held against.
pub(super) struct Judged {
    pub(super) metric: Metric,
    pub(super) judgements: Vec<Judgement>,
}

/// Who is to blame, in one metric.
pub(super) struct Blame<'a> {
    /// The metric.
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) comparison: Comparison<'a>,
    /// The metric's column.
    pub(super) column: usize,
    pub(super) counts: Counts,
    pub(super) stacks: Vec<StackChange>,
    pub(super) functions: Vec<FunctionChange>,
}

impl Judged {
    /// The most serious of its judgements.
    pub(super) fn severity(&self) -> Severity {
        self.judgements.iter().map(|judgement| judgement.severity).max().unwrap_or(Severity::Within)
    }

    /// What became of it, in a word.
    pub(super) fn status(&self) -> &'static str {
        match (self.severity(), self.metric.change.status()) {
            (Severity::Exceeded, _) => "limit exceeded",
            (Severity::Warned, _) => "soft limit exceeded",
            (Severity::Noise, _) => "within noise of the limit",
            (_, Status::Same) => "no change",
            (_, Status::Noise) => "noise",
            _ if !self.judgements.is_empty() => "within limits",
            (_, status) => status.name(),
        }
    }
}

impl<'a> Report<'a> {
    /// Compares every case and holds it against its limits.
    pub(super) fn new(
        diff: &Diff,
        read: &'a [Read<'_>],
        unpaired: Unpaired,
        thresholds: Option<&Thresholds>,
    ) -> Result<Self, Error> {
        let has_base = diff.base.is_some();
        let mut warnings = Vec::new();
        let mut cases = Vec::new();
        for (pair, base, head) in read {
            let name = match (&diff.name, read) {
                (Some(name), [_]) => name.clone(),
                _ => pair.name.clone(),
            };
            let mut case = Case { name, metrics: Vec::new(), blame: None };
            let comparison = case.compare(base.as_ref(), head, &mut warnings)?;
            case.choose(diff)?;
            case.judge(diff, thresholds, &mut warnings);
            case.blame = comparison.and_then(|comparison| case.blamed(diff, comparison));
            cases.push(case);
        }
        let known: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        for case in thresholds.iter().flat_map(|thresholds| thresholds.cases()).filter(|case| !known.contains(case)) {
            warnings.push(format!(
                "the thresholds name a case '{case}' that was not measured; --update keeps it, an editor removes it"
            ));
        }
        for (names, side) in [(&unpaired.base, "base"), (&unpaired.head, "head")] {
            if !names.is_empty() {
                warnings.push(format!("only in the {side}, not compared: {}", names.join(", ")));
            }
        }
        Ok(Self { name: diff.name.clone().unwrap_or_else(|| "diff".to_owned()), cases, unpaired, has_base, warnings })
    }

    /// What a reader should know beyond the result.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The most serious of all judgements.
    pub(super) fn severity(&self) -> Severity {
        self.judged().map(|(_, judged)| judged.severity()).max().unwrap_or(Severity::Within)
    }

    fn judged(&self) -> impl Iterator<Item = (&Case<'a>, &Judged)> {
        self.cases.iter().flat_map(|case| case.metrics.iter().map(move |judged| (case, judged)))
    }

    /// The metric as a reader of several cases needs it.
    pub(super) fn label(&self, case: &Case<'_>, metric: &str) -> String {
        if self.cases.len() == 1 { metric.to_owned() } else { format!("{}: {metric}", case.name) }
    }

    /// The result in one line.
    pub(super) fn verdict(&self) -> String {
        let of = |severity: Severity| -> Vec<String> {
            let all = self.judged().filter(|(_, judged)| judged.severity() == severity);
            all.map(|(case, judged)| {
                format!("{} {}", self.label(case, &judged.metric.name), self.delta(&judged.metric))
            })
            .collect()
        };
        let list = |severity, what: &str| {
            let all = of(severity);
            let shown = all.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
            match all.len().saturating_sub(5) {
                0 => format!("{what}: {shown}"),
                more => format!("{what}: {shown} and {more} more"),
            }
        };
        match self.severity() {
            Severity::Exceeded => return list(Severity::Exceeded, "limit exceeded"),
            Severity::Warned => return list(Severity::Warned, "soft limit exceeded"),
            Severity::Noise => return list(Severity::Noise, "beyond a limit, but within noise"),
            Severity::Within => {}
        }
        if !self.has_base {
            return "within limits".to_owned();
        }
        let changed: Vec<_> = self
            .judged()
            .filter(|(_, judged)| !matches!(judged.metric.change.status(), Status::Same | Status::Noise))
            .map(|(case, judged)| format!("{} {}", self.label(case, &judged.metric.name), self.delta(&judged.metric)))
            .collect();
        let judged = self.judged().any(|(_, judged)| !judged.judgements.is_empty());
        let moved = self.cases.iter().filter_map(|case| case.blame.as_ref()).any(|b| {
            let c = b.counts;
            c.new + c.grown + c.shrunk + c.gone > 0
        });
        match (changed.is_empty(), judged) {
            (true, _) if self.judged().any(|(_, judged)| judged.metric.change.status() == Status::Noise) => {
                "no change beyond noise".to_owned()
            }
            (true, _) if moved => "no change in total, but between stacks".to_owned(),
            (true, _) => "no change".to_owned(),
            (false, true) => {
                format!("within limits: {}", changed.iter().take(5).cloned().collect::<Vec<_>>().join(", "))
            }
            (false, false) => format!("changed: {}", changed.iter().take(5).cloned().collect::<Vec<_>>().join(", ")),
        }
    }

    /// The difference of a metric as text: `+1,000 (+12.5%)`.
    pub(super) fn delta(&self, metric: &Metric) -> String {
        if !self.has_base {
            return with_commas(metric.change.head);
        }
        let percent = percent(metric.change);
        if percent.is_empty() {
            signed(metric.change.delta())
        } else {
            format!("{} ({percent})", signed(metric.change.delta()))
        }
    }
}

impl<'a> Case<'a> {
    /// Fills in every metric that both sides have.
    fn compare(
        &mut self,
        base: Option<&'a Input>,
        head: &'a Input,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Comparison<'a>>, Error> {
        match (base, head) {
            (Some(Input::Profile(base)), Input::Profile(head)) => {
                let comparison = Comparison::new(side(base), side(head));
                self.metrics = comparison
                    .columns()
                    .iter()
                    .map(|column| Judged {
                        metric: Metric {
                            name: metric::of_sample_type(&column.sample_type.kind).into_owned(),
                            unit: column.sample_type.unit.to_string(),
                            change: column.total,
                            is_exact: column.is_exact,
                        },
                        judgements: Vec::new(),
                    })
                    .collect();
                if self.metrics.is_empty() {
                    return Err(Error::failure(format!(
                        "the two profiles of '{}' have no sample type in common; record both with the same --mode",
                        self.name
                    )));
                }
                self.tell_losses(base, head, warnings);
                Ok(Some(comparison))
            }
            (None, Input::Profile(head)) => {
                let own = Comparison::new(side(head), side(head));
                self.metrics = own
                    .columns()
                    .iter()
                    .map(|column| Judged {
                        metric: Metric {
                            name: metric::of_sample_type(&column.sample_type.kind).into_owned(),
                            unit: column.sample_type.unit.to_string(),
                            // One of the two is the whole uncertainty.
                            change: Change { variance: column.total.variance / 2.0, ..column.total },
                            is_exact: column.is_exact,
                        },
                        judgements: Vec::new(),
                    })
                    .collect();
                Ok(None)
            }
            (base, Input::Counts(head)) => {
                let old: BTreeMap<&str, _> = match base {
                    Some(Input::Counts(base)) => base.iter().map(|c| (c.name.as_str(), c)).collect(),
                    None => head.iter().map(|c| (c.name.as_str(), c)).collect(),
                    Some(Input::Profile(_)) => return Err(self.of_two_kinds()),
                };
                let new: BTreeMap<&str, _> = head.iter().map(|c| (c.name.as_str(), c)).collect();
                let names =
                    head.iter().map(|c| c.name.as_str()).chain(old.keys().copied().filter(|n| !new.contains_key(n)));
                for name in names {
                    let (o, n) = (old.get(name), new.get(name));
                    let of = |c: Option<&&super::metric::Counted>| c.map_or((0, 0.0), |c| (c.value, c.variance));
                    let ((base_value, base_variance), (head_value, head_variance)) = (of(o), of(n));
                    let variance = if base.is_some() { base_variance + head_variance } else { head_variance };
                    let unit = n.or(o).map_or("count", |c| c.unit).to_owned();
                    let change = Change { base: base_value, head: head_value, variance };
                    let metric = Metric { name: name.to_owned(), unit, change, is_exact: variance == 0.0 };
                    self.metrics.push(Judged { metric, judgements: Vec::new() });
                }
                Ok(None)
            }
            (Some(Input::Counts(_)), Input::Profile(_)) => Err(self.of_two_kinds()),
        }
    }

    fn of_two_kinds(&self) -> Error {
        Error::failure(format!(
            "of '{}' one side is a profile and the other are counters of 'stat'; compare two of a kind",
            self.name
        ))
    }

    /// What was not recorded is in no stack: a reader of a difference must know.
    fn tell_losses(&self, base: &(Profile, Symbols), head: &(Profile, Symbols), warnings: &mut Vec<String>) {
        for ((profile, _), side) in [(base, "base"), (head, "head")] {
            let lost =
                profile.comments.iter().find(|comment| comment.contains("lost") || comment.contains("not recorded"));
            if let Some(lost) = lost {
                warnings.push(format!("{}, {side}: {lost}", self.name));
            }
        }
    }

    /// Keeps the metrics that were asked for.
    fn choose(&mut self, diff: &Diff) -> Result<(), Error> {
        let has = |name: &str| self.metrics.iter().any(|judged| judged.metric.name == name);
        let limits = diff.fail_on.iter().chain(&diff.warn_on).map(|limit| &limit.metric);
        if let Some(missing) = diff.metrics.iter().chain(limits).find(|name| !has(name)) {
            let known: Vec<&str> = self.metrics.iter().map(|judged| judged.metric.name.as_str()).collect();
            return Err(Error::failure(format!(
                "'{}' has no metric '{missing}'; it has {}",
                self.name,
                known.join(", ")
            )));
        }
        if !diff.metrics.is_empty() {
            let limited: Vec<String> =
                diff.fail_on.iter().chain(&diff.warn_on).map(|limit| limit.metric.clone()).collect();
            self.metrics
                .retain(|judged| diff.metrics.contains(&judged.metric.name) || limited.contains(&judged.metric.name));
            let place = |name: &String| diff.metrics.iter().position(|m| m == name).unwrap_or(usize::MAX);
            self.metrics.sort_by_key(|judged| place(&judged.metric.name));
        }
        Ok(())
    }

    fn judge(&mut self, diff: &Diff, thresholds: Option<&Thresholds>, warnings: &mut Vec<String>) {
        for judged in &mut self.metrics {
            let metric = &judged.metric;
            for (limits, is_hard) in [(&diff.fail_on, true), (&diff.warn_on, false)] {
                let of_this = limits.iter().filter(|limit| limit.metric == metric.name);
                judged.judgements.extend(of_this.map(|limit| judge::limit(metric, limit, is_hard)));
            }
            let Some(threshold) = thresholds.and_then(|t| t.of(&self.name, &metric.name)) else { continue };
            judged.judgements.extend(judge::threshold(metric, threshold));
            if threshold.is_stale(metric.change.head) {
                let most = threshold.soft.or(threshold.hard).unwrap_or(0);
                warnings.push(format!(
                    "the threshold of {} {} is stale: it allows {}, the head takes {}; --update lowers it",
                    self.name,
                    metric.name,
                    with_commas(most),
                    with_commas(metric.change.head)
                ));
            }
        }
        let Some(thresholds) = thresholds else { return };
        for name in thresholds.metrics(&self.name) {
            if !self.metrics.iter().any(|judged| judged.metric.name == name) && diff.metrics.is_empty() {
                warnings
                    .push(format!("the thresholds of '{}' name a metric '{name}' that was not measured", self.name));
            }
        }
        if thresholds.metrics(&self.name).next().is_none() {
            warnings.push(format!("no thresholds are known for '{}'; --update writes them", self.name));
        }
    }

    /// The metric to blame somebody for: the one that exceeds most seriously, or the first that was asked for, or the one that the head shows first.
    fn blamed(&self, diff: &Diff, comparison: Comparison<'a>) -> Option<Blame<'a>> {
        let worst = self.metrics.iter().rev().max_by_key(|judged| judged.severity());
        let default = comparison.default_column();
        let of_default =
            comparison.columns().get(default).map(|c| metric::of_sample_type(&c.sample_type.kind).into_owned());
        let name = worst.filter(|judged| judged.severity() > Severity::Within).map(|judged| judged.metric.name.clone());
        let name = name.or_else(|| diff.metrics.first().cloned()).or(of_default)?;
        let column = comparison.columns().iter().position(|c| metric::of_sample_type(&c.sample_type.kind) == name)?;
        let unit = comparison.columns().get(column)?.sample_type.unit.to_string();
        let (counts, stacks) = (comparison.counts(column), comparison.stacks(column, MOST_LISTED));
        let functions = comparison.functions(column, MOST_LISTED);
        Some(Blame { metric: name, unit, comparison, column, counts, stacks, functions })
    }
}

fn side(input: &(Profile, Symbols)) -> Side<'_> {
    Side { profile: &input.0, symbols: &input.1 }
}

/// A number with its sign.
pub(super) fn signed(number: i64) -> String {
    let sign = if number > 0 { "+" } else { "" };
    format!("{sign}{}", with_commas(number))
}

/// The difference as a share of the base; empty where there is no base to speak of.
pub(super) fn percent(change: Change) -> String {
    match change.ratio() {
        Some(ratio) if change.delta() != 0 => format!("{:+.2}%", ratio * 100.0),
        _ => String::new(),
    }
}
