//! speedscope's own JSON, for <https://www.speedscope.app> and `npx speedscope FILE`.
//!
//! A profile for each sample type, and one for each thread in the column that is shown first. Times are in nanoseconds and sizes in
//! bytes; numbers are exact here, a reader that keeps them as doubles rounds those beyond 2^53.
//!
//! A frame is a function: its file is told, its line is not, since speedscope would take each line for another function. Negative
//! values, which a difference can have, cannot be expressed: they are left out, and the name of the profile says how much that was.

use super::svg::{caption, title};
use crate::named::{Before, Tree};
use crate::{Options, Profile, Sample, SampleType, Symbols, ThreadId};
use rustc_hash::FxHashMap;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// What the file says that it is.
pub const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";
/// Threads with a profile of their own at most: speedscope shows them as a list.
const MAX_THREADS: usize = 1000;

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let first = options.column(profile)?;
    let before =
        Before::Frames { process: profile.has_several_processes(), thread: false, labels: options.label_frames };
    let tree = Tree::new(profile, symbols, before, |name| Cow::Borrowed(name));
    let files = files(profile, symbols);
    let frames = tree.names().iter().map(|name| Frame { name, file: files.get(&**name).copied() }).collect();
    let mut profiles: Vec<Sampled<'_>> =
        (0..profile.sample_types.len()).map(|column| Sampled::new(profile, &tree, column, None)).collect();
    if profile.threads.len() > 1 {
        let mut threads: Vec<ThreadId> = profile.samples.iter().filter_map(|sample| sample.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        let of_threads = threads.into_iter().map(|thread| Sampled::new(profile, &tree, first, Some(thread)));
        profiles.extend(of_threads.filter(|sampled| !sampled.weights.is_empty()).take(MAX_THREADS));
    }
    let document = Document {
        schema: SCHEMA,
        exporter: concat!("profile-recorder ", env!("CARGO_PKG_VERSION")),
        name: title(profile, options),
        active: if profiles.is_empty() { 0 } else { first },
        shared: Shared { frames },
        profiles,
    };
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    serde_json::to_writer(&mut out, &document)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// The file of each function that has one.
fn files<'a>(profile: &'a Profile, symbols: &'a Symbols) -> FxHashMap<&'a str, &'a str> {
    let found = profile.stacks.frames().iter().flat_map(|frame| symbols.get(frame));
    found.filter_map(|symbol| Some((&*symbol.name, symbol.file.as_deref()?))).collect()
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "$schema")]
    schema: &'a str,
    exporter: &'a str,
    name: String,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: Shared<'a>,
    profiles: Vec<Sampled<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
}

#[derive(Serialize)]
struct Sampled<'a> {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start: i64,
    #[serde(rename = "endValue")]
    end: i128,
    samples: Paths<'a>,
    weights: Vec<i128>,
}

impl<'a> Sampled<'a> {
    /// What ends at each node of the tree, of one thread or of all.
    fn new(profile: &Profile, tree: &'a Tree<'a>, column: usize, of: Option<ThreadId>) -> Self {
        let sample_type = &profile.sample_types[column];
        let mut values: BTreeMap<u32, i128> = BTreeMap::new();
        let mut left_out = 0_i128;
        let belongs = |sample: &Sample| of.is_none() || sample.thread == of;
        for (sample, node) in profile.samples.iter().zip(tree.of_samples()).filter(|(sample, _)| belongs(sample)) {
            *values.entry(node).or_default() += i128::from(sample.values.get(column).copied().unwrap_or(0));
        }
        values.retain(|_, value| {
            left_out += (*value).min(0);
            *value > 0
        });
        let mut name = match of.and_then(|id| profile.thread(id)) {
            Some(thread) if thread.tid != 0 => format!("{} ({})", thread.name, thread.tid),
            Some(thread) => thread.name.clone(),
            None => caption(sample_type),
        };
        if left_out != 0 {
            name.push_str(&format!(" (without {left_out} {})", sample_type.unit));
        }
        Self {
            r#type: "sampled",
            name,
            unit: unit(sample_type),
            start: 0,
            end: values.values().sum(),
            samples: Paths { tree, nodes: values.keys().copied().collect() },
            weights: values.into_values().collect(),
        }
    }
}

/// The units that speedscope knows.
fn unit(sample_type: &SampleType) -> &'static str {
    match &*sample_type.unit {
        "nanoseconds" => "nanoseconds",
        "microseconds" => "microseconds",
        "milliseconds" => "milliseconds",
        "seconds" => "seconds",
        "bytes" => "bytes",
        _ => "none",
    }
}

/// Paths from the root to nodes.
struct Paths<'a> {
    tree: &'a Tree<'a>,
    nodes: Vec<u32>,
}

impl Serialize for Paths<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut paths = serializer.serialize_seq(Some(self.nodes.len()))?;
        let mut path = Vec::new();
        for node in &self.nodes {
            path.clear();
            let mut at = *node;
            while at != 0 {
                path.push(self.tree.name_id(at));
                at = self.tree.parent(at);
            }
            path.reverse();
            paths.serialize_element(&path)?;
        }
        paths.end()
    }
}
