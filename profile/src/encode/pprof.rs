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
use crate::proto::{Function, Label, Line, Location, Mapping, ValueType};
use crate::{
    AddressKind, Frame, FrameId, LabelValue, Options, Profile, Sample, SampleType, StackId, SymbolFrame, Symbols,
    Thread, ThreadId,
};
use once::{Functions, Strings};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, message};
use rustc_hash::FxHashMap;
use std::io::{self, Write};

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
    /// Of each: number of its stack, index of its labels, and length, four bytes each, then mean size and values.
    encoded: Vec<u8>,
    /// The stacks that have any.
    stacks: Dense,
    /// Where those of each begin.
    first: Vec<usize>,
}

/// Bytes before a body.
const BODY_HEAD: usize = 12;

impl Bodies {
    /// Labels and body of each sample of the stack with this number.
    fn of(&self, stack: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = &self.encoded[self.first[stack]..self.first[stack + 1]];
        std::iter::from_fn(move || {
            let ([_, labels, length], after) = body_head(rest)?;
            let (body, after) = after.split_at(length);
            rest = after;
            Some((labels, body))
        })
    }
}

/// The numbers before a body, and what follows.
fn body_head(bytes: &[u8]) -> Option<([usize; 3], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<BODY_HEAD>()?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    Some(([number(0), number(4), number(8)], rest))
}

/// The columns that tell the mean size of a sample's allocations, the first pair with objects deciding.
struct MeanSize {
    pairs: Vec<(usize, usize)>,
    /// What is the same in the label of each: its key and unit.
    name: Vec<u8>,
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
        let frames = profile.stacks.frames().len();
        let mut strings = Strings::with_room(frames);
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
        let mean_size = (!pairs.is_empty()).then(|| {
            let bytes = strings.id("bytes");
            MeanSize { pairs, name: Label { key: bytes, num_unit: bytes, ..Default::default() }.encode_to_vec() }
        });
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
        (head.location, head.function) = self.locations_and_functions(&symbols);
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
            let stack = stacks.number(sample.stack.0);
            let from = encoded.len();
            encoded.extend_from_slice(&(stack as u32).to_le_bytes());
            encoded.extend_from_slice(&labels.to_le_bytes());
            encoded.extend_from_slice(&[0; 4]);
            self.mean_size(sample, &mut encoded);
            packed(VALUE, sample.values.iter().map(|value| *value as u64), &mut encoded);
            let length = (encoded.len() - from - BODY_HEAD) as u32;
            encoded[from + BODY_HEAD - 4..from + BODY_HEAD].copy_from_slice(&length.to_le_bytes());
            first[stack + 1] += encoded.len() - from;
        }
        (1..first.len()).for_each(|i| first[i] += first[i - 1]);
        let mut next = first.clone();
        let mut by_stack = vec![0; encoded.len()];
        let mut rest = &*encoded;
        while let Some(([stack, _, length], _)) = body_head(rest) {
            let (body, after) = rest.split_at(BODY_HEAD + length);
            let place = &mut next[stack];
            by_stack[*place..*place + body.len()].copy_from_slice(body);
            *place += body.len();
            rest = after;
        }
        Bodies { encoded: by_stack, stacks, first }
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

    fn mean_size(&self, sample: &Sample, body: &mut Vec<u8>) {
        if let Some(mean) = &self.mean_size
            && let Some(num) = mean.of(sample)
        {
            // The order of a message's fields is free.
            let number = Label { num, ..Default::default() };
            encode_key(LABEL, WireType::LengthDelimited, body);
            encode_varint((mean.name.len() + number.encoded_len()) as u64, body);
            body.extend_from_slice(&mean.name);
            number.encode_raw(body);
        }
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
    fn locations_and_functions(&mut self, symbols: &[&'a [SymbolFrame]]) -> (Vec<Location>, Vec<Function>) {
        let profile = self.profile;
        let mut functions = Functions::default();
        let ids = std::mem::take(&mut self.locations);
        let locations = ids.into_iter().zip(1..).map(|(frame, id)| {
            let (mapping, svma, kind) = match profile.stacks.frames().get(frame.index()) {
                Some(Frame::Address { mapping, svma, kind }) => (*mapping, *svma, *kind),
                Some(Frame::Named(name)) => return self.named_location(id, name, &mut functions),
                None => return self.named_location(id, NO_STACK, &mut functions),
            };
            let lookup = kind.for_lookup(svma);
            // One of the two may have been named alone.
            let twin = || self.twins.get(&frame).map_or(&[][..], |twin| symbols[twin.index()]);
            let symbols = Some(symbols[frame.index()]).filter(|symbols| !symbols.is_empty()).unwrap_or_else(twin);
            let line = symbols.iter().map(|symbol| self.line(symbol, &mut functions)).collect();
            let file = mapping.and_then(|id| profile.mapping(id));
            let address = file.map_or(lookup.0, |m| m.to_avma(lookup));
            let mapping_id = mapping.filter(|_| file.is_some()).map_or(0, |id| u64::from(id.0) + 1);
            Location { id, mapping_id, address, line, ..Default::default() }
        });
        (locations.collect(), functions.all)
    }

    fn named_location(&mut self, id: u64, name: &'a str, functions: &mut Functions) -> Location {
        let name = self.strings.id(name);
        let line = vec![Line { function_id: functions.id(name, name, 0), line: 0 }];
        Location { id, line, ..Default::default() }
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
