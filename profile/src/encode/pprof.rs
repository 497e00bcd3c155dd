//! pprof: gzipped `profile.proto`, by the conventions of Go's runtime.
//!
//! Columns, period, times, mappings and comments are the profile's. A location's address is the one in the process, inside the call
//! for return addresses, so that it lies in its mapping's `memory_start..memory_limit` and `go tool pprof` can symbolise it with the
//! file. Labels: `thread` (text) and `tid` (number), `process` (text) and `pid` (number) when there are several processes, those of
//! the sample, and on allocations the number `bytes`, their mean size. Frames that never had an address are locations without one.
//! A mapping says that it has functions, files, lines or inlined frames when symbols of it are there.
//!
//! Samples are ordered by stack. A message is written as soon as it is known, so that a large profile's stacks are never held twice, and what it has in
//! common with those before it (stack, labels) is compressed as such, see `encode::gzip`.

use super::gzip::Gzip;
use crate::dense::Dense;
use crate::named::NO_STACK;
use crate::proto::{Function, Label, Line, Location, Mapping, ValueType};
use crate::{
    Frame, FrameId, LabelValue, MappingId, Options, Profile, Sample, SampleType, StackId, Svma, SymbolFrame, Symbols,
    Thread, ThreadId,
};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, message};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::io::{self, Write};
use std::sync::Arc;

// Field numbers of a profile, and of a sample in it.
const SAMPLE: u32 = 2;
const LOCATION: u32 = 1;
const VALUE: u32 = 2;
const LABEL: u32 = 3;
const STRING: u32 = 6;

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, _: &Options, out: &mut dyn Write) -> io::Result<()> {
    Encoder::new(profile, symbols).write(Gzip::new(out))
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
    /// The labels of each thread, then those of samples with labels of their own.
    labels: Vec<LabelSet>,
    mean_size: Option<MeanSize>,
}

/// Labels that several samples have.
#[derive(Default)]
struct LabelSet {
    encoded: Vec<u8>,
    /// Where they were written last.
    at: Option<u64>,
}

/// What each sample has of its own, encoded, those of one stack next to each other.
struct Bodies {
    /// Of each: index of its labels and length, four bytes each, then mean size and values.
    encoded: Vec<u8>,
    /// The stacks that have any.
    stacks: Dense,
    /// Where those of each begin.
    first: Vec<usize>,
}

/// Bytes before a body.
const BODY_HEAD: usize = 8;

impl Bodies {
    /// Labels and body of each sample of the stack with this number.
    fn of(&self, stack: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = &self.encoded[self.first[stack]..self.first[stack + 1]];
        std::iter::from_fn(move || {
            let (labels, after) = rest.split_first_chunk::<4>()?;
            let (length, after) = after.split_first_chunk::<4>()?;
            let (body, after) = after.split_at(u32::from_le_bytes(*length) as usize);
            rest = after;
            Some((u32::from_le_bytes(*labels) as usize, body))
        })
    }
}

#[derive(Default)]
struct Strings {
    all: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, i64>,
}

impl Strings {
    fn id(&mut self, text: &str) -> i64 {
        self.ids.get(text).copied().unwrap_or_else(|| self.insert(text.into()))
    }

    /// The same of a text that need not be copied.
    fn shared_id(&mut self, text: &Arc<str>) -> i64 {
        self.ids.get(text).copied().unwrap_or_else(|| self.insert(Arc::clone(text)))
    }

    fn insert(&mut self, text: Arc<str>) -> i64 {
        let id = self.all.len() as i64;
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
        let frames = profile.stacks.frames().len();
        strings.ids.reserve(frames);
        let several = profile.has_several_processes();
        // The first set is that of no thread.
        let none = std::iter::once(LabelSet::default());
        let of_threads = profile.threads.iter().map(|thread| {
            let labels = thread_labels(thread, several, &mut strings);
            LabelSet { encoded: encoded_labels(&labels), at: None }
        });
        let labels = none.chain(of_threads).collect();
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
            location_ids: with_room(frames),
            function_ids: with_room(frames),
            of_frame: vec![0; frames],
            labels,
            mean_size,
        }
    }

    fn write(mut self, mut out: Gzip<&mut dyn Write>) -> io::Result<()> {
        let profile = self.profile;
        let types = profile.sample_types.iter().map(|t| value_type(t, &mut self.strings)).collect();
        let mut head = crate::proto::Profile { sample_type: types, ..Default::default() };
        out.write(&head.encode_to_vec())?;
        self.samples(&mut out)?;
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
        let mut rest = head.encode_to_vec();
        for string in &self.strings.all {
            encode_key(STRING, WireType::LengthDelimited, &mut rest);
            encode_varint(string.len() as u64, &mut rest);
            rest.extend_from_slice(string.as_bytes());
        }
        out.finish(&rest)
    }

    /// Samples of one stack next to each other.
    fn samples(&mut self, out: &mut Gzip<&mut dyn Write>) -> io::Result<()> {
        let bodies = self.bodies();
        let (mut head, mut locations) = (Vec::new(), Vec::new());
        // The message before: its beginning, the end of its locations, its head and its body.
        let (mut at, mut locations_end, mut last_head, mut last_body) = (0, 0, Vec::new(), &[][..]);
        for (stack, id) in bodies.stacks.ids().enumerate() {
            let before = std::mem::take(&mut locations);
            self.locations(StackId(id), &mut locations);
            // Leaf first: stacks have their ends in common, those of one stack everything.
            let mut shared = in_common(locations.iter().rev(), before.iter().rev());
            for (labels, body) in bodies.of(stack) {
                let labels = &mut self.labels[labels];
                head.clear();
                encode_key(SAMPLE, WireType::LengthDelimited, &mut head);
                encode_varint((locations.len() + body.len() + labels.encoded.len()) as u64, &mut head);
                let next_at = out.position();
                let is_alike = shared == locations.len() && head == last_head;
                if is_alike { out.again(&head, at) } else { out.write(&head) }?;
                let (own, others) = locations.split_at(locations.len() - shared);
                out.write(own)?;
                out.again(others, locations_end - shared as u64)?;
                let repeated = if is_alike { in_common(body.iter(), last_body.iter()) } else { 0 };
                let (repeated, own) = body.split_at(repeated);
                let body_at = out.position();
                out.again(repeated, locations_end)?;
                out.write(own)?;
                (at, locations_end) = (next_at, body_at);
                let labels_at = out.position();
                match labels.at {
                    Some(at) => out.again(&labels.encoded, at),
                    None => out.write(&labels.encoded),
                }?;
                labels.at = Some(labels_at);
                last_body = body;
                std::mem::swap(&mut head, &mut last_head);
                shared = locations.len();
            }
        }
        Ok(())
    }

    fn bodies(&mut self) -> Bodies {
        let profile = self.profile;
        // In the order of the samples, which is that of the memory, and then to their places: a write to a place far away need not be waited for.
        let mut encoded = Vec::with_capacity(profile.samples.len() * 24);
        let stacks = Dense::new(profile.stacks.len(), profile.samples.iter().map(|sample| sample.stack.0));
        let mut first = vec![0_usize; stacks.len() + 1];
        let mut ids: FxHashMap<(Option<ThreadId>, &[crate::Label]), u32> = FxHashMap::default();
        for sample in &profile.samples {
            let of_thread = sample.thread.map_or(0, |id| id.0 + 1);
            let labels = match &*sample.labels {
                [] => of_thread,
                own => *ids.entry((sample.thread, own)).or_insert_with(|| {
                    let mut encoded = self.labels[of_thread as usize].encoded.clone();
                    own.iter().for_each(|label| message::encode(LABEL, &self.label(label), &mut encoded));
                    self.labels.push(LabelSet { encoded, at: None });
                    self.labels.len() as u32 - 1
                }),
            };
            let from = encoded.len();
            encoded.extend_from_slice(&labels.to_le_bytes());
            encoded.extend_from_slice(&[0; 4]);
            self.mean_size(sample, &mut encoded);
            packed(VALUE, sample.values.iter().map(|value| *value as u64), &mut encoded);
            let length = (encoded.len() - from - BODY_HEAD) as u32;
            encoded[from + 4..from + BODY_HEAD].copy_from_slice(&length.to_le_bytes());
            first[stacks.number(sample.stack.0) + 1] += encoded.len() - from;
        }
        (1..first.len()).for_each(|i| first[i] += first[i - 1]);
        let mut next = first.clone();
        let mut by_stack = vec![0; encoded.len()];
        let mut rest = &*encoded;
        for sample in &profile.samples {
            let Some(length) = rest.get(4..).and_then(<[u8]>::first_chunk) else { break };
            let (body, after) = rest.split_at(BODY_HEAD + u32::from_le_bytes(*length) as usize);
            let place = &mut next[stacks.number(sample.stack.0)];
            by_stack[*place..*place + body.len()].copy_from_slice(body);
            *place += body.len();
            rest = after;
        }
        Bodies { encoded: by_stack, stacks, first }
    }

    fn label(&mut self, of: &crate::Label) -> Label {
        let key = self.strings.id(&of.key);
        match &of.value {
            LabelValue::Text(text) => Label { key, str: self.strings.id(text), ..Default::default() },
            LabelValue::Number { value, unit } => {
                let num_unit = unit.as_ref().map_or(0, |unit| self.strings.id(unit));
                Label { key, num: *value, num_unit, ..Default::default() }
            }
        }
    }

    fn mean_size(&self, sample: &Sample, body: &mut Vec<u8>) {
        if let Some(mean) = &self.mean_size
            && let Some(num) = mean.of(sample)
        {
            message::encode(LABEL, &Label { key: mean.key, num, num_unit: mean.unit, ..Default::default() }, body);
        }
    }

    /// The encoded locations of a stack.
    fn locations(&mut self, stack: StackId, encoded: &mut Vec<u8>) {
        let profile = self.profile;
        let mut ids: Vec<u64> = profile.stacks.frame_ids_leaf_first(stack).map(|id| self.location(id)).collect();
        if ids.is_empty() {
            ids.push(self.named_location(NO_STACK));
        }
        packed(LOCATION, ids.iter().copied(), encoded);
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
        let name = self.strings.shared_id(&symbol.name);
        let system_name = symbol.system_name.as_ref().map_or(name, |system| self.strings.shared_id(system));
        let filename = symbol.file.as_ref().map_or(0, |file| self.strings.shared_id(file));
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

fn with_room<K, V>(count: usize) -> FxHashMap<K, V> {
    FxHashMap::with_capacity_and_hasher(count, FxBuildHasher)
}

/// A field of varints.
fn packed(field: u32, values: impl ExactSizeIterator<Item = u64> + Clone, out: &mut Vec<u8>) {
    let length = values.clone().map(encoded_len_varint).sum::<usize>();
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
    values.for_each(|value| encode_varint(value, out));
}

/// How many bytes two sequences begin with in common.
fn in_common<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
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
