//! JSON for scripts: every sample with all its values, frames and threads by index.
//!
//! ```text
//! {"schema": "profile-recorder.profile", "version": 1,
//!  "sample_types": [{"kind": "samples", "unit": "count"}, ...], "default_sample_type": 1,
//!  "period_type": {...} or null, "period": 10101010, "start_unix_ns": ..., "duration_ns": ...,
//!  "comments": ["..."],
//!  "mappings": [{"path": "/bin/app", "build_id": "ab12...", "start": "0x55...", "end": "0x55...", "file_offset": 0, "bias": "0x55..."}],
//!  "threads": [{"pid": 1, "tid": 2, "name": "main", "process": "app"}],
//!  "frames": [{"name": "parse", "file": "a.rs", "line": 3, "inlined": true, "mapping": 0, "address": "0x1234"}],
//!  "samples": [{"stack": [12, 3, 0], "thread": 0, "labels": {"state": "on-cpu"}, "values": [1, 10101010]}]}
//! ```
//!
//! A stack lists its frames leaf first; inlined functions are frames of their own. `address` is the one in the file of `mapping`,
//! and without a mapping the one in the process. Members of frames that are not known are left out. Numbers are exact integers; a
//! reader that keeps them as doubles rounds those beyond 2^53. Within version 1 members are only ever added.

use super::Options;
use crate::{Frame, FrameId, LabelValue, Profile, Sample, StackId, Symbols, Thread, names};
use rustc_hash::FxHashMap;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// Name of the schema.
pub const SCHEMA: &str = "profile-recorder.profile";
/// Its version.
pub const VERSION: u32 = 1;

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let default = options.column(profile)?;
    let (frames, of_frame) = frames(profile, symbols);
    let document = Document {
        schema: SCHEMA,
        version: VERSION,
        title: options.title.as_deref(),
        sample_types: profile.sample_types.iter().map(SampleType::new).collect(),
        default_sample_type: default,
        period_type: profile.period_type.as_ref().map(SampleType::new),
        period: profile.period,
        start_unix_ns: profile.start_unix_ns,
        duration_ns: profile.duration_ns,
        comments: &profile.comments,
        mappings: profile.mappings.iter().map(Mapping::new).collect(),
        threads: profile.threads.iter().map(ThreadEntry::new).collect(),
        frames,
        samples: Samples { profile, of_frame },
    };
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    serde_json::to_writer(&mut out, &document)?;
    out.write_all(b"\n")?;
    out.flush()
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    sample_types: Vec<SampleType<'a>>,
    default_sample_type: usize,
    period_type: Option<SampleType<'a>>,
    period: i64,
    start_unix_ns: i64,
    duration_ns: i64,
    comments: &'a [String],
    mappings: Vec<Mapping<'a>>,
    threads: Vec<ThreadEntry<'a>>,
    frames: Vec<FrameEntry>,
    samples: Samples<'a>,
}

#[derive(Serialize)]
struct SampleType<'a> {
    kind: &'a str,
    unit: &'a str,
}

impl<'a> SampleType<'a> {
    fn new(of: &'a crate::SampleType) -> Self {
        Self { kind: &of.kind, unit: &of.unit }
    }
}

#[derive(Serialize)]
struct Mapping<'a> {
    path: &'a str,
    build_id: String,
    start: String,
    end: String,
    file_offset: u64,
    bias: String,
}

impl<'a> Mapping<'a> {
    fn new(of: &'a crate::Mapping) -> Self {
        Self {
            path: &of.path,
            build_id: of.build_id_hex(),
            start: format!("{:#x}", of.start),
            end: format!("{:#x}", of.end),
            file_offset: of.file_offset,
            bias: format!("{:#x}", of.bias),
        }
    }
}

#[derive(Serialize)]
struct ThreadEntry<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    process: &'a str,
}

impl<'a> ThreadEntry<'a> {
    fn new(of: &'a Thread) -> Self {
        Self { pid: of.pid, tid: of.tid, name: &of.name, process: &of.process }
    }
}

#[derive(Serialize)]
struct FrameEntry {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    inlined: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mapping: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

/// Entries of all frames, and for each frame the first and the end of its own.
fn frames(profile: &Profile, symbols: &Symbols) -> (Vec<FrameEntry>, Vec<(u32, u32)>) {
    let (mut entries, mut ranges) = (Vec::new(), Vec::new());
    for frame in profile.stacks.frames() {
        let first = entries.len() as u32;
        let (mapping, address) = match frame {
            Frame::Address { mapping, svma, .. } => (mapping.map(|id| id.0), Some(format!("{svma:#x}"))),
            Frame::Named(_) => (None, None),
        };
        let found = symbols.get(frame);
        for (i, name) in names::of(frame, profile, symbols).into_iter().enumerate() {
            let symbol = found.get(i);
            entries.push(FrameEntry {
                name: name.into_owned(),
                file: symbol.and_then(|s| s.file.as_deref().map(str::to_owned)),
                line: symbol.map(|s| s.line).filter(|line| *line != 0),
                inlined: symbol.is_some_and(|s| s.inlined),
                mapping,
                address: address.clone(),
            });
        }
        ranges.push((first, entries.len() as u32));
    }
    (entries, ranges)
}

struct Samples<'a> {
    profile: &'a Profile,
    of_frame: Vec<(u32, u32)>,
}

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut stacks: FxHashMap<StackId, Vec<u32>> = FxHashMap::default();
        let mut samples = serializer.serialize_seq(Some(self.profile.samples.len()))?;
        for sample in &self.profile.samples {
            let stack = stacks.entry(sample.stack).or_insert_with(|| {
                let range = |id: FrameId| self.of_frame[id.index()];
                let ids = self.profile.stacks.frame_ids_leaf_first(sample.stack);
                ids.flat_map(|id| range(id).0..range(id).1).collect()
            });
            samples.serialize_element(&SampleEntry {
                stack,
                thread: sample.thread.map(|id| id.0),
                labels: Labels(sample),
                values: &sample.values,
            })?;
        }
        samples.end()
    }
}

#[derive(Serialize)]
struct SampleEntry<'a> {
    stack: &'a [u32],
    thread: Option<u32>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: Labels<'a>,
    values: &'a [i64],
}

struct Labels<'a>(&'a Sample);

impl Labels<'_> {
    fn is_empty(&self) -> bool {
        self.0.labels.is_empty()
    }
}

impl Serialize for Labels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.labels.len()))?;
        for label in &self.0.labels {
            match &label.value {
                LabelValue::Text(text) => map.serialize_entry(&label.key, text)?,
                LabelValue::Number { value, .. } => map.serialize_entry(&label.key, value)?,
            }
        }
        map.end()
    }
}
