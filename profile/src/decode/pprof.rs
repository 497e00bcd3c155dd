//! pprof files, ours and those of other programs, gzipped or not.
//!
//! The labels `thread`, `tid`, `process` and `pid` become the sample's thread; `bytes` on allocations is derived data and dropped.
//! pprof does not know a mapping's bias: that of a file linked at its own offsets is assumed, so addresses in the file may be off by a
//! constant while those in the process are right. Locations without an address become named frames.

mod samples;
mod tables;

use super::pieces::Pieces;
use super::wire::{Field, field, number};
use super::{DecodeError, Limits};
use crate::proto;
use crate::stacks::Lists;
use crate::{
    AddressKind, Frame, FrameId, Label, LabelValue, Labels, Mapping, MappingId, Profile, SampleType, SymbolFrame,
    Symbols, Thread, ThreadId,
};
use prost::Message;
use rustc_hash::FxHashMap;
use samples::Samples;
use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use tables::{ById, Function, Line, Location, Tables, numbers};

// Field numbers of a profile, and of a sample in it.
const SAMPLE: u32 = 2;
const LOCATION: u32 = 1;
const VALUE: u32 = 2;
const LABEL: u32 = 3;

/// Reads a file: what was measured, and the names it carries.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<(Profile, Symbols), DecodeError> {
    // Samples are taken one after the other, and the rest is decoded behind them.
    let (mut head, mut tables, mut samples) = (Vec::new(), Tables::default(), Samples::new());
    Pieces::of(bytes, limits)?.each(|number, found, whole| match (number, &found) {
        (SAMPLE, Field::Bytes(sample)) => samples.add(sample),
        _ if tables.take(number, &found)? => Ok(()),
        _ => {
            head.extend_from_slice(whole);
            Ok(())
        }
    })?;
    let head = proto::Profile::decode(&*head).map_err(not_proto)?;
    Decoder::new(&head, &tables, limits)?.finish(samples)
}

pub(super) fn not_proto(error: prost::DecodeError) -> DecodeError {
    DecodeError::corrupt(format!("not a pprof profile: {error}"))
}

/// What the labels of a sample are for, by the text of their keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Thread,
    Process,
    Tid,
    Pid,
    Bytes,
    Other,
}

impl Key {
    fn of(text: &str) -> Self {
        match text {
            "thread" => Self::Thread,
            "process" => Self::Process,
            "tid" => Self::Tid,
            "pid" => Self::Pid,
            "bytes" => Self::Bytes,
            _ => Self::Other,
        }
    }
}

/// A thread as labels tell it: the texts by their numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct ThreadLabels {
    name: u64,
    process: u64,
    tid: u32,
    pid: u32,
}

struct Decoder<'a> {
    head: &'a proto::Profile,
    tables: &'a Tables,
    profile: Profile,
    symbols: Symbols,
    functions: ById<Function>,
    /// Strings that symbols share, by their numbers, once one has it.
    shared: Vec<Option<Arc<str>>>,
    /// Frames of all locations, those of each root-most first, and which are whose.
    frames: Vec<FrameId>,
    locations: ById<Range<u32>>,
    /// Frames of all stacks, those of each root-most first, and which are whose.
    stacks: Lists,
    /// What each string means as the key of a label.
    keys: Vec<Key>,
    threads: FxHashMap<Thread, ThreadId>,
    of_labels: FxHashMap<ThreadLabels, ThreadId>,
    is_memory: bool,
    limits: Limits,
    /// Bytes that may still be taken on: a few bytes of a file can name a long text, or a location of many frames, again and again.
    left: Cell<usize>,
}

impl<'a> Decoder<'a> {
    fn new(head: &'a proto::Profile, tables: &'a Tables, limits: Limits) -> Result<Self, DecodeError> {
        if !tables.string(0).is_ok_and(str::is_empty) {
            return Err(DecodeError::corrupt("the string table does not begin with an empty string"));
        }
        if head.sample_type.is_empty() {
            return Err(DecodeError::corrupt("no sample types"));
        }
        let mut decoder = Self {
            head,
            tables,
            profile: Profile::default(),
            symbols: Symbols::new(),
            functions: ById::new(tables.functions.len()),
            shared: vec![None; tables.strings()],
            frames: Vec::new(),
            locations: ById::new(tables.locations.len()),
            stacks: Lists::default(),
            keys: tables.all_strings().map(Key::of).collect(),
            threads: FxHashMap::default(),
            of_labels: FxHashMap::default(),
            is_memory: false,
            limits,
            left: Cell::new(limits.bytes),
        };
        decoder.head()?;
        let mapping_ids = decoder.mappings()?;
        for function in &tables.functions {
            decoder.functions.insert("function", function.id, *function)?;
        }
        let mut functions = Vec::new();
        for location in &tables.locations {
            let first = decoder.frames.len() as u32;
            decoder.frames(location, &mapping_ids, &mut functions)?;
            decoder.locations.insert("location", location.id, first..decoder.frames.len() as u32)?;
        }
        Ok(decoder)
    }

    /// A text that is taken over.
    fn text(&self, index: u64) -> Result<&'a str, DecodeError> {
        let string = self.tables.string(index)?;
        self.take_on(string.len())?;
        Ok(string)
    }

    fn take_on(&self, bytes: usize) -> Result<(), DecodeError> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or_else(|| DecodeError::too_large(self.limits))?);
        Ok(())
    }

    fn value_type(&self, of: proto::ValueType) -> Result<SampleType, DecodeError> {
        let text = |index: i64| self.text(index as u64).map(|text| Cow::Owned(text.to_owned()));
        Ok(SampleType { kind: text(of.r#type)?, unit: text(of.unit)? })
    }

    fn head(&mut self) -> Result<(), DecodeError> {
        let head = self.head;
        let types: Result<Vec<_>, _> = head.sample_type.iter().map(|t| self.value_type(*t)).collect();
        let comments: Result<Vec<_>, _> =
            head.comment.iter().map(|c| self.text(*c as u64).map(str::to_owned)).collect();
        let default = self.text(head.default_sample_type as u64)?;
        self.profile = Profile {
            comments: comments?,
            period: head.period,
            start_unix_ns: head.time_nanos,
            duration_ns: head.duration_nanos,
            ..Profile::new(types?)
        };
        self.profile.default_sample_type = self.profile.column(default).filter(|_| !default.is_empty());
        let period_type = head.period_type.map(|t| self.value_type(t)).transpose()?;
        self.profile.period_type = period_type.filter(|t| !t.kind.is_empty() || !t.unit.is_empty());
        self.is_memory = self.profile.sample_types.iter().any(SampleType::is_memory);
        Ok(())
    }

    fn mappings(&mut self) -> Result<FxHashMap<u64, MappingId>, DecodeError> {
        let mut ids = FxHashMap::default();
        for mapping in &self.head.mapping {
            let id = MappingId(self.profile.mappings.len() as u32);
            if mapping.id == 0 || ids.insert(mapping.id, id).is_some() {
                return Err(DecodeError::corrupt(format!("mapping id {} is zero or not unique", mapping.id)));
            }
            self.profile.mappings.push(Mapping {
                start: mapping.memory_start,
                end: mapping.memory_limit,
                file_offset: mapping.file_offset,
                bias: mapping.memory_start.wrapping_sub(mapping.file_offset),
                path: self.text(mapping.filename as u64)?.to_owned(),
                build_id: from_hex(self.text(mapping.build_id as u64)?),
            });
        }
        Ok(ids)
    }

    /// Adds the frames of a location, root-most first; its names go to the symbols. `functions` is a place for them.
    fn frames(
        &mut self,
        location: &Location,
        mappings: &FxHashMap<u64, MappingId>,
        functions: &mut Vec<SymbolFrame>,
    ) -> Result<(), DecodeError> {
        functions.clear();
        for line in self.tables.lines(location) {
            if let Some(inner) = functions.last_mut() {
                inner.inlined = true;
            }
            functions.push(self.symbol(line)?);
        }
        let mapping = match location.mapping {
            0 => None,
            id => Some(*mappings.get(&id).ok_or_else(|| DecodeError::corrupt(format!("mapping {id} does not exist")))?),
        };
        let svma = mapping
            .map_or(crate::Svma(location.address), |id| self.profile.mappings[id.index()].to_svma(location.address));
        let kind = AddressKind::Instruction;
        // Who names an address first names it for all.
        if functions.is_empty() || location.address != 0 && self.symbols.name((mapping, svma, kind), functions) {
            self.frames.push(self.profile.stacks.frame_id(Frame::Address { mapping, svma, kind }));
            return Ok(());
        }
        let named = functions.iter().rev().map(|function| Frame::Named(Cow::Owned(function.name.to_string())));
        self.frames.extend(named.map(|frame| self.profile.stacks.frame_id(frame)));
        Ok(())
    }

    fn symbol(&mut self, line: &Line) -> Result<SymbolFrame, DecodeError> {
        let Function { name, system_name, file, .. } = *self.functions.get("function", line.function)?;
        let (name, system_name) = (self.shared_text(name)?, self.shared_text(system_name)?);
        let name = name.or_else(|| system_name.clone()).unwrap_or_else(|| "[unnamed]".into());
        Ok(SymbolFrame {
            system_name: system_name.filter(|system| *system != name),
            name,
            file: self.shared_text(file)?,
            line: u32::try_from(line.line).unwrap_or(0),
            function_start: None,
            inlined: false,
        })
    }

    /// A text that many symbols have; `None` for the empty one.
    fn shared_text(&mut self, index: u64) -> Result<Option<Arc<str>>, DecodeError> {
        let known = usize::try_from(index).ok().and_then(|index| self.shared.get(index));
        if let Some(Some(known)) = known {
            return Ok(Some(known.clone()));
        }
        let text = Some(self.text(index)?).filter(|text| !text.is_empty()).map(Arc::from);
        self.shared[index as usize].clone_from(&text);
        Ok(text)
    }

    /// Adds the stack of these locations.
    fn stack(&mut self, mut locations: &[u8]) -> Result<(), DecodeError> {
        let from = self.stacks.frames.len();
        while !locations.is_empty() {
            let id = number(&mut locations).map_err(not_proto)?;
            let frames = self.locations.get("location", id)?;
            let frames = self.frames.get(frames.start as usize..frames.end as usize).unwrap_or_default();
            self.take_on(size_of_val(frames))?;
            self.stacks.frames.extend(frames.iter().rev());
        }
        // A file has them leaf first.
        self.stacks.frames[from..].reverse();
        self.stacks.ends.push(self.stacks.frames.len());
        Ok(())
    }

    /// The profile, with what the numbers in the samples stand for.
    fn finish(mut self, found: Samples) -> Result<(Profile, Symbols), DecodeError> {
        for locations in found.locations.in_order() {
            self.stack(locations)?;
        }
        let labels: Result<Vec<_>, _> = found.labels.in_order().map(|fields| self.labels(fields)).collect();
        let (labels, columns) = (labels?, self.profile.sample_types.len());
        let stacks = self.profile.stacks.fill(&self.stacks);
        self.profile.samples = found.all;
        for sample in &mut self.profile.samples {
            let values = sample.values.len();
            if values != columns {
                return Err(DecodeError::corrupt(format!("a sample has {values} values for {columns} sample types")));
            }
            sample.stack = stacks[sample.stack.index()];
            if let Some(number) = sample.thread {
                let (thread, others) = &labels[number.index()];
                sample.thread = *thread;
                sample.labels.clone_from(others);
            }
        }
        Ok((self.profile, self.symbols))
    }

    /// What the labels of a sample say: the thread, and the others.
    fn labels(&mut self, mut fields: &[u8]) -> Result<(Option<ThreadId>, Labels), DecodeError> {
        let (mut others, mut thread) = (Vec::new(), ThreadLabels::default());
        while !fields.is_empty() {
            if let (_, Field::Bytes(label)) = field(&mut fields).map_err(not_proto)? {
                self.label(label, &mut others, &mut thread)?;
            }
        }
        Ok((self.thread(thread)?, others.into()))
    }

    /// Takes a label as a part of the thread's, or among the others.
    fn label(&self, label: &[u8], others: &mut Vec<Label>, thread: &mut ThreadLabels) -> Result<(), DecodeError> {
        let [mut key, mut text, mut number, mut unit] = [0; 4];
        numbers(label, [(1, &mut key), (2, &mut text), (3, &mut number), (4, &mut unit)], |_, _| Ok(false))?;
        let key_of = usize::try_from(key).ok().and_then(|key| self.keys.get(key)).copied();
        let is_text = !self.tables.string(text)?.is_empty();
        match (key_of, u32::try_from(number).ok().filter(|_| !is_text)) {
            (Some(Key::Thread), _) if is_text => thread.name = text,
            (Some(Key::Process), _) if is_text => thread.process = text,
            (Some(Key::Tid), Some(tid)) => thread.tid = tid,
            (Some(Key::Pid), Some(pid)) => thread.pid = pid,
            (Some(Key::Bytes), _) if !is_text && self.is_memory => {}
            _ => {
                let texts = (self.text(key)?, self.text(text)?, self.text(unit)?);
                others.push(other_label(texts, number as i64));
            }
        }
        // Also of labels that are not kept.
        self.tables.string(unit).map(drop)
    }

    fn thread(&mut self, labels: ThreadLabels) -> Result<Option<ThreadId>, DecodeError> {
        if labels == ThreadLabels::default() {
            return Ok(None);
        }
        let id = match self.of_labels.get(&labels) {
            Some(known) => *known,
            None => {
                let ThreadLabels { name, process, tid, pid } = labels;
                let thread = Thread {
                    name: self.text(name)?.to_owned(),
                    process: self.text(process)?.to_owned(),
                    tid,
                    pid,
                    ..Thread::default()
                };
                let threads = &mut self.profile.threads;
                // Equal texts can have several numbers.
                let id = *self.threads.entry(thread).or_insert_with_key(|thread| {
                    threads.push(thread.clone());
                    ThreadId(threads.len() as u32 - 1)
                });
                self.of_labels.insert(labels, id);
                id
            }
        };
        Ok(Some(id))
    }
}

fn other_label((key, text, unit): (&str, &str, &str), value: i64) -> Label {
    if !text.is_empty() {
        return Label::text(key.to_owned(), text);
    }
    let unit = (!unit.is_empty()).then(|| unit.to_owned());
    Label { key: Cow::Owned(key.to_owned()), value: LabelValue::Number { value, unit } }
}

/// The bytes of a build id; empty if it is not one that ELF files have.
fn from_hex(text: &str) -> Vec<u8> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect(),
        _ => Vec::new(),
    }
}
