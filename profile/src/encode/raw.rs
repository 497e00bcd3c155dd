//! The raw format, `.profrec`: all that a profile and its names hold, nothing rounded, nothing renumbered.
//!
//! It is what to keep: every other format can be made of it later, on another machine, with names found there. A file is written front to
//! back in chunks, each compressed and checked by itself, so that a file that was cut off loses its end alone. What the chunks hold
//! stands in the source of this crate, in `raw.rs`; within version 1 kinds of chunks are only added.

use crate::raw::{
    COMMENTS, END, EVENTS, FRAMES, HEAD, MAGIC, MAPPINGS, SAMPLES, STACKS, THREADS, VERSION, crc, zigzag,
};
use crate::{
    AddressKind, Frame, FrameId, LabelValue, Options, Profile, Sample, SampleType, StackId, SymbolFrame, Symbols,
};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use prost::encoding::encode_varint;
use std::io::{self, Write};

/// Bytes of a chunk before they are compressed: what is lost at most where a file was cut off.
const PIECE: usize = 1 << 16;

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, _: &Options, out: &mut dyn Write) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    out.write_all(MAGIC)?;
    out.write_all(&[VERSION])?;
    let mut writer = Writer { profile, symbols, out, frames: 0, stacks: 1 };
    let mut head = Vec::new();
    put_head(profile, &mut head);
    writer.chunk(HEAD, &head)?;
    writer.all(COMMENTS, &profile.comments, |comment, to| put_text(comment, to))?;
    writer.all(MAPPINGS, &profile.mappings, |mapping, to| {
        for number in [mapping.start, mapping.end, mapping.file_offset, mapping.bias] {
            encode_varint(number, to);
        }
        put_text(&mapping.path, to);
        put_bytes(&mapping.build_id, to);
    })?;
    writer.all(THREADS, &profile.threads, |thread, to| {
        encode_varint(u64::from(thread.pid), to);
        encode_varint(u64::from(thread.tid), to);
        put_text(&thread.name, to);
        put_text(&thread.process, to);
        encode_varint(u64::from(thread.slot), to);
    })?;
    writer.samples()?;
    writer.events()?;
    writer.stacks_to(profile.stacks.len())?;
    writer.frames_to(profile.stacks.frames().len())?;
    let mut end = Vec::new();
    encode_varint(profile.samples.len() as u64, &mut end);
    encode_varint(profile.events.len() as u64, &mut end);
    writer.chunk(END, &end)?;
    writer.out.flush()
}

struct Writer<'a, W: Write> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    out: W,
    /// Frames and stacks that were written.
    frames: usize,
    stacks: usize,
}

impl<W: Write> Writer<'_, W> {
    fn chunk(&mut self, kind: u8, content: &[u8]) -> io::Result<()> {
        let mut deflated = DeflateEncoder::new(Vec::new(), Compression::fast());
        deflated.write_all(content)?;
        let payload = deflated.finish()?;
        let length = u32::try_from(payload.len()).map_err(|_| io::Error::other("a single name of 4 GiB"))?;
        self.out.write_all(&[kind])?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&crc(kind, &payload).to_le_bytes())?;
        self.out.write_all(&payload)
    }

    fn all<T>(
        &mut self,
        kind: u8,
        records: impl IntoIterator<Item = T>,
        put: impl Fn(T, &mut Vec<u8>),
    ) -> io::Result<()> {
        let mut content = Vec::new();
        for record in records {
            put(record, &mut content);
            if content.len() >= PIECE {
                self.chunk(kind, &content)?;
                content.clear();
            }
        }
        if content.is_empty() { Ok(()) } else { self.chunk(kind, &content) }
    }

    fn frames_to(&mut self, end: usize) -> io::Result<()> {
        let (first, symbols) = (self.frames, self.symbols);
        if end <= first {
            return Ok(());
        }
        self.frames = end;
        let frames = &self.profile.stacks.frames()[first..end];
        self.all(FRAMES, frames, |frame, to| put_frame(frame, symbols.get(frame), to))
    }

    fn stacks_to(&mut self, end: usize) -> io::Result<()> {
        let (first, stacks) = (self.stacks, &self.profile.stacks);
        if end <= first {
            return Ok(());
        }
        self.stacks = end;
        let ids = || (first as u32..end as u32).map(StackId);
        let leaf = |id: StackId| stacks.leaf_id(id).map_or(0, FrameId::index);
        self.frames_to(ids().map(leaf).max().map_or(0, |most| most + 1))?;
        self.all(STACKS, ids(), |id, to| {
            encode_varint(u64::from(stacks.parent(id).0), to);
            encode_varint(leaf(id) as u64, to);
        })
    }

    /// Before samples, what they refer to.
    fn samples(&mut self) -> io::Result<()> {
        let (mut content, mut most) = (Vec::new(), 0);
        for sample in &self.profile.samples {
            put_sample(sample, &mut content);
            most = most.max(sample.stack.index());
            if content.len() >= PIECE {
                self.stacks_to(most + 1)?;
                self.chunk(SAMPLES, &content)?;
                content.clear();
            }
        }
        self.stacks_to(most + 1)?;
        if content.is_empty() { Ok(()) } else { self.chunk(SAMPLES, &content) }
    }

    fn events(&mut self) -> io::Result<()> {
        let (mut content, mut most, mut before) = (Vec::new(), 0, 0_i64);
        for event in &self.profile.events {
            encode_varint(zigzag(event.unix_ns.wrapping_sub(before)), &mut content);
            encode_varint(u64::from(event.thread.0), &mut content);
            encode_varint(u64::from(event.stack.0), &mut content);
            encode_varint(zigzag(event.weight), &mut content);
            before = event.unix_ns;
            most = most.max(event.stack.index());
            if content.len() >= PIECE {
                self.stacks_to(most + 1)?;
                self.chunk(EVENTS, &content)?;
                content.clear();
                before = 0;
            }
        }
        self.stacks_to(most + 1)?;
        if content.is_empty() { Ok(()) } else { self.chunk(EVENTS, &content) }
    }
}

fn put_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    encode_varint(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

fn put_text(text: &str, to: &mut Vec<u8>) {
    put_bytes(text.as_bytes(), to);
}

/// 0, or 1 and the text.
fn put_optional(text: Option<&str>, to: &mut Vec<u8>) {
    to.push(u8::from(text.is_some()));
    text.into_iter().for_each(|text| put_text(text, to));
}

fn put_type(sample_type: &SampleType, to: &mut Vec<u8>) {
    put_text(&sample_type.kind, to);
    put_text(&sample_type.unit, to);
}

fn put_head(profile: &Profile, to: &mut Vec<u8>) {
    encode_varint(profile.sample_types.len() as u64, to);
    profile.sample_types.iter().for_each(|t| put_type(t, to));
    encode_varint(profile.default_sample_type.map_or(0, |column| column as u64 + 1), to);
    to.push(u8::from(profile.period_type.is_some()));
    profile.period_type.iter().for_each(|t| put_type(t, to));
    for number in [profile.period, profile.start_unix_ns, profile.duration_ns] {
        encode_varint(zigzag(number), to);
    }
}

fn put_frame(frame: &Frame, functions: &[SymbolFrame], to: &mut Vec<u8>) {
    match frame {
        Frame::Named(name) => {
            to.push(0);
            put_text(name, to);
        }
        Frame::Address { mapping, svma, kind } => {
            to.push(match kind {
                AddressKind::Instruction => 1,
                AddressKind::ReturnAddress => 2,
            });
            encode_varint(mapping.map_or(0, |id| u64::from(id.0) + 1), to);
            encode_varint(svma.0, to);
            encode_varint(functions.len() as u64, to);
            for function in functions {
                put_text(&function.name, to);
                put_optional(function.system_name.as_deref(), to);
                put_optional(function.file.as_deref(), to);
                encode_varint(u64::from(function.line), to);
                to.push(u8::from(function.function_start.is_some()));
                function.function_start.iter().for_each(|start| encode_varint(start.0, to));
                to.push(u8::from(function.inlined));
            }
        }
    }
}

fn put_sample(sample: &Sample, to: &mut Vec<u8>) {
    encode_varint(u64::from(sample.stack.0), to);
    encode_varint(sample.thread.map_or(0, |id| u64::from(id.0) + 1), to);
    encode_varint(sample.labels.len() as u64, to);
    for label in &sample.labels {
        put_text(&label.key, to);
        match &label.value {
            LabelValue::Text(text) => {
                to.push(0);
                put_text(text, to);
            }
            LabelValue::Number { value, unit } => {
                to.push(1 + u8::from(unit.is_some()));
                encode_varint(zigzag(*value), to);
                unit.iter().for_each(|unit| put_text(unit, to));
            }
        }
    }
    sample.values.iter().for_each(|value| encode_varint(zigzag(*value), to));
}
