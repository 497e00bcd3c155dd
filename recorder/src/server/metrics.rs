//! `/metrics`: the recorder's own counters in the text format of Prometheus (version 0.0.4).

use layout::Function;
use profile::store::Counters;
use std::fmt::Write;

use super::meter::Meter;
use crate::health::StoreHealth;

/// What the format calls itself.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

struct Page(String);

impl Page {
    /// One metric: its name without the product's, what it is, and its series as (labels, value).
    fn metric(&mut self, name: &str, kind: &str, help: &str, series: impl IntoIterator<Item = (String, f64)>) {
        let name = format!("profile_recorder_{name}");
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in series {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.metric(name, kind, help, [(String::new(), value)]);
    }
}

fn label(name: &str, value: &str) -> String {
    // Values are names of ours, without quotes, backslashes or line breaks.
    format!("{{{name}=\"{value}\"}}")
}

/// The page.
pub(super) fn text(meter: &Meter, counters: &Counters, store: &StoreHealth, own_cpu_seconds: f64) -> String {
    let mut page = Page(String::new());
    let by_mode = meter.begun().map(|(mode, count)| (label("mode", mode.name()), count as f64));
    page.metric("sessions_total", "counter", "Recordings begun.", by_mode);
    page.single("sessions_running", "gauge", "Recordings running now.", meter.running() as f64);
    let answers = meter.answers().map(|(class, count)| (label("code", &format!("{class}xx")), count as f64));
    page.metric("http_answers_total", "counter", "Answered requests by class of status.", answers);
    page.single("time_samples_total", "counter", "Samples of CPU and elapsed time entered.", store.time_samples as f64);
    // A store can be full of samples of time and of allocations.
    let events = store.lost.iter().map(|(reason, events, _)| {
        let kind = if reason.is_time() { "time" } else { "allocation" };
        (format!("{{kind=\"{kind}\",reason=\"{}\"}}", reason.reason()), *events as f64)
    });
    page.metric("lost_total", "counter", "Events that could not be recorded, by reason.", events);
    let of = |time: bool| {
        let matching = store.lost.iter().filter(move |(reason, ..)| reason.is_time() == time);
        matching.map(move |(reason, _, weight)| {
            let unit = if time { 1e9 } else { 1.0 };
            (label("reason", reason.reason()), *weight as f64 / unit)
        })
    };
    page.metric("lost_seconds_total", "counter", "Time that lost samples stood for.", of(true));
    page.metric("lost_bytes_total", "counter", "Bytes that lost allocations stood for.", of(false));
    page.single("held_bytes", "gauge", "Memory in use for what was recorded.", store.used_bytes as f64);
    page.single("held_bytes_limit", "gauge", "Most memory for what is recorded.", store.budget_bytes as f64);
    let handlers = store.handler_ns as f64 / 1e9;
    page.single("handler_seconds_total", "counter", "CPU time of the signal handlers that sample.", handlers);
    page.single("own_cpu_seconds_total", "counter", "CPU time of the recorder's threads.", own_cpu_seconds);
    let called = |function: &Function| counters.counts.calls_of(*function) > 0;
    let calls = Function::ALL.into_iter().filter(called);
    let calls = calls.map(|f| (label("function", f.name()), counters.counts.calls_of(f) as f64));
    page.metric("allocation_calls_total", "counter", "Calls of the allocation functions.", calls);
    let bytes = Function::ALL.into_iter().filter(|f| called(f) && !f.releases());
    let bytes = bytes.map(|f| (label("function", f.name()), counters.counts.bytes_of(f) as f64));
    page.metric("allocation_bytes_total", "counter", "Bytes asked of the allocation functions.", bytes);
    if let Some(live) = counters.live {
        page.single("live_bytes", "gauge", "Live memory of the process's allocator.", live.bytes as f64);
        page.single("peak_live_bytes", "gauge", "The most that was live.", live.peak_bytes as f64);
    }
    page.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::Lost;

    #[test]
    fn every_metric_has_help_and_type_and_values_are_numbers() {
        let mut counters = Counters::default();
        counters.counts.calls[Function::Malloc as usize] = 3;
        counters.counts.bytes[Function::Malloc as usize] = 100;
        let weights = |reason: Lost| match reason {
            Lost::TimeStoreFull => (reason, 2, 500_000_000),
            Lost::StoreFull => (reason, 1, 64),
            _ => (reason, 0, 0),
        };
        let lost = Lost::ALL.map(weights).to_vec();
        let store =
            StoreHealth { used_bytes: 4096, budget_bytes: 8192, time_samples: 9, handler_ns: 1_500_000_000, lost };
        let text = text(&Meter::new(), &counters, &store, 0.25);
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let mut seen = std::collections::HashSet::new();
        for line in &samples {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(seen.insert(series), "twice: {line}");
            let name = series.split('{').next().unwrap();
            for kind in ["HELP", "TYPE"] {
                assert_eq!(text.matches(&format!("# {kind} {name} ")).count(), 1, "{kind} {name}");
            }
        }
        for expected in [
            "profile_recorder_allocation_calls_total{function=\"malloc\"} 3".to_owned(),
            "profile_recorder_held_bytes 4096".to_owned(),
            "profile_recorder_lost_total{kind=\"time\",reason=\"store full\"} 2".to_owned(),
            "profile_recorder_lost_total{kind=\"allocation\",reason=\"store full\"} 1".to_owned(),
            "profile_recorder_handler_seconds_total 1.5".to_owned(),
            format!("profile_recorder_lost_seconds_total{{reason=\"{}\"}} 0.5", Lost::TimeStoreFull.reason()),
            format!("profile_recorder_lost_bytes_total{{reason=\"{}\"}} 64", Lost::StoreFull.reason()),
        ] {
            assert!(samples.contains(&expected.as_str()), "{expected} in\n{text}");
        }
    }
}
