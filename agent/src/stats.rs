//! What the agent counts, for its metrics and its last words.

use crate::queue::Account;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Numbers since the start.
#[derive(Debug, Default)]
pub(crate) struct Stats(Mutex<Numbers>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) cycles: u64,
    /// Profiles that were received.
    pub(crate) profiles: u64,
    pub(crate) profile_bytes: u64,
    /// Recordings of which there is no profile, by reason.
    pub(crate) missed: BTreeMap<&'static str, u64>,
    /// Files or links that could not be written.
    pub(crate) output_errors: u64,
    /// Processes of the running cycle.
    pub(crate) processes: u64,
    pub(crate) frequency: u32,
    /// Part of the machine's processor time that the last cycle took, 0 to 1.
    pub(crate) overhead: f64,
    /// By when the running cycle is over.
    pub(crate) due: Option<Instant>,
    /// What became of the profiles for each sink.
    pub(crate) accounts: BTreeMap<String, Account>,
}

impl Stats {
    pub(crate) fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn missed(&self, why: &'static str) {
        *self.numbers().missed.entry(why).or_default() += 1;
    }
}

impl Numbers {
    /// Whether cycles follow each other as they should.
    pub(crate) fn is_healthy(&self, patience: Duration) -> bool {
        self.due.is_none_or(|due| Instant::now() < due + patience)
    }

    /// The text format of Prometheus.
    pub(crate) fn prometheus(&self) -> String {
        let mut page = Page(String::new());
        page.single("cycles_total", "counter", "Cycles that are over.", self.cycles);
        page.single("profiles_total", "counter", "Profiles received from processes.", self.profiles);
        page.single("profile_bytes_total", "counter", "Their bytes.", self.profile_bytes);
        let missed = self.missed.iter().map(|(why, count)| (format!("{{reason=\"{why}\"}}"), *count));
        page.metric("missed_total", "counter", "Recordings without a profile, by reason.", missed);
        page.single("output_errors_total", "counter", "Files that could not be written.", self.output_errors);
        page.single("processes", "gauge", "Processes in the running cycle.", self.processes);
        page.single("frequency_hertz", "gauge", "Samples a second that the bound on overhead allows.", self.frequency);
        let help = "Processor time of recorders and agent in the last cycle, as a part of the machine's.";
        page.single("overhead_ratio", "gauge", help, self.overhead);
        let each = |number: fn(&Account) -> u64| {
            self.accounts.iter().map(move |(sink, account)| (format!("{{sink=\"{sink}\"}}"), number(account)))
        };
        page.metric("sink_sent_total", "counter", "Profiles that arrived.", each(|account| account.sent));
        let help = "Profiles sent again without knowing whether they had arrived.";
        page.metric("sink_repeated_total", "counter", help, each(|account| account.repeated));
        let given_up = self.accounts.iter().flat_map(|(sink, account)| {
            let labels = move |why: &str| format!("{{sink=\"{sink}\",reason=\"{why}\"}}");
            account.given_up.iter().map(move |(why, count)| (labels(why), *count))
        });
        page.metric("sink_given_up_total", "counter", "Profiles that will not be sent, by reason.", given_up);
        page.metric("sink_kept", "gauge", "Profiles that wait.", each(|account| account.kept));
        page.metric("sink_kept_bytes", "gauge", "Bytes that wait.", each(|account| account.kept_bytes));
        page.0
    }
}

struct Page(String);

impl Page {
    fn metric<N: std::fmt::Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        series: impl IntoIterator<Item = (String, N)>,
    ) {
        // A string takes whatever is written to it.
        let _ = writeln!(self.0, "# HELP profrec_agent_{name} {help}\n# TYPE profrec_agent_{name} {kind}");
        for (labels, value) in series {
            let _ = writeln!(self.0, "profrec_agent_{name}{labels} {value}");
        }
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.metric(name, kind, help, [(String::new(), value)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_help_and_type_and_a_number() {
        let mut numbers = Numbers { profiles: 3, ..Numbers::default() };
        numbers.missed.insert("gone", 2);
        let mut account = Account { sent: 5, kept: 1, ..Account::default() };
        account.given_up.insert("too old".to_owned(), 4);
        numbers.accounts.insert("main".to_owned(), account);
        let text = numbers.prometheus();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = series.split('{').next().unwrap();
            assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{line}");
        }
        for line in [
            "profrec_agent_profiles_total 3",
            "profrec_agent_missed_total{reason=\"gone\"} 2",
            "profrec_agent_sink_sent_total{sink=\"main\"} 5",
            "profrec_agent_sink_given_up_total{sink=\"main\",reason=\"too old\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_cycle_that_is_late_is_not_healthy() {
        let numbers = Numbers { due: Some(Instant::now()), ..Numbers::default() };
        assert!(numbers.is_healthy(Duration::from_secs(60)) && !numbers.is_healthy(Duration::ZERO));
        assert!(Numbers::default().is_healthy(Duration::ZERO), "before the first");
    }
}
