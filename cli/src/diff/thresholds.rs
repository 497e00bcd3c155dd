//! The thresholds file of a repository: how much each case may take, whatever the base takes.
//!
//! ```json
//! {"schema": "profile-recorder.thresholds", "version": 1,
//!  "cases": {"parse": {"allocs": 8000, "bytes": {"soft": 100000, "hard": 120000}}}}
//! ```

use super::metric;
use super::report::Report;
use crate::error::Error;
use crate::pending::reason;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

const SCHEMA: &str = "profile-recorder.thresholds";
/// What `--update` writes of a case that the file does not know, unless `--metric` says otherwise.
const BY_DEFAULT: [&str; 2] = ["allocs", "bytes"];
/// A head below this share of its threshold makes the threshold stale.
const STALE_PERCENT: i64 = 95;

/// What one metric may come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Threshold {
    /// Beyond this is told.
    pub(super) soft: Option<i64>,
    /// Beyond this fails.
    pub(super) hard: Option<i64>,
}

impl Threshold {
    /// Whether the value is so far below that the limit has lost its meaning.
    pub(super) fn is_stale(self, value: i64) -> bool {
        let limits = self.hard.into_iter().chain(self.soft);
        let lowest = limits.min();
        lowest.is_some_and(|most| most > 0 && i128::from(value) * 100 < i128::from(most) * i128::from(STALE_PERCENT))
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Typed {
    Hard(i64),
    #[serde(rename_all = "lowercase")]
    Both {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        soft: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hard: Option<i64>,
    },
}

/// The file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Thresholds {
    schema: String,
    version: u32,
    cases: BTreeMap<String, BTreeMap<String, Typed>>,
}

impl Thresholds {
    /// Reads the file; one that is not there yet is empty if it is to be written.
    pub(super) fn read(path: &Path, update: bool) -> Result<Self, Error> {
        let cannot = |why: &str| Error::failure(format!("cannot read the thresholds in '{}': {why}", path.display()));
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound && update => {
                return Ok(Self { schema: SCHEMA.to_owned(), version: 1, cases: BTreeMap::new() });
            }
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(cannot("no such file; --update makes it")),
            Err(e) => return Err(cannot(&reason(&e))),
        };
        let read: Self = serde_json::from_slice(&bytes).map_err(|e| cannot(&e.to_string()))?;
        if read.schema != SCHEMA || read.version != 1 {
            return Err(cannot(&format!("it is '{}' version {}, not '{SCHEMA}' version 1", read.schema, read.version)));
        }
        Ok(read)
    }

    /// What a metric of a case may come to.
    pub(super) fn of(&self, case: &str, metric: &str) -> Option<Threshold> {
        let typed = self.cases.get(case)?.iter().find(|(name, _)| metric::canonical(name) == metric)?.1;
        Some(match *typed {
            Typed::Hard(hard) => Threshold { soft: None, hard: Some(hard) },
            Typed::Both { soft, hard } => Threshold { soft, hard },
        })
    }

    /// Names of the metrics that a case has thresholds for, as they are compared.
    pub(super) fn metrics(&self, case: &str) -> impl Iterator<Item = String> {
        self.cases.get(case).into_iter().flatten().map(|(name, _)| metric::canonical(name))
    }

    /// Names of the cases.
    pub(super) fn cases(&self) -> impl Iterator<Item = &str> {
        self.cases.keys().map(String::as_str)
    }

    /// Takes the head's values. A soft limit keeps its distance in absolute numbers from the hard one.
    pub(super) fn update(&mut self, report: &Report<'_>, metrics: &[String]) {
        for case in &report.cases {
            let known = self.cases.entry(case.name.clone()).or_default();
            let is_new = known.is_empty();
            for metric in &case.metrics {
                let head = metric.metric.change.head;
                let typed = known.iter_mut().find(|(name, _)| metric::canonical(name) == metric.metric.name);
                let wanted = match metrics.is_empty() {
                    true => is_new && BY_DEFAULT.contains(&metric.metric.name.as_str()),
                    false => metrics.contains(&metric.metric.name),
                };
                match typed {
                    Some((_, Typed::Hard(hard) | Typed::Both { hard: Some(hard), soft: None })) => *hard = head,
                    Some((_, Typed::Both { hard: Some(hard), soft: Some(soft) })) => {
                        let distance = hard.saturating_sub(*soft);
                        (*soft, *hard) = (head, head.saturating_add(distance));
                    }
                    Some((_, Typed::Both { soft, hard: None })) => *soft = Some(head),
                    None if wanted => drop(known.insert(metric.metric.name.clone(), Typed::Hard(head))),
                    None => {}
                }
            }
        }
    }

    /// Writes the file as a person would edit it.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_stale_when_it_allows_a_twentieth_more() {
        let hard = |hard| Threshold { soft: None, hard: Some(hard) };
        assert!(!hard(100).is_stale(95) && hard(100).is_stale(94) && !hard(0).is_stale(0) && !hard(100).is_stale(200));
        assert!(!Threshold { soft: Some(100), hard: Some(500) }.is_stale(96));
    }

    #[test]
    fn a_number_is_a_hard_limit() {
        let text = r#"{"schema":"profile-recorder.thresholds","version":1,"cases":{"a":{"allocs":5,"alloc_space":{"soft":7}}}}"#;
        let thresholds: Thresholds = serde_json::from_str(text).unwrap();
        assert_eq!(thresholds.of("a", "allocs"), Some(Threshold { soft: None, hard: Some(5) }));
        assert_eq!(thresholds.of("a", "bytes"), Some(Threshold { soft: Some(7), hard: None }));
        assert_eq!(thresholds.of("b", "allocs"), None);
    }
}
