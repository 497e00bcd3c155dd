//! Whether a metric is within its limits.

use super::limit::Limit;
use super::metric::Metric;
use super::thresholds::Threshold;
use serde::Serialize;

/// How serious something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Within its limits, or without any.
    Within,
    /// Beyond a limit, by no more than chance does.
    Noise,
    /// Beyond a soft limit.
    Warned,
    /// Beyond a hard limit.
    Exceeded,
}

/// A limit that a metric was held against.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Judgement {
    /// The limit as it was given.
    pub(super) limit: String,
    /// The largest value that it allows.
    pub(super) most: i64,
    /// What came of it.
    pub(super) severity: Severity,
}

/// A metric against one limit. A sampled one exceeds it only with its whole 95 % confidence interval.
pub(super) fn limit(metric: &Metric, limit: &Limit, is_hard: bool) -> Judgement {
    held(metric, limit.to_string(), limit.most(metric.change.base), is_hard)
}

/// A metric against a value of the thresholds file.
pub(super) fn threshold(metric: &Metric, threshold: Threshold) -> Vec<Judgement> {
    let soft = threshold.soft.map(|most| held(metric, format!("soft threshold {most}"), most, false));
    let hard = threshold.hard.map(|most| held(metric, format!("threshold {most}"), most, true));
    soft.into_iter().chain(hard).collect()
}

fn held(metric: &Metric, limit: String, most: i64, is_hard: bool) -> Judgement {
    let beyond = i128::from(metric.change.head) - i128::from(most);
    let severity = match (beyond > 0, beyond as f64 > metric.change.half_width()) {
        (false, _) => Severity::Within,
        (true, false) => Severity::Noise,
        (true, true) if is_hard => Severity::Exceeded,
        (true, true) => Severity::Warned,
    };
    Judgement { limit, most, severity }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::difference::Change;

    fn metric(head: i64, variance: f64) -> Metric {
        let change = Change { variance, ..Change::exact(1000, head) };
        Metric { name: "allocs".into(), unit: "count".into(), change, is_exact: variance == 0.0 }
    }

    #[test]
    fn an_exact_metric_exceeds_by_one_and_a_sampled_one_by_its_interval() {
        let most = "allocs=+10".parse().unwrap();
        for (head, variance, hard, severity) in [
            (1010, 0.0, true, Severity::Within),
            (1011, 0.0, true, Severity::Exceeded),
            (1011, 0.0, false, Severity::Warned),
            (1011, 100.0, true, Severity::Noise),
            (1029, 100.0, true, Severity::Noise),
            (1030, 100.0, true, Severity::Exceeded),
            (500, 0.0, true, Severity::Within),
        ] {
            assert_eq!(limit(&metric(head, variance), &most, hard).severity, severity, "{head} {variance} {hard}");
        }
    }
}
