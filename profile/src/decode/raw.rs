//! The raw format, `.profrec`, as [`crate::encode::raw`] writes it.
//!
//! A file that was cut off yields what was written before, and a comment that says so. A chunk that is there in full and does not fit
//! its checksum is an error: that is no file that ends early, but one that was changed.

use super::{DecodeError, Limits};
use crate::raw::{
    CHUNK_HEAD, COMMENTS, END, EVENTS, FRAMES, HEAD, MAGIC, MAPPINGS, SAMPLES, STACKS, THREADS, VERSION, crc, unzigzag,
};
use crate::{
    AddressKind, Event, Frame, FrameId, Label, LabelValue, Mapping, MappingId, Profile, Sample, SampleType, StackId,
    Stacks, Svma, SymbolFrame, Symbols, Thread, ThreadId, Values,
};
use flate2::read::DeflateDecoder;
use prost::encoding::decode_varint;
use rustc_hash::FxHashSet;
use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;

/// Reads a file: what was measured, and the names it carries.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<(Profile, Symbols), DecodeError> {
    let corrupt = |what: &str| DecodeError::corrupt(what);
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| corrupt("does not begin as a raw profile does"))?;
    let (version, mut rest) = rest.split_first().ok_or_else(|| corrupt("ends before its version"))?;
    if *version != VERSION {
        return Err(DecodeError::corrupt(format!("is of version {version} of the raw format, known is {VERSION}")));
    }
    let mut reader = Reader::default();
    let mut left = limits.bytes;
    while !reader.is_whole {
        let Some((kind, checksum, payload, after)) = chunk(rest) else { break };
        rest = after;
        if crc(kind, payload) != checksum {
            return Err(DecodeError::corrupt(format!("chunk {} does not fit its checksum", reader.chunks)));
        }
        let mut content = Vec::new();
        let inflated = DeflateDecoder::new(payload).take(left as u64 + 1).read_to_end(&mut content);
        inflated.map_err(|error| DecodeError::corrupt(format!("chunk {} is damaged: {error}", reader.chunks)))?;
        left = left.checked_sub(content.len()).ok_or_else(|| DecodeError::too_large(limits))?;
        reader.read(kind, &content).map_err(|what| DecodeError::corrupt(format!("chunk {}: {what}", reader.chunks)))?;
        reader.chunks += 1;
    }
    if reader.chunks == 0 {
        return Err(corrupt("ends before its head"));
    }
    if !reader.is_whole {
        let count = reader.profile.samples.len();
        reader.profile.comments.push(format!("the file ends early: {count} samples were read"));
    }
    Ok((reader.profile, reader.symbols))
}

/// Kind, checksum and payload of the first chunk, and what comes after it; `None` if it is not there in full.
fn chunk(bytes: &[u8]) -> Option<(u8, u32, &[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(CHUNK_HEAD)?;
    let number = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let (payload, after) = rest.split_at_checked(number(1)? as usize)?;
    Some((*head.first()?, number(5)?, payload, after))
}

type Parsed<T> = Result<T, &'static str>;

#[derive(Default)]
struct Reader {
    profile: Profile,
    symbols: Symbols,
    chunks: usize,
    is_whole: bool,
    /// By their numbers in the file; equal ones have one id here, whatever the file says.
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
    texts: FxHashSet<Arc<str>>,
}

impl Reader {
    fn read(&mut self, kind: u8, content: &[u8]) -> Parsed<()> {
        let mut fields = Fields(content);
        if self.chunks == 0 && kind != HEAD {
            return Err("is not the head");
        }
        if self.stacks.is_empty() {
            self.stacks.push(Stacks::ROOT);
        }
        match kind {
            HEAD => self.head(&mut fields)?,
            COMMENTS => fields.each(|fields| {
                self.profile.comments.push(fields.text()?.to_owned());
                Ok(())
            })?,
            MAPPINGS => fields.each(|fields| self.mapping(fields))?,
            THREADS => fields.each(|fields| self.thread(fields))?,
            FRAMES => fields.each(|fields| self.frame(fields))?,
            STACKS => fields.each(|fields| self.stack(fields))?,
            SAMPLES => fields.each(|fields| self.sample(fields))?,
            EVENTS => {
                let mut before = 0;
                fields.each(|fields| self.event(fields, &mut before))?;
            }
            END => {
                let counts = [fields.number()?, fields.number()?];
                if counts != [self.profile.samples.len() as u64, self.profile.events.len() as u64] {
                    return Err("the file does not hold what its end says");
                }
                self.is_whole = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn head(&mut self, fields: &mut Fields<'_>) -> Parsed<()> {
        let types: Parsed<Vec<SampleType>> = (0..fields.count()?).map(|_| fields.sample_type()).collect();
        let types = types?;
        if self.chunks == 0 {
            self.profile.sample_types = types;
        } else if self.profile.sample_types != types {
            return Err("the sample types change");
        }
        let default = fields.optional_id(self.profile.sample_types.len())?;
        self.profile.default_sample_type = default.map(|column| column as usize);
        self.profile.period_type = if fields.flag()? { Some(fields.sample_type()?) } else { None };
        self.profile.period = fields.signed()?;
        self.profile.start_unix_ns = fields.signed()?;
        self.profile.duration_ns = fields.signed()?;
        Ok(())
    }

    fn mapping(&mut self, fields: &mut Fields<'_>) -> Parsed<()> {
        let mapping = Mapping {
            start: fields.number()?,
            end: fields.number()?,
            file_offset: fields.number()?,
            bias: fields.number()?,
            path: fields.text()?.to_owned(),
            build_id: fields.bytes()?.to_vec(),
        };
        self.profile.mappings.push(mapping);
        Ok(())
    }

    fn thread(&mut self, fields: &mut Fields<'_>) -> Parsed<()> {
        let thread = Thread {
            pid: fields.small()?,
            tid: fields.small()?,
            name: fields.text()?.to_owned(),
            process: fields.text()?.to_owned(),
            slot: fields.small()?,
        };
        self.profile.threads.push(thread);
        Ok(())
    }

    fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&text));
        text
    }

    fn frame(&mut self, fields: &mut Fields<'_>) -> Parsed<()> {
        let kind = match fields.byte()? {
            0 => {
                let name = Cow::Owned(fields.text()?.to_owned());
                self.frames.push(self.profile.stacks.frame_id(Frame::Named(name)));
                return Ok(());
            }
            1 => AddressKind::Instruction,
            2 => AddressKind::ReturnAddress,
            _ => return Err("a frame of an unknown kind"),
        };
        let mapping = fields.optional_id(self.profile.mappings.len())?.map(MappingId);
        let svma = Svma(fields.number()?);
        let mut functions = Vec::new();
        for _ in 0..fields.count()? {
            let name = fields.text()?;
            let name = self.shared(name);
            let mut optional = |fields: &mut Fields<'_>| {
                Ok::<_, &'static str>(if fields.flag()? { Some(self.shared(fields.text()?)) } else { None })
            };
            functions.push(SymbolFrame {
                name,
                system_name: optional(fields)?,
                file: optional(fields)?,
                line: fields.small()?,
                function_start: if fields.flag()? { Some(Svma(fields.number()?)) } else { None },
                inlined: fields.flag()?,
            });
        }
        self.symbols.insert((mapping, svma, kind), functions);
        self.frames.push(self.profile.stacks.frame_id(Frame::Address { mapping, svma, kind }));
        Ok(())
    }

    fn stack(&mut self, fields: &mut Fields<'_>) -> Parsed<()> {
        let parent = fields.stack(&self.stacks)?;
        let frame = usize::try_from(fields.number()?).ok().and_then(|frame| self.frames.get(frame));
        let stack = self.profile.stacks.push(parent, *frame.ok_or("a frame that does not exist")?);
        self.stacks.push(stack);
        Ok(())
    }

    fn sample(&mut self, fields: &mut Fields<'_>) -> Parsed<()> {
        let stack = fields.stack(&self.stacks)?;
        let thread = fields.optional_id(self.profile.threads.len())?.map(ThreadId);
        let mut labels = Vec::new();
        for _ in 0..fields.count()? {
            let key = Cow::Owned(fields.text()?.to_owned());
            let value = match fields.byte()? {
                0 => LabelValue::Text(fields.text()?.to_owned()),
                1 => LabelValue::Number { value: fields.signed()?, unit: None },
                2 => LabelValue::Number { value: fields.signed()?, unit: Some(fields.text()?.to_owned()) },
                _ => return Err("a label of an unknown kind"),
            };
            labels.push(Label { key, value });
        }
        let values: Parsed<Values> = self.profile.sample_types.iter().map(|_| fields.signed()).collect();
        self.profile.samples.push(Sample { stack, thread, labels: labels.into(), values: values? });
        Ok(())
    }

    fn event(&mut self, fields: &mut Fields<'_>, before: &mut i64) -> Parsed<()> {
        *before = before.wrapping_add(fields.signed()?);
        let thread = fields.small()?;
        if thread as usize >= self.profile.threads.len() {
            return Err("a thread that does not exist");
        }
        let stack = fields.stack(&self.stacks)?;
        let weight = fields.signed()?;
        self.profile.events.push(Event { unix_ns: *before, thread: ThreadId(thread), stack, weight });
        Ok(())
    }
}

/// The rest of a payload.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn each(&mut self, mut record: impl FnMut(&mut Self) -> Parsed<()>) -> Parsed<()> {
        while !self.0.is_empty() {
            record(self)?;
        }
        Ok(())
    }

    fn number(&mut self) -> Parsed<u64> {
        decode_varint(&mut self.0).map_err(|_| "ends within a number")
    }

    fn signed(&mut self) -> Parsed<i64> {
        self.number().map(unzigzag)
    }

    fn small(&mut self) -> Parsed<u32> {
        u32::try_from(self.number()?).map_err(|_| "a number beyond 32 bits")
    }

    /// A number of records that follow; each has a byte at least.
    fn count(&mut self) -> Parsed<usize> {
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= self.0.len());
        count.ok_or("more records than bytes")
    }

    fn byte(&mut self) -> Parsed<u8> {
        let (byte, rest) = self.0.split_first().ok_or("ends within a record")?;
        self.0 = rest;
        Ok(*byte)
    }

    fn flag(&mut self) -> Parsed<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("neither 0 nor 1"),
        }
    }

    fn bytes(&mut self) -> Parsed<&'a [u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| "ends within a text")?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or("ends within a text")?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Parsed<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| "a text that is not UTF-8")
    }

    fn sample_type(&mut self) -> Parsed<SampleType> {
        let mut text = || Ok(Cow::Owned(self.text()?.to_owned()));
        Ok(SampleType { kind: text()?, unit: text()? })
    }

    /// An id below `end`, or none.
    fn optional_id(&mut self, end: usize) -> Parsed<Option<u32>> {
        match self.number()?.checked_sub(1) {
            None => Ok(None),
            Some(id) if id < end as u64 => Ok(Some(u32::try_from(id).map_err(|_| "an id that does not exist")?)),
            Some(_) => Err("an id that does not exist"),
        }
    }

    fn stack(&mut self, stacks: &[StackId]) -> Parsed<StackId> {
        let stack = usize::try_from(self.number()?).ok().and_then(|stack| stacks.get(stack));
        stack.copied().ok_or("a stack that does not exist")
    }
}
