//! What is compared as one number.

use profile::difference::Change;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The names that users know, and the sample types they stand for.
const NAMES: [(&str, &str); 6] = [
    ("allocs", "alloc_objects"),
    ("bytes", "alloc_space"),
    ("live-objects", "inuse_objects"),
    ("live", "inuse_space"),
    ("temporary", "temporary_objects"),
    ("offcpu", "off_cpu"),
];

/// What a sample type is called on the command line.
pub(crate) fn of_sample_type(kind: &str) -> Cow<'_, str> {
    let known = NAMES.iter().find(|(_, k)| *k == kind).map(|(name, _)| Cow::Borrowed(*name));
    known.unwrap_or(Cow::Borrowed(kind))
}

/// A metric's name as the command line may spell it, made the one that is compared.
pub(crate) fn canonical(name: &str) -> String {
    of_sample_type(name.trim()).into_owned()
}

/// One number on both sides.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Metric {
    /// Its name.
    pub(super) name: String,
    /// What one unit is: `count`, `bytes`, `nanoseconds`.
    pub(super) unit: String,
    /// The values. Without a base, the base is the head.
    pub(super) change: Change,
    /// Whether both sides counted every event.
    pub(super) is_exact: bool,
}

/// A counter of `stat`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) value: i64,
    /// Variance of the mean over several runs; 0 of one run, or where all runs gave the same.
    pub(super) variance: f64,
}

#[derive(Deserialize)]
struct Stat {
    version: u32,
    allocations: i64,
    bytes: i64,
    functions: BTreeMap<String, Function>,
    live: Option<Live>,
    #[serde(default)]
    repeated: Option<Repeated>,
}

#[derive(Deserialize)]
struct Function {
    calls: i64,
}

#[derive(Deserialize)]
struct Live {
    peak_bytes: i64,
    end_bytes: i64,
}

/// What `stat --repeat` adds.
#[derive(Deserialize)]
struct Repeated {
    runs: u32,
    spread: BTreeMap<String, Spread>,
}

#[derive(Deserialize)]
struct Spread {
    mean: f64,
    standard_deviation: f64,
}

impl Counted {
    /// Every counter of a file that `stat --json` wrote.
    pub(super) fn all(bytes: &[u8]) -> Result<Vec<Self>, String> {
        let stat: Stat = serde_json::from_slice(bytes)
            .map_err(|e| format!("it is JSON, but not what 'profrec stat --json' writes ({e})"))?;
        if stat.version != 1 {
            return Err(format!("version {} of the counters is unknown; use the profrec that wrote it", stat.version));
        }
        let mut all = vec![("allocs".to_owned(), "count", stat.allocations), ("bytes".to_owned(), "bytes", stat.bytes)];
        if let Some(live) = stat.live {
            all.push(("peak".to_owned(), "bytes", live.peak_bytes));
            all.push(("live".to_owned(), "bytes", live.end_bytes));
        }
        all.extend(stat.functions.into_iter().map(|(name, function)| (name, "count", function.calls)));
        let counted = |(name, unit, value)| {
            let spread = stat.repeated.as_ref().and_then(|r| Some((r.runs, r.spread.get(&name)?)));
            match spread {
                Some((runs, spread)) => {
                    let variance = spread.standard_deviation.powi(2) / f64::from(runs.max(1));
                    Self { name, unit, value: spread.mean.round() as i64, variance }
                }
                None => Self { name, unit, value, variance: 0.0 },
            }
        };
        Ok(all.into_iter().map(counted).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_short_names_and_sample_types_go_by_theirs() {
        for (typed, name) in [("allocs", "allocs"), ("alloc_space", "bytes"), ("inuse_space", "live"), ("cpu", "cpu")] {
            assert_eq!(canonical(typed), name);
        }
    }

    #[test]
    fn several_runs_are_their_mean_with_the_variance_of_it() {
        let json = br#"{"version":1,"allocations":12,"bytes":100,"functions":{"malloc":{"calls":12,"bytes":100}},
            "repeated":{"runs":4,"spread":{"allocs":{"mean":11.6,"standard_deviation":2.0}}}}"#;
        let all = Counted::all(json).unwrap();
        assert_eq!((all[0].name.as_str(), all[0].value, all[0].variance), ("allocs", 12, 1.0));
        assert_eq!((all[1].name.as_str(), all[1].value, all[1].variance), ("bytes", 100, 0.0));
        assert!(Counted::all(b"{}").unwrap_err().contains("stat --json"));
    }
}
