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

mod once;

use super::gzip::Gzip;
use crate::dense::Dense;
use crate::named::NO_STACK;
use crate::proto::{Label, Line, Location, Mapping, ValueType};
use crate::{
    AddressKind, Frame, FrameId, LabelValue, Options, Profile, SampleType, StackId, SymbolFrame, Symbols, Thread,
    ThreadId,
};
use once::{Functions, Strings};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, message};
use rustc_hash::FxHashMap;
use std::hint::black_box;
use std::io::{self, Write};

// Field numbers of a profile.
const SAMPLE: u32 = 2;
const LOCATIONS: u32 = 4;
const FUNCTION: u32 = 5;
const STRING: u32 = 6;
// And of a sample in it.
const LOCATION: u32 = 1;
const VALUE: u32 = 2;
const LABEL: u32 = 3;
// And of a label.
const LABEL_NUMBER: u32 = 3;

/// Names that are looked at before the first of them is looked up: they lie all over the memory, which answers many questions in the time of one.
const AT_ONCE: usize = 16;

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, _: &Options, out: &mut dyn Write) -> io::Result<()> {
    Encoder::new(profile, symbols).write(Gzip::new(out))
}

/// A number as it stands in a file, so that it need not be encoded each time: its bytes, the first the lowest, and in the highest how many they are. 0: none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Varint(u64);

impl Varint {
    /// Of a number below 2^49.
    fn of(number: u64) -> Self {
        let mut bytes = Vec::with_capacity(8);
        encode_varint(number, &mut bytes);
        let packed = bytes.iter().rev().fold(0, |packed, byte| packed << 8 | u64::from(*byte));
        Self(packed | (bytes.len() as u64) << 56)
    }

    /// Appends its bytes.
    fn write(self, to: &mut Vec<u8>) {
        let end = to.len() + (self.0 >> 56) as usize;
        to.extend_from_slice(&self.0.to_le_bytes());
        to.truncate(end);
    }
}

struct Encoder<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    strings: Strings<'a>,
    /// The frame of each location.
    locations: Vec<FrameId>,
    /// Location of each frame that was asked for, and of that of samples without a stack.
    of_frame: Vec<Varint>,
    /// Frames with the same address, as an instruction and as what a call returns to: they are one location.
    twins: FxHashMap<FrameId, FrameId>,
    no_stack: FrameId,
    /// The locations of the stack at hand.
    of_stack: Vec<u8>,
    /// The labels of each thread, then those of samples with labels of their own.
    labels: LabelSets,
    mean_size: Option<MeanSize>,
}

/// Labels that several samples have.
struct LabelSets {
    all: Vec<LabelSet>,
    /// What stands before them in most samples.
    before: Vec<u8>,
}

struct LabelSet {
    /// What stands before them, and they.
    encoded: Vec<u8>,
    /// Where they were written last, and whether behind that.
    at: Option<(u64, bool)>,
}

impl LabelSets {
    /// The number of a new set of labels, as they are encoded.
    fn push(&mut self, labels: &[u8]) -> usize {
        self.all.push(LabelSet { encoded: [&self.before, labels].concat(), at: None });
        self.all.len() - 1
    }

    /// A set as it is encoded, with what stands before it or without; and where the same was written last.
    fn get(&self, number: usize, with_before: bool) -> (&[u8], Option<u64>) {
        let LabelSet { encoded, at } = &self.all[number];
        let (before, labels) = encoded.split_at(self.before.len());
        match at {
            Some((at, true)) if with_before => (encoded, Some(at - before.len() as u64)),
            _ if with_before => (encoded, None),
            at => (labels, at.map(|(at, _)| at)),
        }
    }

    /// A set was written at this position.
    fn are_at(&mut self, number: usize, at: u64, with_before: bool) {
        let before = if with_before { self.before.len() as u64 } else { 0 };
        self.all[number].at = Some((at + before, with_before));
    }
}

/// What each sample has of its own, those of one stack next to each other.
struct Bodies {
    /// Index of its labels, then its values. Once in the order of the stacks, and in few bytes: memory that is touched for the first time costs more than all that is done with it.
    all: Vec<i64>,
    columns: usize,
    /// The stacks that have any.
    stacks: Dense,
    /// Where those of each begin, counted in samples.
    first: Vec<u32>,
}

impl Bodies {
    /// Labels and values of each sample of the stack with this number.
    fn of(&self, stack: usize) -> impl Iterator<Item = (usize, &[i64])> {
        let [first, end] = [stack, stack + 1].map(|at| self.first[at] as usize * (self.columns + 1));
        self.all[first..end].chunks_exact(self.columns + 1).map(|body| (body[0] as usize, &body[1..]))
    }
}

/// The columns that tell the mean size of a sample's allocations, the first pair with objects deciding.
struct MeanSize {
    pairs: Vec<(usize, usize)>,
    /// What is the same in the label of each, its key and unit. The order of a message's fields is free: behind the number, they repeat together with the labels that follow.
    name: Vec<u8>,
}

impl MeanSize {
    fn of(&self, values: &[i64]) -> Option<i64> {
        let pairs = self.pairs.iter().map(|(objects, bytes)| (values[*objects], values[*bytes]));
        // A window can have fewer bytes than before with more objects: then there is no meaningful mean.
        pairs.into_iter().find(|(n, _)| *n != 0).map(|(n, b)| b.checked_div(n).unwrap_or(0).max(0))
    }
}

impl<'a> Encoder<'a> {
    fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        let frames = profile.stacks.frames().len();
        let mut strings = Strings::with_room(frames);
        let several = profile.has_several_processes();
        let pairs: Vec<_> = [("alloc_objects", "alloc_space"), ("inuse_objects", "inuse_space")]
            .into_iter()
            .filter_map(|(objects, bytes)| Some((profile.column(objects)?, profile.column(bytes)?)))
            .collect();
        let mean_size = (!pairs.is_empty()).then(|| {
            let bytes = strings.id("bytes");
            MeanSize { pairs, name: Label { key: bytes, num_unit: bytes, ..Default::default() }.encode_to_vec() }
        });
        let mut labels =
            LabelSets { all: Vec::new(), before: mean_size.as_ref().map_or_else(Vec::new, |mean| mean.name.clone()) };
        // The first set is that of no thread.
        labels.push(&[]);
        for thread in &profile.threads {
            labels.push(&encoded_labels(&thread_labels(thread, several, &mut strings)));
        }
        Self {
            profile,
            symbols,
            strings,
            locations: Vec::with_capacity(frames),
            of_frame: vec![Varint::default(); frames + 1],
            twins: twins(profile.stacks.frames()),
            no_stack: no_stack(profile.stacks.frames()),
            of_stack: Vec::new(),
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
        let symbols = profile.stacks.frames().iter().map(|frame| self.symbols.get(frame)).collect::<Vec<_>>();
        head.mapping = self.mappings(&symbols);
        let mut rest = Vec::new();
        self.locations_and_functions(&symbols, &mut rest);
        head.time_nanos = profile.start_unix_ns;
        head.duration_nanos = profile.duration_ns;
        head.period_type = profile.period_type.as_ref().map(|t| value_type(t, &mut self.strings));
        head.period = profile.period;
        head.comment = profile.comments.iter().map(|comment| self.strings.id(comment)).collect();
        let default = profile.default_sample_type.and_then(|index| profile.sample_types.get(index));
        head.default_sample_type = default.map_or(0, |t| self.strings.id(&t.kind));
        head.encode_raw(&mut rest);
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
        // The body of a message, and of the one before; that one's length, its head and locations, where it began, and where these ended.
        let (mut body, mut last_body) = (Vec::new(), Vec::new());
        let (mut last_length, mut message) = (0, Vec::new());
        let (mut at, mut locations_end) = (0, 0);
        let mut locations = Vec::new();
        for (stack, id) in bodies.stacks.ids().enumerate() {
            let before = std::mem::take(&mut locations);
            self.locations(StackId(id), &mut locations);
            // Leaf first: stacks have their ends in common, those of one stack everything.
            let mut shared = in_common(locations.iter().rev(), before.iter().rev());
            for (labels, values) in bodies.of(stack) {
                body.clear();
                packed(VALUE, values, &mut body);
                let has_mean = self.mean_size(values, &mut body);
                let (own_labels, labels_before) = self.labels.get(labels, has_mean);
                let length = locations.len() + body.len() + own_labels.len();
                let next_at = out.position();
                let is_alike = shared == locations.len() && length == last_length;
                if is_alike {
                    out.again(&message, at)?;
                } else {
                    message.clear();
                    encode_key(SAMPLE, WireType::LengthDelimited, &mut message);
                    varint(length as u64, &mut message);
                    message.extend_from_slice(&locations);
                    let (own, others) = message.split_at(message.len() - shared);
                    out.write(own)?;
                    out.again(others, locations_end - shared as u64)?;
                }
                let repeated = if is_alike { in_common(body.iter(), last_body.iter()) } else { 0 };
                let (repeated, own) = body.split_at(repeated);
                let body_at = out.position();
                out.again(repeated, locations_end)?;
                out.write(own)?;
                (at, locations_end) = (next_at, body_at);
                let labels_at = out.position();
                match labels_before {
                    Some(at) => out.again(own_labels, at),
                    None => out.write(own_labels),
                }?;
                self.labels.are_at(labels, labels_at, has_mean);
                std::mem::swap(&mut body, &mut last_body);
                (shared, last_length) = (locations.len(), length);
            }
        }
        Ok(())
    }

    fn bodies(&mut self) -> Bodies {
        let (profile, columns) = (self.profile, self.profile.sample_types.len());
        let stacks = Dense::new(profile.stacks.len(), profile.samples.iter().map(|sample| sample.stack.0));
        let mut first = vec![0; stacks.len() + 1];
        profile.samples.iter().for_each(|sample| first[stacks.number(sample.stack.0) + 1] += 1);
        (1..first.len()).for_each(|i| first[i] += first[i - 1]);
        let mut next = first.clone();
        let mut ids: FxHashMap<(Option<ThreadId>, &[crate::Label]), usize> = FxHashMap::default();
        // In the order of the samples, which is that of the memory: a write to a place far away need not be waited for.
        let mut all = vec![0; profile.samples.len() * (columns + 1)];
        for sample in &profile.samples {
            let of_thread = sample.thread.map_or(0, |id| id.index() + 1);
            let labels = match &*sample.labels {
                [] => of_thread,
                own => *ids.entry((sample.thread, own)).or_insert_with(|| {
                    let mut encoded = self.labels.get(of_thread, false).0.to_vec();
                    own.iter().for_each(|label| message::encode(LABEL, &self.label(label), &mut encoded));
                    self.labels.push(&encoded)
                }),
            };
            let next = &mut next[stacks.number(sample.stack.0)];
            let at = *next as usize * (columns + 1);
            *next += 1;
            let body = &mut all[at..at + columns + 1];
            body[0] = labels as i64;
            body[1..].iter_mut().zip(&sample.values).for_each(|(place, value)| *place = *value);
        }
        Bodies { all, columns, stacks, first }
    }

    fn label(&mut self, of: &'a crate::Label) -> Label {
        let key = self.strings.id(&of.key);
        match &of.value {
            LabelValue::Text(text) => Label { key, str: self.strings.id(text), ..Default::default() },
            LabelValue::Number { value, unit } => {
                let num_unit = unit.as_ref().map_or(0, |unit| self.strings.id(unit));
                Label { key, num: *value, num_unit, ..Default::default() }
            }
        }
    }

    /// Appends the label of the mean size without what is the same in each, if there is one.
    fn mean_size(&self, values: &[i64], body: &mut Vec<u8>) -> bool {
        let Some((mean, number)) = self.mean_size.as_ref().and_then(|mean| Some((mean, mean.of(values)? as u64)))
        else {
            return false;
        };
        encode_key(LABEL, WireType::LengthDelimited, body);
        varint((1 + encoded_len_varint(number) + mean.name.len()) as u64, body);
        encode_key(LABEL_NUMBER, WireType::Varint, body);
        varint(number, body);
        true
    }

    /// The encoded locations of a stack.
    fn locations(&mut self, stack: StackId, encoded: &mut Vec<u8>) {
        let profile = self.profile;
        let mut packed = std::mem::take(&mut self.of_stack);
        packed.clear();
        for id in profile.stacks.frame_ids_leaf_first(stack) {
            self.location(id).write(&mut packed);
        }
        if packed.is_empty() {
            self.location(self.no_stack).write(&mut packed);
        }
        encode_key(LOCATION, WireType::LengthDelimited, encoded);
        encode_varint(packed.len() as u64, encoded);
        encoded.extend_from_slice(&packed);
        self.of_stack = packed;
    }

    #[inline]
    fn location(&mut self, id: FrameId) -> Varint {
        match self.of_frame[id.index()] {
            Varint(0) => self.new_location(id),
            known => known,
        }
    }

    fn new_location(&mut self, id: FrameId) -> Varint {
        self.locations.push(id);
        let location = Varint::of(self.locations.len() as u64);
        self.of_frame[id.index()] = location;
        if let Some(twin) = self.twins.get(&id) {
            self.of_frame[twin.index()] = location;
        }
        location
    }

    /// What the locations are. Written last: to find out costs more than to give each a number, and less if it is done for all in one go.
    fn locations_and_functions(&mut self, symbols: &[&'a [SymbolFrame]], to: &mut Vec<u8>) {
        let profile = self.profile;
        let mut functions = Functions::default();
        let ids = std::mem::take(&mut self.locations);
        let mut location = Location::default();
        for (at, (&frame, id)) in ids.iter().zip(1..).enumerate() {
            if at % AT_ONCE == 0 {
                let next = ids[at..].iter().take(AT_ONCE).filter_map(|frame| symbols.get(frame.index())?.first());
                black_box(next.filter_map(|symbol| symbol.name.as_bytes().first()).fold(0, |all, byte| all ^ byte));
            }
            location.line.clear();
            location.id = id;
            (location.mapping_id, location.address) = (0, 0);
            match profile.stacks.frames().get(frame.index()) {
                Some(Frame::Address { mapping, svma, kind }) => {
                    let lookup = kind.for_lookup(*svma);
                    // One of the two may have been named alone.
                    let twin = || self.twins.get(&frame).map_or(&[][..], |twin| symbols[twin.index()]);
                    let symbols = Some(symbols[frame.index()]).filter(|symbols| !symbols.is_empty());
                    let symbols = symbols.unwrap_or_else(twin);
                    location.line.extend(symbols.iter().map(|symbol| self.line(symbol, &mut functions)));
                    let file = mapping.and_then(|id| profile.mapping(id));
                    location.address = file.map_or(lookup.0, |m| m.to_avma(lookup));
                    location.mapping_id = mapping.filter(|_| file.is_some()).map_or(0, |id| u64::from(id.0) + 1);
                }
                Some(Frame::Named(name)) => location.line.push(self.named_line(name, &mut functions)),
                None => location.line.push(self.named_line(NO_STACK, &mut functions)),
            }
            message::encode(LOCATIONS, &location, to);
        }
        functions.all.iter().for_each(|function| message::encode(FUNCTION, function, to));
    }

    fn named_line(&mut self, name: &'a str, functions: &mut Functions) -> Line {
        let name = self.strings.id(name);
        Line { function_id: functions.id(name, name, 0), line: 0 }
    }

    fn line(&mut self, symbol: &'a SymbolFrame, functions: &mut Functions) -> Line {
        let name = self.strings.id(&symbol.name);
        let system_name = symbol.system_name.as_ref().map_or(name, |system| self.strings.id(system));
        let filename = symbol.file.as_ref().map_or(0, |file| self.strings.id(file));
        Line { function_id: functions.id(name, system_name, filename), line: i64::from(symbol.line) }
    }

    fn mappings(&mut self, symbols: &[&[SymbolFrame]]) -> Vec<Mapping> {
        let profile = self.profile;
        let mut known = vec![Mapping::default(); profile.mappings.len()];
        for (frame, symbols) in profile.stacks.frames().iter().zip(symbols) {
            let Frame::Address { mapping: Some(mapping), .. } = frame else { continue };
            let Some(known) = known.get_mut(mapping.index()) else { continue };
            for symbol in *symbols {
                known.has_functions = true;
                known.has_filenames |= symbol.file.is_some();
                known.has_line_numbers |= symbol.line != 0;
                known.has_inline_frames |= symbol.inlined;
            }
        }
        let all = profile.mappings.iter().zip(known).zip(1..);
        all.map(|((mapping, known), id)| Mapping {
            id,
            memory_start: mapping.start,
            memory_limit: mapping.end,
            file_offset: mapping.file_offset,
            filename: self.strings.id(&mapping.path),
            build_id: self.strings.id_of_made(mapping.build_id_hex()),
            ..known
        })
        .collect()
    }
}

/// The frames that have their address in common with another.
fn twins(frames: &[Frame]) -> FxHashMap<FrameId, FrameId> {
    let of_kind = |wanted| {
        frames.iter().zip(0..).filter_map(move |(frame, id)| match frame {
            Frame::Address { mapping, svma, kind } if *kind == wanted => {
                Some(((*mapping, kind.for_lookup(*svma)), FrameId(id)))
            }
            _ => None,
        })
    };
    let instructions: FxHashMap<_, _> = of_kind(AddressKind::Instruction).collect();
    let mut twins = FxHashMap::default();
    if !instructions.is_empty() {
        for (address, id) in of_kind(AddressKind::ReturnAddress) {
            if let Some(twin) = instructions.get(&address) {
                twins.extend([(id, *twin), (*twin, id)]);
            }
        }
    }
    twins
}

/// The frame of that name; if there is none, what would be the next.
fn no_stack(frames: &[Frame]) -> FrameId {
    let same = frames.iter().position(|frame| matches!(frame, Frame::Named(name) if name == NO_STACK));
    FrameId(same.unwrap_or(frames.len()) as u32)
}

/// A field of numbers.
fn packed(field: u32, values: &[i64], out: &mut Vec<u8>) {
    let length = values.iter().map(|value| encoded_len_varint(*value as u64)).sum::<usize>();
    encode_key(field, WireType::LengthDelimited, out);
    varint(length as u64, out);
    values.iter().for_each(|value| varint(*value as u64, out));
}

/// A number; most have one byte or two.
fn varint(number: u64, to: &mut Vec<u8>) {
    match number {
        0..0x80 => to.push(number as u8),
        0x80..0x4000 => to.extend_from_slice(&[number as u8 | 0x80, (number >> 7) as u8]),
        _ => encode_varint(number, to),
    }
}

/// How many bytes two sequences begin with in common.
fn in_common<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

fn value_type<'a>(sample_type: &'a SampleType, strings: &mut Strings<'a>) -> ValueType {
    ValueType { r#type: strings.id(&sample_type.kind), unit: strings.id(&sample_type.unit) }
}

fn encoded_labels(labels: &[Label]) -> Vec<u8> {
    let mut encoded = Vec::new();
    labels.iter().for_each(|label| message::encode(LABEL, label, &mut encoded));
    encoded
}

fn thread_labels<'a>(thread: &'a Thread, several: bool, strings: &mut Strings<'a>) -> Vec<Label> {
    let mut labels = Vec::new();
    let mut text = |key, value: &'a str, strings: &mut Strings<'a>| {
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
