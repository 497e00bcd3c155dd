//! Several runs as one report: means, and how far the runs lie apart.

use super::{LiveRow, Report, Row};
use serde::Serialize;
use std::collections::BTreeMap;

/// What several runs add to the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Repeated {
    /// How many there were.
    pub(super) runs: u32,
    /// By the names that `profrec diff` has for metrics: `allocs`, `bytes`, `peak`, `live`, functions; and `elapsed_seconds`, `user_seconds`, `system_seconds`.
    pub(super) spread: BTreeMap<String, Spread>,
}

/// How one number lies in the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) mean: f64,
    /// Of the runs, not of their mean; 0 of a single run.
    pub(super) standard_deviation: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of some numbers; of none it is 0.
    pub(super) fn of(values: &[f64]) -> Self {
        let number = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / number;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            mean,
            standard_deviation: if values.len() < 2 { 0.0 } else { (squares / (number - 1.0)).sqrt() },
            min: values.iter().copied().reduce(f64::min).unwrap_or(0.0),
            max: values.iter().copied().reduce(f64::max).unwrap_or(0.0),
        }
    }

    /// The standard error of the mean in hundredths of the mean, as `perf stat` gives it.
    pub(super) fn percent(self, runs: u32) -> f64 {
        if self.mean == 0.0 {
            0.0
        } else {
            100.0 * self.standard_deviation / f64::from(runs.max(1)).sqrt() / self.mean.abs()
        }
    }
}

/// The mean of all runs, each number rounded by itself. What is no number is the last run's.
pub(super) fn mean(mut runs: Vec<Report>) -> Option<Report> {
    let last = runs.pop()?;
    runs.push(last);
    let numbers: Vec<BTreeMap<String, f64>> = runs.iter().map(numbers).collect();
    let names = numbers.iter().flat_map(|of_run| of_run.keys().cloned());
    let mut spread: BTreeMap<String, Spread> = names.map(|name| (name, Spread::default())).collect();
    for (name, spread) in &mut spread {
        let values: Vec<f64> = numbers.iter().map(|of_run| of_run.get(name).copied().unwrap_or(0.0)).collect();
        *spread = Spread::of(&values);
    }
    let of = |name: &str| spread.get(name).map_or(0.0, |spread| spread.mean);
    let whole = |name: &str| of(name).round() as u64;
    let functions = runs.iter().flat_map(|run| &run.functions);
    let functions: BTreeMap<&'static str, Row> = functions
        .map(|(name, row)| {
            let bytes = row.bytes.map(|_| whole(&bytes_of(name)));
            (*name, Row { calls: whole(name), bytes })
        })
        .collect();
    let (allocations, bytes) = (whole("allocs"), whole("bytes"));
    let (elapsed, user, system) = (of("elapsed_seconds"), of("user_seconds"), of("system_seconds"));
    let (peak, live) = (of("peak").round() as i64, of("live").round() as i64);
    let repeated = Repeated { runs: runs.len() as u32, spread };
    let last = runs.pop()?;
    Some(Report {
        allocations,
        bytes,
        functions,
        live: last.live.clone().map(|row| LiveRow { peak_bytes: peak, end_bytes: live, ..row }),
        elapsed_seconds: elapsed,
        user_seconds: user,
        system_seconds: system,
        repeated: Some(repeated),
        ..last
    })
}

/// The name of a function's bytes among the spreads.
pub(super) fn bytes_of(function: &str) -> String {
    format!("{function} bytes")
}

fn numbers(report: &Report) -> BTreeMap<String, f64> {
    let mut numbers = BTreeMap::from([
        ("allocs".to_owned(), report.allocations as f64),
        ("bytes".to_owned(), report.bytes as f64),
        ("elapsed_seconds".to_owned(), report.elapsed_seconds),
        ("user_seconds".to_owned(), report.user_seconds),
        ("system_seconds".to_owned(), report.system_seconds),
    ]);
    if let Some(live) = &report.live {
        numbers.insert("peak".to_owned(), live.peak_bytes as f64);
        numbers.insert("live".to_owned(), live.end_bytes as f64);
    }
    for (name, row) in &report.functions {
        numbers.insert((*name).to_owned(), row.calls as f64);
        if let Some(bytes) = row.bytes {
            numbers.insert(bytes_of(name), bytes as f64);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_the_runs() {
        let spread = Spread::of(&[2.0, 4.0, 4.0, 6.0]);
        assert_eq!((spread.mean, spread.min, spread.max), (4.0, 2.0, 6.0));
        assert!((spread.standard_deviation - (8.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((spread.percent(4) - 100.0 * spread.standard_deviation / 2.0 / 4.0).abs() < 1e-12);
        assert_eq!(Spread::of(&[7.0]).standard_deviation, 0.0);
        assert_eq!(Spread::of(&[]).percent(0), 0.0);
    }
}
