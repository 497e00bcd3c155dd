//! gProfiler's `.col`: a line of metadata, then collapsed stacks of many processes.
//!
//! ```text
//! # {"containers": [], "metadata": {"profiling_mode": "cpu", ...}, "application_metadata": [null], ...}
//! 0;container;comm;appid: name;main;parse 12
//! ```
//!
//! The first field of a line is an index into `application_metadata`, of which there is what [`About`] chooses. Container and appid are those of labels
//! with these names; the process's executable is its comm, or the thread's name where that is not known. One column of the profile is
//! written; the metadata names it, so that it is read back as what it was. Sums of zero are left out. `flamegraph.pl` reads the file too.

use super::{collapsed, folded_name};
use crate::named::{Before, Tree};
use crate::{LabelValue, Options, Profile, Sample, Symbols};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// What precedes the name of an application, in a frame of its own.
pub(crate) const APP_ID: &str = "appid: ";

/// What a file tells beside what the profile knows.
#[derive(Clone, Debug, Default)]
pub struct About<'a> {
    /// Further metadata: the machine, the recording.
    pub metadata: serde_json::Map<String, Value>,
    /// How busy the machine was.
    pub metrics: Option<Value>,
    /// Keys of the labels that tell of the application, and so become its metadata.
    pub application_keys: &'a [&'a str],
}

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    encode_about(profile, symbols, options, &About::default(), out)
}

/// Writes the profile, and what else there is to say.
pub fn encode_about(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    about: &About<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let column = options.column(profile)?;
    let applications = Applications::of(profile, about.application_keys);
    let fields = |profile: &Profile, sample: &Sample| fields(profile, sample, applications.index(sample));
    let tree = Tree::new(profile, symbols, Before::Text(&fields), folded_name);
    let own = tree.own_values(profile, column);
    let containers: BTreeSet<&str> = profile.samples.iter().filter_map(|sample| text(sample, "container")).collect();
    let sample_type = profile.sample_types.get(column);
    let profiling_mode = match sample_type {
        Some(of) if of.is_memory() => "allocation",
        _ => "cpu",
    };
    let metadata = Metadata {
        profiling_mode,
        start_time: iso_time(profile.start_unix_ns),
        end_time: iso_time(profile.start_unix_ns.saturating_add(profile.duration_ns)),
        sample_type: sample_type.map_or("samples", |t| &t.kind),
        sample_unit: sample_type.map_or("count", |t| &t.unit),
        comments: &profile.comments,
        about: &about.metadata,
    };
    let head = Head {
        container_names_enabled: !containers.is_empty(),
        containers,
        metadata,
        // That lines begin with an index; readers go by it.
        application_metadata_enabled: true,
        application_metadata: applications.all,
        metrics: about.metrics.as_ref(),
    };
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    writeln!(out, "# {}", serde_json::to_string(&head)?)?;
    collapsed::lines(&tree, &own, |line| out.write_all(line.as_bytes()))?;
    out.flush()
}

/// What is known of the applications, by the index that begins each line. Index 0 is nothing.
struct Applications<'a> {
    keys: &'a [&'a str],
    all: Vec<Value>,
    by_text: BTreeMap<String, usize>,
}

impl<'a> Applications<'a> {
    fn of(profile: &Profile, keys: &'a [&'a str]) -> Self {
        let mut applications = Self { keys, all: vec![Value::Null], by_text: BTreeMap::new() };
        for sample in &profile.samples {
            let metadata = applications.metadata(sample);
            if metadata != Value::Null {
                let next = applications.all.len();
                if *applications.by_text.entry(metadata.to_string()).or_insert(next) == next {
                    applications.all.push(metadata);
                }
            }
        }
        applications
    }

    fn metadata(&self, sample: &Sample) -> Value {
        let known = self.keys.iter().filter_map(|key| Some(((*key).to_owned(), text(sample, key)?.into())));
        let known: serde_json::Map<String, Value> = known.collect();
        if known.is_empty() { Value::Null } else { Value::Object(known) }
    }

    fn index(&self, sample: &Sample) -> usize {
        if self.by_text.is_empty() {
            return 0;
        }
        self.by_text.get(&self.metadata(sample).to_string()).copied().unwrap_or(0)
    }
}

#[derive(Serialize)]
struct Head<'a> {
    containers: BTreeSet<&'a str>,
    container_names_enabled: bool,
    metadata: Metadata<'a>,
    application_metadata: Vec<Value>,
    application_metadata_enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<&'a Value>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    profiling_mode: &'a str,
    start_time: String,
    end_time: String,
    sample_type: &'a str,
    sample_unit: &'a str,
    comments: &'a [String],
    #[serde(flatten)]
    about: &'a serde_json::Map<String, Value>,
}

fn text<'a>(sample: &'a Sample, key: &str) -> Option<&'a str> {
    sample.labels.iter().find_map(|label| match &label.value {
        LabelValue::Text(text) if label.key == key => Some(text.as_str()),
        _ => None,
    })
}

/// What stands before the frames of a stack.
fn fields(profile: &Profile, sample: &Sample, application: usize) -> String {
    let thread = sample.thread.and_then(|id| profile.thread(id));
    let comm = thread.map_or("", |thread| if thread.process.is_empty() { &thread.name } else { &thread.process });
    // An empty field says that there is none; a name may not look like one.
    let escaped = |text: &str| if text.is_empty() { String::new() } else { folded_name(text).into_owned() };
    let mut fields = format!("{application};{};{}", escaped(text(sample, "container").unwrap_or("")), escaped(comm));
    if let Some(app) = text(sample, "appid") {
        fields.push_str(&format!(";{APP_ID}{}", folded_name(app)));
    }
    fields
}

/// `2023-11-14T22:13:20.123456Z`.
fn iso_time(unix_ns: i64) -> String {
    let micros = unix_ns.div_euclid(1000);
    let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day of a day, counted from 1970. Years begin in March here, so that a leap day is the last of its year, and repeat
/// every 400.
const fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + if month <= 2 { 1 } else { 0 }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_ns, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000Z"),
            (4_107_542_399_000_000_000, "2100-02-28T23:59:59.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(iso_time(unix_ns), expected);
        }
    }
}
