//! The files of heaptrack (`heaptrack.PROGRAM.PID.zst` or `.gz`): the text that heaptrack_interpret writes, in versions 1 to 3 of its format.
//!
//! A line is a letter and hexadecimal numbers: `s` a text, `i` an address with its module and functions, `t` a stack as address and stack below, `a` a
//! size at a stack, `+` and `-` an allocation and a free of such a kind. Everything is numbered by the order of its lines, texts, addresses and stacks from 1.
//!
//! Allocations and their bytes are `alloc_objects` and `alloc_space`, what was never freed `inuse_objects` and `inuse_space`, and `temporary_objects` are
//! those whose free is the next event but frees of nothing known, as heaptrack counts them. The peak, suppressions, the times of single allocations and
//! the resident size are not read. Addresses are those in the process, which is all that is known about them. What `heaptrack --raw` leaves has no
//! functions yet and is refused.

use super::{DecodeError, Limits};
use crate::{
    AddressKind, Frame, FrameId, Labels, Mapping, MappingId, Profile, Sample, SampleType, StackId, Stacks, Svma,
    SymbolFrame, Symbols,
};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::sync::Arc;

/// The newest version of the format that is known; version 0 names blocks by their addresses, and is older than 2015.
const NEWEST: u64 = 3;
/// From this version on, a text says how long it is.
const SIZED_TEXTS: u64 = 3;

const COLUMNS: usize = 5;
const TYPES: [SampleType; COLUMNS] = [
    SampleType::new("alloc_objects", "count"),
    SampleType::new("alloc_space", "bytes"),
    SampleType::new("inuse_objects", "count"),
    SampleType::new("inuse_space", "bytes"),
    SampleType::new("temporary_objects", "count"),
];

/// Whether bytes begin as such a file does.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.strip_prefix(b"v ").is_some_and(|rest| {
        let mut numbers = Numbers(rest);
        numbers.next().is_some() && numbers.next().is_some() && numbers.0.is_empty()
    })
}

/// Reads the file: what was measured, and the names it carries.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<(Profile, Symbols), DecodeError> {
    if bytes.len() > limits.bytes {
        return Err(DecodeError::too_large(limits));
    }
    let mut reader = Reader::new(limits);
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        reader.line(line).map_err(|trouble| match trouble {
            Trouble::Corrupt(what) => DecodeError::corrupt(format!("line {}: {what}", number + 1)),
            Trouble::TooLarge => DecodeError::too_large(limits),
        })?;
    }
    if reader.version == 0 {
        return Err(DecodeError::corrupt("no line of heaptrack's version"));
    }
    Ok((reader.profile, reader.symbols))
}

/// Why a line was not taken.
enum Trouble {
    Corrupt(Cow<'static, str>),
    TooLarge,
}

fn corrupt<T>(what: impl Into<Cow<'static, str>>) -> Result<T, Trouble> {
    Err(Trouble::Corrupt(what.into()))
}

/// The hexadecimal numbers of a line, one after the other.
struct Numbers<'a>(&'a [u8]);

impl Iterator for Numbers<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let length = self.0.iter().position(|byte| *byte == b' ').unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at_checked(length)?;
        if digits.is_empty() || digits.len() > 16 {
            return None;
        }
        let number = digits
            .iter()
            .try_fold(0_u64, |number, digit| Some(number << 4 | u64::from(char::from(*digit).to_digit(16)?)))?;
        self.0 = rest.strip_prefix(b" ").unwrap_or(rest);
        Some(number)
    }
}

/// A size at a stack, which allocations and frees refer to.
struct Kind {
    size: i64,
    /// Index of the sample.
    sample: usize,
}

struct Reader {
    profile: Profile,
    symbols: Symbols,
    /// Bytes that may still be taken on: a short line can stand for many frames.
    left: usize,
    version: u64,
    texts: Vec<Arc<str>>,
    mappings: FxHashMap<u64, MappingId>,
    /// Frames of each address, root-most first.
    addresses: Vec<Vec<FrameId>>,
    traces: Vec<StackId>,
    kinds: Vec<Kind>,
    samples: FxHashMap<StackId, usize>,
    /// What the last event allocated.
    last: Option<u64>,
}

impl Reader {
    fn new(limits: Limits) -> Self {
        Self {
            profile: Profile::new(TYPES.to_vec()),
            symbols: Symbols::new(),
            left: limits.bytes,
            version: 0,
            texts: Vec::new(),
            mappings: FxHashMap::default(),
            addresses: Vec::new(),
            traces: Vec::new(),
            kinds: Vec::new(),
            samples: FxHashMap::default(),
            last: None,
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Trouble> {
        let Some((letter, rest)) = line.split_first() else { return Ok(()) };
        let rest = rest.strip_prefix(b" ").unwrap_or(rest);
        if self.version == 0 && *letter != b'v' && *letter != b'#' {
            return corrupt("before the line of heaptrack's version");
        }
        match letter {
            b'v' => self.version(Numbers(rest)),
            b's' => self.text(rest),
            b'i' => self.address(Numbers(rest)),
            b't' => self.trace(Numbers(rest)),
            b'a' => self.kind(Numbers(rest)),
            b'+' => self.allocated(Numbers(rest)),
            b'-' => self.freed(Numbers(rest)),
            b'c' => self.time(Numbers(rest)),
            b'X' => {
                self.profile.comments.push(String::from_utf8_lossy(rest).into_owned());
                Ok(())
            }
            // Comments, the machine's pages, resident sizes, that it was attached later, suppressions.
            b'#' | b'I' | b'R' | b'A' | b'S' => Ok(()),
            b'x' | b'm' => corrupt(
                "a raw file without functions: heaptrack --analyze, or heaptrack_interpret, makes one with functions of it",
            ),
            _ => corrupt("not of heaptrack's format"),
        }
    }

    fn version(&mut self, mut numbers: Numbers<'_>) -> Result<(), Trouble> {
        match (numbers.next(), numbers.next()) {
            (Some(_), Some(version @ 1..=NEWEST)) => {
                self.version = version;
                Ok(())
            }
            (Some(_), Some(version)) => corrupt(format!("version {version} of the format, known are 1 to {NEWEST}")),
            _ => corrupt("no version"),
        }
    }

    fn text(&mut self, rest: &[u8]) -> Result<(), Trouble> {
        let text = if self.version < SIZED_TEXTS {
            Some(rest)
        } else {
            let mut numbers = Numbers(rest);
            let length = numbers.next().and_then(|length| usize::try_from(length).ok());
            // A text is never longer than its line says: a name with a line break would be two lines.
            length.filter(|length| *length == numbers.0.len()).map(|_| numbers.0)
        };
        let Some(text) = text else { return corrupt("a text of another length than it says") };
        self.texts.push(String::from_utf8_lossy(text).into());
        Ok(())
    }

    /// The text of that number; 0 stands for none.
    fn text_at(&self, index: u64) -> Result<Option<Arc<str>>, Trouble> {
        Ok(at(&self.texts, index, "text")?.cloned())
    }

    /// `i ADDRESS MODULE [FUNCTION FILE LINE]...`, the innermost inlined function first.
    fn address(&mut self, mut numbers: Numbers<'_>) -> Result<(), Trouble> {
        let (Some(address), Some(module)) = (numbers.next(), numbers.next()) else { return corrupt("no address") };
        let mapping = self.mapping(module)?;
        let mut functions = Vec::new();
        while let Some(function) = numbers.next() {
            // Of a function that has debug information, the file and the line are there.
            let (file, line) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            let (name, file) = (self.text_at(function)?, self.text_at(file)?);
            let Some(name) = name else { continue };
            let line = u32::try_from(line).unwrap_or(0);
            functions.push(SymbolFrame { file, line, ..SymbolFrame::named(name) });
        }
        if !numbers.0.is_empty() {
            return corrupt("not a number");
        }
        let outermost = functions.len().saturating_sub(1);
        functions.iter_mut().enumerate().for_each(|(i, function)| function.inlined = i < outermost);
        let frames =
            self.frames(Frame::Address { mapping, svma: Svma(address), kind: AddressKind::Instruction }, functions);
        self.addresses.push(frames);
        Ok(())
    }

    fn frames(&mut self, frame: Frame, functions: Vec<SymbolFrame>) -> Vec<FrameId> {
        let stacks = &mut self.profile.stacks;
        let known = self.symbols.get(&frame);
        if known.is_empty() || known == functions {
            frame.address().into_iter().for_each(|key| self.symbols.insert(key, functions.clone()));
            return vec![stacks.frame_id(frame)];
        }
        // Another file lay there before.
        let named = functions.iter().rev().map(|function| Frame::Named(Cow::Owned(function.name.to_string())));
        named.map(|frame| stacks.frame_id(frame)).collect()
    }

    fn mapping(&mut self, module: u64) -> Result<Option<MappingId>, Trouble> {
        if let Some(known) = self.mappings.get(&module) {
            return Ok(Some(*known));
        }
        let Some(path) = self.text_at(module)? else { return Ok(None) };
        let mappings = &mut self.profile.mappings;
        let id = MappingId(mappings.len() as u32);
        self.left = self.left.checked_sub(path.len()).ok_or(Trouble::TooLarge)?;
        mappings.push(Mapping { path: path.to_string(), ..Mapping::default() });
        self.mappings.insert(module, id);
        Ok(Some(id))
    }

    /// `t ADDRESS PARENT`, the parent 0 at the root.
    fn trace(&mut self, mut numbers: Numbers<'_>) -> Result<(), Trouble> {
        let (Some(address), Some(parent)) = (numbers.next(), numbers.next()) else { return corrupt("no stack") };
        let parent = at(&self.traces, parent, "stack")?.copied().unwrap_or(Stacks::ROOT);
        let frames = at(&self.addresses, address, "address")?.map_or(&[][..], Vec::as_slice);
        self.left = self.left.checked_sub(size_of_val(frames)).ok_or(Trouble::TooLarge)?;
        let stacks = &mut self.profile.stacks;
        self.traces.push(frames.iter().fold(parent, |stack, frame| stacks.push(stack, *frame)));
        Ok(())
    }

    /// `a SIZE STACK`.
    fn kind(&mut self, mut numbers: Numbers<'_>) -> Result<(), Trouble> {
        let (Some(size), Some(trace)) = (numbers.next(), numbers.next()) else { return corrupt("no size and stack") };
        let Ok(size) = i64::try_from(size) else { return corrupt("a size of more than 2^63 bytes") };
        let stack = at(&self.traces, trace, "stack")?.copied().unwrap_or(Stacks::ROOT);
        let samples = &mut self.profile.samples;
        let sample = *self.samples.entry(stack).or_insert_with(|| {
            samples.push(Sample { stack, thread: None, labels: Labels::new(), values: crate::values![0; COLUMNS] });
            samples.len() - 1
        });
        self.kinds.push(Kind { size, sample });
        Ok(())
    }

    fn allocated(&mut self, mut numbers: Numbers<'_>) -> Result<(), Trouble> {
        let kind = self.count(numbers.next(), |size| [1, size, 1, size, 0])?;
        self.last = Some(kind);
        Ok(())
    }

    fn freed(&mut self, mut numbers: Numbers<'_>) -> Result<(), Trouble> {
        let kind = numbers.next();
        let is_temporary = kind.is_some() && self.last.take() == kind;
        self.count(kind, |size| [0, 0, -1, -size, i64::from(is_temporary)])?;
        Ok(())
    }

    /// Adds to the sample of a kind, and returns the kind.
    fn count(&mut self, kind: Option<u64>, values: impl Fn(i64) -> [i64; COLUMNS]) -> Result<u64, Trouble> {
        let Some(number) = kind else { return corrupt("not a number") };
        let kind = usize::try_from(number).ok().and_then(|index| self.kinds.get(index));
        let Some(Kind { size, sample }) = kind else { return corrupt(format!("no allocation {number:x}")) };
        if let Some(sample) = self.profile.samples.get_mut(*sample) {
            sample.values.iter_mut().zip(values(*size)).for_each(|(sum, value)| *sum = sum.saturating_add(value));
        }
        Ok(number)
    }

    /// Milliseconds since the beginning.
    fn time(&mut self, mut numbers: Numbers<'_>) -> Result<(), Trouble> {
        let millis = numbers.next().and_then(|millis| i64::try_from(millis).ok()?.checked_mul(1_000_000));
        let Some(nanos) = millis else { return corrupt("no time") };
        self.profile.duration_ns = self.profile.duration_ns.max(nanos);
        Ok(())
    }
}

/// The item of that number, counted from 1; `None` for 0.
fn at<'a, T>(all: &'a [T], number: u64, what: &str) -> Result<Option<&'a T>, Trouble> {
    let Some(index) = number.checked_sub(1) else { return Ok(None) };
    match usize::try_from(index).ok().and_then(|index| all.get(index)) {
        Some(item) => Ok(Some(item)),
        None => corrupt(format!("no {what} {number:x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::{Leaf, functions};

    const FILE: &str = "v 10400 3\nX ./a b\nI 1000 10\ns 4 main\ns 3 f g\ns 6 /bin/a\ns 3 a.c\ni 10 3 1 4 c\ni 20 3 2 4 7 1 4 8\nt 1 0\nt 2 1\n\
        a 10 1\na 3 2\n+ 0\n+ 1\n- 1\n+ 1\nc 5\n+ 0\n- 1\n- 0\nR 5\n# strings: 4\n";

    #[test]
    fn allocations_and_frees_are_added_up_by_stack() {
        let (profile, symbols) = decode(FILE.as_bytes(), Limits::default()).unwrap();
        assert_eq!((0..5).map(|column| profile.total(column)).collect::<Vec<_>>(), [4, 38, 1, 16, 1]);
        let rows = functions(&profile, &symbols, 1, Leaf::Recorded);
        let rows: Vec<_> = rows.iter().map(|f| (f.name.as_str(), f.self_value, f.total)).collect();
        assert_eq!(rows, [("main", 32, 38), ("f g", 6, 6)]);
        let inner = symbols.get(profile.stacks.frame(profile.samples[1].stack).unwrap());
        let inner: Vec<_> = inner.iter().map(|s| (&*s.name, s.file.as_deref(), s.line, s.inlined)).collect();
        assert_eq!(inner, [("f g", Some("a.c"), 7, true), ("main", Some("a.c"), 8, false)]);
        assert_eq!((profile.comments, profile.duration_ns), (vec!["./a b".to_owned()], 5_000_000));
        assert_eq!(profile.mappings[0].path, "/bin/a");
    }

    #[test]
    fn texts_of_older_versions_reach_to_the_end_of_their_line() {
        let file =
            FILE.replace("v 10400 3", "v 10300 2").replace("s 4 ", "s ").replace("s 3 ", "s ").replace("s 6 ", "s ");
        assert_eq!(decode(file.as_bytes(), Limits::default()), decode(FILE.as_bytes(), Limits::default()));
    }

    #[test]
    fn an_error_names_its_line() {
        for (file, expected) in [
            ("", "no line of heaptrack's version"),
            ("s 1 a\n", "line 1: before the line of heaptrack's version"),
            ("v 10400 4\n", "line 1: version 4 of the format, known are 1 to 3"),
            ("v 10400 0\n", "line 1: version 0 of the format, known are 1 to 3"),
            (
                "v 10400 3\nx /bin/a\n",
                "line 2: a raw file without functions: heaptrack --analyze, or heaptrack_interpret, makes one with functions of it",
            ),
            ("v 10400 3\ns 5 main\n", "line 2: a text of another length than it says"),
            ("v 10400 3\nt 1 0\n", "line 2: no address 1"),
            ("v 10400 3\ni 10 0\nt 1 2\n", "line 3: no stack 2"),
            ("v 10400 3\na 10 0\n+ 1\n", "line 3: no allocation 1"),
            ("v 10400 3\n- zz\n", "line 2: not a number"),
            ("v 10400 3\na ffffffffffffffff 0\n", "line 2: a size of more than 2^63 bytes"),
            ("v 10400 3\ni 10 0 g\n", "line 2: not a number"),
        ] {
            assert_eq!(decode(file.as_bytes(), Limits::default()).unwrap_err().to_string(), expected, "{file:?}");
        }
    }
}
