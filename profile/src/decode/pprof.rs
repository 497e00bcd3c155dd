//! pprof files, ours and those of other programs, gzipped or not.
//!
//! The labels `thread`, `tid`, `process` and `pid` become the sample's thread; `bytes` on allocations is derived data and dropped.
//! pprof does not know a mapping's bias: that of a file linked at its own offsets is assumed, so addresses in the file may be off by a
//! constant while those in the process are right. Locations without an address become named frames.

use super::{DecodeError, Limits, gunzip};
use crate::proto::{self, Function, Line, Location};
use crate::{
    AddressKind, Frame, FrameId, Label, LabelValue, Mapping, MappingId, Profile, Sample, SampleType, StackId, Stacks,
    SymbolFrame, Symbols, Thread, ThreadId,
};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

const SAMPLE: u32 = 2;

/// Reads a file: what was measured, and the names it carries.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<(Profile, Symbols), DecodeError> {
    let unpacked = gunzip(bytes, limits)?;
    let bytes = &*unpacked;
    if bytes.len() > limits.bytes {
        return Err(DecodeError::too_large(limits));
    }
    let (head, samples) = split(bytes).map_err(not_proto)?;
    let head = proto::Profile::decode(&*head).map_err(not_proto)?;
    let mut decoder = Decoder::new(&head, limits)?;
    for range in samples {
        let sample = proto::Sample::decode(&bytes[range]).map_err(not_proto)?;
        decoder.sample(sample)?;
    }
    Ok((decoder.profile, decoder.symbols))
}

fn not_proto(error: prost::DecodeError) -> DecodeError {
    DecodeError::corrupt(format!("not a pprof profile: {error}"))
}

/// Takes the samples out of the rest, so that they are decoded one after the other.
fn split(bytes: &[u8]) -> Result<(Vec<u8>, Vec<Range<usize>>), prost::DecodeError> {
    let (mut head, mut samples) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    while !rest.is_empty() {
        let start = bytes.len() - rest.len();
        let (tag, wire_type) = decode_key(&mut rest)?;
        if tag == SAMPLE && wire_type == WireType::LengthDelimited {
            let length = decode_varint(&mut rest)?;
            let from = bytes.len() - rest.len();
            let length = usize::try_from(length).ok().filter(|length| *length <= rest.len());
            let Some(length) = length else { return Err(proto::Profile::decode(&bytes[start..]).unwrap_err()) };
            samples.push(from..from + length);
            rest = &rest[length..];
        } else {
            skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
            head.extend_from_slice(&bytes[start..bytes.len() - rest.len()]);
        }
    }
    Ok((head, samples))
}

struct Decoder<'a> {
    head: &'a proto::Profile,
    profile: Profile,
    symbols: Symbols,
    functions: FxHashMap<u64, &'a Function>,
    /// Frames of each location, root-most first.
    locations: FxHashMap<u64, Vec<FrameId>>,
    stacks: FxHashMap<Vec<u64>, StackId>,
    /// Samples of one stack often stand together.
    last_stack: (Vec<u64>, StackId),
    threads: FxHashMap<Thread, ThreadId>,
    is_memory: bool,
    limits: Limits,
    /// Bytes that may still be taken on: a few bytes of a file can name a long text, or a location of many frames, again and again.
    left: Cell<usize>,
}

impl<'a> Decoder<'a> {
    fn new(head: &'a proto::Profile, limits: Limits) -> Result<Self, DecodeError> {
        if head.string_table.first().is_none_or(|first| !first.is_empty()) {
            return Err(DecodeError::corrupt("the string table does not begin with an empty string"));
        }
        if head.sample_type.is_empty() {
            return Err(DecodeError::corrupt("no sample types"));
        }
        let mut decoder = Self {
            head,
            profile: Profile::default(),
            symbols: Symbols::new(),
            functions: FxHashMap::default(),
            locations: FxHashMap::default(),
            stacks: FxHashMap::default(),
            last_stack: (Vec::new(), Stacks::ROOT),
            threads: FxHashMap::default(),
            is_memory: false,
            limits,
            left: Cell::new(limits.bytes),
        };
        decoder.head()?;
        let mapping_ids = decoder.mappings()?;
        for function in &head.function {
            if function.id == 0 || decoder.functions.insert(function.id, function).is_some() {
                return Err(DecodeError::corrupt(format!("function id {} is zero or not unique", function.id)));
            }
        }
        for location in &head.location {
            let frames = decoder.frames(location, &mapping_ids)?;
            if location.id == 0 || decoder.locations.insert(location.id, frames).is_some() {
                return Err(DecodeError::corrupt(format!("location id {} is zero or not unique", location.id)));
            }
        }
        Ok(decoder)
    }

    fn text(&self, index: i64) -> Result<&'a str, DecodeError> {
        let string = usize::try_from(index).ok().and_then(|index| self.head.string_table.get(index));
        let string = string.ok_or_else(|| DecodeError::corrupt(format!("string {index} does not exist")))?;
        self.take_on(string.len())?;
        Ok(string)
    }

    fn take_on(&self, bytes: usize) -> Result<(), DecodeError> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| DecodeError::too_large(self.limits))?;
        self.left.set(left);
        Ok(())
    }

    fn value_type(&self, of: proto::ValueType) -> Result<SampleType, DecodeError> {
        let text = |index| self.text(index).map(|text| Cow::Owned(text.to_owned()));
        Ok(SampleType { kind: text(of.r#type)?, unit: text(of.unit)? })
    }

    fn head(&mut self) -> Result<(), DecodeError> {
        let head = self.head;
        let types: Result<Vec<_>, _> = head.sample_type.iter().map(|t| self.value_type(*t)).collect();
        let comments: Result<Vec<_>, _> = head.comment.iter().map(|c| self.text(*c).map(str::to_owned)).collect();
        let default = self.text(head.default_sample_type)?;
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
                path: self.text(mapping.filename)?.to_owned(),
                build_id: from_hex(self.text(mapping.build_id)?),
            });
        }
        Ok(ids)
    }

    /// The frames of a location, root-most first; its names go to the symbols.
    fn frames(
        &mut self,
        location: &Location,
        mappings: &FxHashMap<u64, MappingId>,
    ) -> Result<Vec<FrameId>, DecodeError> {
        let functions: Result<Vec<_>, _> = location.line.iter().map(|line| self.symbol(line)).collect();
        let mut functions = functions?;
        let outermost = functions.len().saturating_sub(1);
        functions.iter_mut().enumerate().for_each(|(i, function)| function.inlined = i < outermost);
        let mapping = match location.mapping_id {
            0 => None,
            id => Some(*mappings.get(&id).ok_or_else(|| DecodeError::corrupt(format!("mapping {id} does not exist")))?),
        };
        let svma = mapping
            .map_or(crate::Svma(location.address), |id| self.profile.mappings[id.index()].to_svma(location.address));
        let frame = Frame::Address { mapping, svma, kind: AddressKind::Instruction };
        let known = self.symbols.get(&frame);
        if (location.address != 0 || functions.is_empty()) && (known.is_empty() || known == functions) {
            frame.address().into_iter().for_each(|key| self.symbols.insert(key, std::mem::take(&mut functions)));
            return Ok(vec![self.profile.stacks.frame_id(frame)]);
        }
        let named = functions.iter().rev().map(|function| Frame::Named(Cow::Owned(function.name.to_string())));
        Ok(named.map(|frame| self.profile.stacks.frame_id(frame)).collect())
    }

    fn symbol(&self, line: &Line) -> Result<SymbolFrame, DecodeError> {
        let id = line.function_id;
        let function =
            self.functions.get(&id).ok_or_else(|| DecodeError::corrupt(format!("function {id} does not exist")))?;
        let text = |index| Ok(Some(self.text(index)?).filter(|text| !text.is_empty()).map(Arc::from));
        let (name, system_name): (Option<Arc<str>>, Option<Arc<str>>) =
            (text(function.name)?, text(function.system_name)?);
        let name = name.or_else(|| system_name.clone()).unwrap_or_else(|| "[unnamed]".into());
        Ok(SymbolFrame {
            system_name: system_name.filter(|system| *system != name),
            name,
            file: text(function.filename)?,
            line: u32::try_from(line.line).unwrap_or(0),
            function_start: None,
            inlined: false,
        })
    }

    fn sample(&mut self, sample: proto::Sample) -> Result<(), DecodeError> {
        if sample.value.len() != self.profile.sample_types.len() {
            return Err(DecodeError::corrupt(format!(
                "a sample has {} values for {} sample types",
                sample.value.len(),
                self.profile.sample_types.len()
            )));
        }
        let (labels, thread) = self.labels(&sample.label)?;
        let is_last = sample.location_id == self.last_stack.0;
        let known = if is_last { Some(self.last_stack.1) } else { self.stacks.get(&sample.location_id).copied() };
        let stack = match known {
            Some(stack) => {
                if !is_last {
                    self.last_stack = (sample.location_id, stack);
                }
                stack
            }
            None => {
                let mut stack = Stacks::ROOT;
                for id in sample.location_id.iter().rev() {
                    let frames = self.locations.get(id);
                    let frames = frames.ok_or_else(|| DecodeError::corrupt(format!("location {id} does not exist")))?;
                    self.take_on(frames.len() * size_of::<FrameId>())?;
                    stack = frames.iter().fold(stack, |stack, frame| self.profile.stacks.push(stack, *frame));
                }
                self.last_stack = (sample.location_id.clone(), stack);
                self.stacks.insert(sample.location_id, stack);
                stack
            }
        };
        self.profile.samples.push(Sample { stack, thread, labels, values: sample.value });
        Ok(())
    }

    fn labels(&mut self, labels: &[proto::Label]) -> Result<(Vec<Label>, Option<ThreadId>), DecodeError> {
        let (mut kept, mut thread) = (Vec::new(), Thread::default());
        for label in labels {
            let key = self.text(label.key)?;
            let (text, unit) = (self.text(label.str)?, self.text(label.num_unit)?);
            let number = u32::try_from(label.num).ok().filter(|_| text.is_empty());
            match (key, number) {
                ("thread", _) if !text.is_empty() => thread.name = text.to_owned(),
                ("process", _) if !text.is_empty() => thread.process = text.to_owned(),
                ("tid", Some(tid)) => thread.tid = tid,
                ("pid", Some(pid)) => thread.pid = pid,
                ("bytes", _) if text.is_empty() && self.is_memory => {}
                _ if text.is_empty() => kept.push(Label {
                    key: Cow::Owned(key.to_owned()),
                    value: LabelValue::Number { value: label.num, unit: (!unit.is_empty()).then(|| unit.to_owned()) },
                }),
                _ => kept.push(Label::text(key.to_owned(), text)),
            }
        }
        if thread == Thread::default() {
            return Ok((kept, None));
        }
        let threads = &mut self.profile.threads;
        let id = *self.threads.entry(thread).or_insert_with_key(|thread| {
            threads.push(thread.clone());
            ThreadId(threads.len() as u32 - 1)
        });
        Ok((kept, Some(id)))
    }
}

/// The bytes of a build id; empty if it is not one that ELF files have.
fn from_hex(text: &str) -> Vec<u8> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect(),
        _ => Vec::new(),
    }
}
