//! pprof: gzipped `profile.proto`, by the conventions of Go's runtime.
//!
//! Columns, period, times, mappings and comments are the profile's. A location's address is the one in the process, inside the call
//! for return addresses, so that it lies in its mapping's `memory_start..memory_limit` and `go tool pprof` can symbolise it with the
//! file. Labels: `thread` (text) and `tid` (number), `process` (text) and `pid` (number) when there are several processes, those of
//! the sample, and on allocations the number `bytes`, their mean size. Frames that never had an address are locations without one.
//! A mapping says that it has functions, files, lines or inlined frames when symbols of it are there.
//!
//! Samples are ordered by stack. A message is written as soon as it is known, so that a large profile's stacks are never held twice.

use crate::named::NO_STACK;
use crate::proto::{Function, Label, Line, Location, Mapping, ValueType};
use crate::{
    Frame, FrameId, LabelValue, MappingId, Options, Profile, Sample, SampleType, StackId, Svma, SymbolFrame, Symbols,
    Thread,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use prost::encoding::int64::encode_packed;
use prost::encoding::{WireType, encode_key, encode_varint, message};
use rustc_hash::FxHashMap;
use std::io::{self, Write};
use std::sync::Arc;

// Field numbers of a profile, and of a sample in it.
const SAMPLE: u32 = 2;
const VALUE: u32 = 2;
const LABEL: u32 = 3;
const STRING: u32 = 6;
/// Bytes collected before they are compressed.
const PIECE: usize = 1 << 16;

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, _: &Options, out: &mut dyn Write) -> io::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::fast());
    Encoder::new(profile, symbols).write(&mut gzip)?;
    gzip.finish()?.flush()
}

/// What makes two frames the same location.
#[derive(PartialEq, Eq, Hash)]
enum LocationKey {
    Address(Option<MappingId>, Svma),
    Name(String),
}

struct Encoder<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    strings: Strings,
    locations: Vec<Location>,
    functions: Vec<Function>,
    location_ids: FxHashMap<LocationKey, u64>,
    function_ids: FxHashMap<(i64, i64, i64), u64>,
    /// Location of each frame; 0: none yet.
    of_frame: Vec<u64>,
    /// The encoded labels of each thread.
    of_thread: Vec<Vec<u8>>,
    mean_size: Option<MeanSize>,
}

#[derive(Default)]
struct Strings {
    all: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, i64>,
}

impl Strings {
    fn id(&mut self, text: &str) -> i64 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let (text, id): (Arc<str>, _) = (text.into(), self.all.len() as i64);
        self.all.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }
}

/// The columns that tell the mean size of a sample's allocations, the first pair with objects deciding.
struct MeanSize {
    pairs: Vec<(usize, usize)>,
    key: i64,
    unit: i64,
}

impl MeanSize {
    fn of(&self, sample: &Sample) -> Option<i64> {
        let value = |column: usize| sample.values.get(column).copied().unwrap_or(0);
        self.pairs.iter().map(|(objects, bytes)| (value(*objects), value(*bytes))).find(|(n, _)| *n != 0).map(
            |(n, b)| {
                // A window can have fewer bytes than before with more objects: then there is no meaningful mean.
                b.checked_div(n).unwrap_or(0).max(0)
            },
        )
    }
}

impl<'a> Encoder<'a> {
    fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        let mut strings = Strings::default();
        strings.id("");
        let several = profile.has_several_processes();
        let of_thread =
            profile.threads.iter().map(|thread| encoded_labels(&thread_labels(thread, several, &mut strings)));
        let of_thread = of_thread.collect();
        let pairs: Vec<_> = [("alloc_objects", "alloc_space"), ("inuse_objects", "inuse_space")]
            .into_iter()
            .filter_map(|(objects, bytes)| Some((profile.column(objects)?, profile.column(bytes)?)))
            .collect();
        let mean_size =
            (!pairs.is_empty()).then(|| MeanSize { pairs, key: strings.id("bytes"), unit: strings.id("bytes") });
        Self {
            profile,
            symbols,
            strings,
            locations: Vec::new(),
            functions: Vec::new(),
            location_ids: FxHashMap::default(),
            function_ids: FxHashMap::default(),
            of_frame: vec![0; profile.stacks.frames().len()],
            of_thread,
            mean_size,
        }
    }

    fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        let profile = self.profile;
        let types = profile.sample_types.iter().map(|t| value_type(t, &mut self.strings)).collect();
        let mut head = crate::proto::Profile { sample_type: types, ..Default::default() };
        let mut buffer = head.encode_to_vec();
        // Samples of one stack next to each other: what they have in common compresses to almost nothing.
        let (first, order) = by_stack(profile);
        // What each sample has of its own is encoded front to back: in the order of stacks, samples lie all over the memory.
        let (mut bodies, mut ends) = (Vec::new(), Vec::with_capacity(profile.samples.len() + 1));
        ends.push(0);
        for sample in &profile.samples {
            self.values_and_labels(sample, &mut bodies);
            ends.push(bodies.len());
        }
        let mut locations = Vec::new();
        for stack in 0..profile.stacks.len() {
            let of_stack = &order[first[stack]..first[stack + 1]];
            if of_stack.is_empty() {
                continue;
            }
            let location_id = self.location_ids(StackId(stack as u32));
            locations.clear();
            crate::proto::Sample { location_id, ..Default::default() }.encode_raw(&mut locations);
            for index in of_stack {
                let body = &bodies[ends[*index as usize]..ends[*index as usize + 1]];
                encode_key(SAMPLE, WireType::LengthDelimited, &mut buffer);
                encode_varint((locations.len() + body.len()) as u64, &mut buffer);
                buffer.extend_from_slice(&locations);
                buffer.extend_from_slice(body);
                if buffer.len() >= PIECE {
                    out.write_all(&buffer)?;
                    buffer.clear();
                }
            }
        }
        head.sample_type.clear();
        head.mapping = self.mappings();
        head.location = std::mem::take(&mut self.locations);
        head.function = std::mem::take(&mut self.functions);
        head.time_nanos = profile.start_unix_ns;
        head.duration_nanos = profile.duration_ns;
        head.period_type = profile.period_type.as_ref().map(|t| value_type(t, &mut self.strings));
        head.period = profile.period;
        head.comment = profile.comments.iter().map(|comment| self.strings.id(comment)).collect();
        let default = profile.default_sample_type.and_then(|index| profile.sample_types.get(index));
        head.default_sample_type = default.map_or(0, |t| self.strings.id(&t.kind));
        out.write_all(&buffer)?;
        out.write_all(&head.encode_to_vec())?;
        buffer.clear();
        for string in &self.strings.all {
            encode_key(STRING, WireType::LengthDelimited, &mut buffer);
            encode_varint(string.len() as u64, &mut buffer);
            buffer.extend_from_slice(string.as_bytes());
        }
        out.write_all(&buffer)
    }

    fn values_and_labels(&mut self, sample: &Sample, body: &mut Vec<u8>) {
        encode_packed(VALUE, &sample.values, body);
        if let Some(id) = sample.thread {
            body.extend_from_slice(&self.of_thread[id.index()]);
        }
        for own in &sample.labels {
            let key = self.strings.id(&own.key);
            let label = match &own.value {
                LabelValue::Text(text) => Label { key, str: self.strings.id(text), ..Default::default() },
                LabelValue::Number { value, unit } => {
                    let num_unit = unit.as_ref().map_or(0, |unit| self.strings.id(unit));
                    Label { key, num: *value, num_unit, ..Default::default() }
                }
            };
            message::encode(LABEL, &label, body);
        }
        if let Some(mean) = &self.mean_size
            && let Some(num) = mean.of(sample)
        {
            message::encode(LABEL, &Label { key: mean.key, num, num_unit: mean.unit, ..Default::default() }, body);
        }
    }

    fn location_ids(&mut self, stack: StackId) -> Vec<u64> {
        let profile = self.profile;
        let mut ids: Vec<u64> = profile.stacks.frame_ids_leaf_first(stack).map(|id| self.location(id)).collect();
        if ids.is_empty() {
            ids.push(self.named_location(NO_STACK));
        }
        ids
    }

    fn location(&mut self, id: FrameId) -> u64 {
        if self.of_frame[id.index()] != 0 {
            return self.of_frame[id.index()];
        }
        let (profile, symbols) = (self.profile, self.symbols);
        let frame = &profile.stacks.frames()[id.index()];
        let location = match frame {
            Frame::Named(name) => self.named_location(name),
            Frame::Address { mapping, svma, kind } => {
                let lookup = kind.for_lookup(*svma);
                let line = symbols.get(frame).iter().map(|symbol| self.line(symbol)).collect();
                let file = mapping.and_then(|id| profile.mapping(id));
                let address = file.map_or(lookup.0, |m| m.to_avma(lookup));
                let mapping_id = mapping.filter(|_| file.is_some()).map_or(0, |id| u64::from(id.0) + 1);
                let location = Location { mapping_id, address, line, ..Default::default() };
                self.add_location(LocationKey::Address(*mapping, lookup), location)
            }
        };
        self.of_frame[id.index()] = location;
        location
    }

    fn named_location(&mut self, name: &str) -> u64 {
        let line = vec![self.line(&SymbolFrame::named(name))];
        self.add_location(LocationKey::Name(name.to_owned()), Location { line, ..Default::default() })
    }

    fn add_location(&mut self, key: LocationKey, location: Location) -> u64 {
        let next = self.locations.len() as u64 + 1;
        let id = *self.location_ids.entry(key).or_insert(next);
        if id == next {
            self.locations.push(Location { id, ..location });
        } else if self.locations[id as usize - 1].line.is_empty() {
            // The same address as an instruction and as the end of a call: one of the two may have been named alone.
            self.locations[id as usize - 1].line = location.line;
        }
        id
    }

    fn line(&mut self, symbol: &SymbolFrame) -> Line {
        let name = self.strings.id(&symbol.name);
        let system_name = symbol.system_name.as_ref().map_or(name, |system| self.strings.id(system));
        let filename = symbol.file.as_ref().map_or(0, |file| self.strings.id(file));
        let next = self.functions.len() as u64 + 1;
        let function_id = *self.function_ids.entry((name, system_name, filename)).or_insert(next);
        if function_id == next {
            self.functions.push(Function { id: next, name, system_name, filename, start_line: 0 });
        }
        Line { function_id, line: i64::from(symbol.line) }
    }

    fn mappings(&mut self) -> Vec<Mapping> {
        let mut mappings: Vec<Mapping> = self
            .profile
            .mappings
            .iter()
            .zip(1..)
            .map(|(mapping, id)| Mapping {
                id,
                memory_start: mapping.start,
                memory_limit: mapping.end,
                file_offset: mapping.file_offset,
                filename: self.strings.id(&mapping.path),
                build_id: self.strings.id(&mapping.build_id_hex()),
                ..Default::default()
            })
            .collect();
        for frame in self.profile.stacks.frames() {
            let Frame::Address { mapping: Some(id), .. } = frame else { continue };
            let Some(mapping) = mappings.get_mut(id.index()) else { continue };
            for symbol in self.symbols.get(frame) {
                mapping.has_functions = true;
                mapping.has_filenames |= symbol.file.is_some();
                mapping.has_line_numbers |= symbol.line != 0;
                mapping.has_inline_frames |= symbol.inlined;
            }
        }
        mappings
    }
}

/// Positions of the samples of each stack, in their order, and where those of a stack begin.
fn by_stack(profile: &Profile) -> (Vec<usize>, Vec<u32>) {
    let mut first = vec![0_usize; profile.stacks.len() + 1];
    profile.samples.iter().for_each(|sample| first[sample.stack.index() + 1] += 1);
    (1..first.len()).for_each(|i| first[i] += first[i - 1]);
    let mut next = first.clone();
    let mut order = vec![0; profile.samples.len()];
    for (sample, position) in profile.samples.iter().zip(0..) {
        order[next[sample.stack.index()]] = position;
        next[sample.stack.index()] += 1;
    }
    (first, order)
}

fn value_type(sample_type: &SampleType, strings: &mut Strings) -> ValueType {
    ValueType { r#type: strings.id(&sample_type.kind), unit: strings.id(&sample_type.unit) }
}

fn encoded_labels(labels: &[Label]) -> Vec<u8> {
    let mut encoded = Vec::new();
    labels.iter().for_each(|label| message::encode(LABEL, label, &mut encoded));
    encoded
}

fn thread_labels(thread: &Thread, several: bool, strings: &mut Strings) -> Vec<Label> {
    let mut labels = Vec::new();
    let mut text = |key, value: &str, strings: &mut Strings| {
        if !value.is_empty() {
            labels.push(Label { key: strings.id(key), str: strings.id(value), ..Default::default() });
        }
    };
    text("thread", &thread.name, strings);
    if several {
        text("process", &thread.process, strings);
    }
    let mut number = |key, value: u32| {
        if value != 0 {
            labels.push(Label { key: strings.id(key), num: i64::from(value), ..Default::default() });
        }
    };
    number("tid", thread.tid);
    if several {
        number("pid", thread.pid);
    }
    labels
}
