//! What a victim says of itself, and what a profile says of it.

use profile_recorder_tests::carried::{Carried, headers};
use profile_recorder_tests::pprof;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Lines `KIND NAME NANOSECONDS` of `victim-spends`.
pub(super) struct Truth(BTreeMap<(String, String), f64>);

impl Truth {
    pub(super) fn of(stdout: &str) -> Self {
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, name, nanos] = words[..] else { panic!("{stdout}") };
            ((kind.to_owned(), name.to_owned()), nanos.parse().unwrap_or_else(|_| panic!("{stdout}")))
        };
        Self(stdout.lines().map(line).collect())
    }

    pub(super) fn process(&self) -> f64 {
        self.0[&("process".to_owned(), "-".to_owned())]
    }

    /// Everything of a kind, by name.
    pub(super) fn all(&self, kind: &str) -> Vec<(&str, f64)> {
        self.0.iter().filter(|((of, _), _)| of == kind).map(|((_, name), nanos)| (name.as_str(), *nanos)).collect()
    }
}

/// Nanoseconds by the values of a label, as `pprof -tags` sums them.
pub(super) fn by_label(profile: &Path, column: &str, label: &str) -> BTreeMap<String, f64> {
    let index = format!("-sample_index={column}");
    let tags = pprof::go(&["-tags", &index, "-unit=ns"], profile.to_str().expect("a path in UTF-8"));
    let head = format!("{label}: Total");
    let lines = tags.lines().skip_while(|line| !line.trim_start().starts_with(&head)).skip(1);
    lines
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| {
            let (value, name) = line.split_once("):")?;
            let nanos = value.split_whitespace().next()?.strip_suffix("ns")?.parse().ok()?;
            Some((name.trim().to_owned(), nanos))
        })
        .collect()
}

/// Nanoseconds below functions whose name ends so, as `pprof -top` sums them.
pub(super) fn below(profile: &Path, column: &str, name: &str) -> f64 {
    below_where("", profile, column, name)
}

/// The same of samples with a label: `key=value`.
pub(super) fn below_where(label: &str, profile: &Path, column: &str, name: &str) -> f64 {
    let (index, focus) = (format!("-sample_index={column}"), format!("-tagfocus={label}"));
    let top = pprof::go(
        &["-top", "-cum", "-nodecount=10000", "-nodefraction=0", &index, "-unit=ns", &focus],
        profile.to_str().expect("a path in UTF-8"),
    );
    let of = |line: &str| line.split_whitespace().nth(3)?.strip_suffix("ns")?.parse::<f64>().ok();
    top.lines().filter(|line| line.trim_end().ends_with(name)).filter_map(of).sum()
}

/// Runs `victim-spends` during one session of a mode; what it says, and the profile.
///
/// The work takes as long as the machine lets it take. A session that ended before it is done again, longer.
pub(super) fn spends(arguments: &str, before: &str, query: &str) -> (Truth, PathBuf, Carried) {
    for seconds in [4, 12, 40] {
        let mut carried = Carried::start("victim-spends", arguments, before);
        let (ask, profile) = carried.ask(&format!("{query}&seconds={seconds}"), "p.pb.gz");
        let begun = std::time::Instant::now();
        // The session begins before the work.
        std::thread::sleep(std::time::Duration::from_millis(600));
        carried.go();
        let mut said = String::new();
        loop {
            let line = carried.line();
            said.push_str(&line);
            if line.starts_with("process") || line.is_empty() {
                break;
            }
        }
        let within = begun.elapsed() < std::time::Duration::from_secs(seconds);
        let answer = headers(ask);
        assert!(answer.contains("200 OK"), "{answer}");
        if within {
            return (Truth::of(&said), profile, carried);
        }
    }
    panic!("the work took more than 40 seconds");
}
