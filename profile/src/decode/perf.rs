//! The text that `perf script` prints, ours and that of other programs.
//!
//! ```text
//! worker 7 4711/4712 [003] 1700000000.123456:   10000000 cpu-clock:u:
//!             55d0c0a01234 parse_json+0x34 (/usr/bin/app)
//!             55d0c0a04321 main+0x21 (/usr/bin/app)
//! ```
//!
//! An entry begins with a line that is not indented: the thread's name, which may hold spaces; its number, perhaps with that of its process
//! before it; perhaps a processor in brackets, a time, a period; and the event, with a colon behind. Frames follow, the leaf first, and
//! an empty line. What else a line holds is not looked at. `#` begins a comment; ones of nothing but `=` are those around a header.
//!
//! The profile counts entries (`samples/count`), and has a column for each event with periods, in the unit that its name tells. An entry with a time
//! that can be one of the calendar is an event of the profile too. Addresses are those in the process, which is all that is known about them.

use super::{DecodeError, Limits};
use crate::{
    AddressKind, Event, Frame, Labels, Mapping, MappingId, Profile, Sample, SampleType, StackId, Stacks, Svma,
    SymbolFrame, Symbols, Thread, ThreadId,
};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// perf's own clock counts from the start of the machine; a time after September 2001 is one of the calendar.
const CALENDAR_NS: i64 = 1_000_000_000_000_000_000;

/// Reads the text: what was measured, and the names it carries.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<(Profile, Symbols), DecodeError> {
    if bytes.len() > limits.bytes {
        return Err(DecodeError::too_large(limits));
    }
    let mut reader = Reader::new();
    let mut entry: Option<Entry> = None;
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(line);
        let at = |what: &str| DecodeError::corrupt(format!("line {}: {what}", number + 1));
        let is_indented = line.starts_with([' ', '\t']);
        if let Some(comment) = line.strip_prefix('#') {
            // A line of `=` begins and ends perf's own comments.
            let comment = comment.trim();
            if !comment.bytes().all(|byte| byte == b'=') {
                reader.profile.comments.push(comment.to_owned());
            }
        } else if line.trim().is_empty() {
            entry.take().into_iter().for_each(|entry| reader.finish(entry));
        } else if is_indented && entry.is_some() {
            let frame = reader.frame(line.trim()).ok_or_else(|| at("neither a frame nor a source line"))?;
            entry.iter_mut().for_each(|entry| entry.frames.extend(frame.clone()));
        } else {
            entry.take().into_iter().for_each(|entry| reader.finish(entry));
            let head = Head::parse(line.trim()).ok_or_else(|| at("not the beginning of an entry"))?;
            entry = Some(reader.begin(&head));
        }
    }
    entry.into_iter().for_each(|entry| reader.finish(entry));
    reader.samples()
}

/// The first line of an entry.
#[derive(Debug, PartialEq, Eq)]
struct Head<'a> {
    comm: &'a str,
    pid: u32,
    tid: u32,
    unix_ns: Option<i64>,
    period: Option<i64>,
    event: &'a str,
}

impl<'a> Head<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        // Where each word begins and ends.
        let words: Vec<(usize, &str)> = words(line).collect();
        // The name can hold words of digits: the first that leads to a whole line is the thread.
        (1..words.len()).find_map(|i| {
            let (tid_at, word) = *words.get(i)?;
            let (pid, tid) = thread(word)?;
            let mut rest = words.get(i + 1..)?.iter().map(|(_, word)| *word).peekable();
            rest.next_if(|word| word.starts_with('[') && word.ends_with(']'));
            let unix_ns = rest.peek().and_then(|word| nanos(word.strip_suffix(':')?));
            unix_ns.is_some().then(|| rest.next());
            let period = rest.peek().and_then(|word| word.parse().ok()).filter(|period| *period >= 0);
            period.is_some().then(|| rest.next());
            let event = rest.next()?.strip_suffix(':')?;
            let comm = line.get(..tid_at)?.trim();
            (!event.is_empty()).then_some(Self { comm, pid, tid, unix_ns, period, event })
        })
    }
}

fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split_whitespace().map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word))
}

/// `4712` or `4711/4712`; perf prints -1 for what it does not know.
fn thread(word: &str) -> Option<(u32, u32)> {
    let number = |text: &str| if text == "-1" { Some(0) } else { text.parse().ok() };
    match word.split_once('/') {
        Some((pid, tid)) => Some((number(pid)?, number(tid)?)),
        None => Some((0, number(word)?)),
    }
}

/// Seconds with six or nine digits behind the point.
fn nanos(word: &str) -> Option<i64> {
    let (seconds, fraction) = word.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let scale = 10_i64.pow(9 - fraction.len() as u32);
    seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction.parse::<i64>().ok()? * scale)
}

/// An entry whose frames are being read.
struct Entry {
    thread: ThreadId,
    unix_ns: Option<i64>,
    period: Option<i64>,
    /// Index of the event's name.
    event: usize,
    /// Leaf first.
    frames: Vec<Frame>,
}

struct Reader {
    profile: Profile,
    symbols: Symbols,
    threads: FxHashMap<Thread, ThreadId>,
    mappings: FxHashMap<String, MappingId>,
    event_names: Vec<String>,
    /// Entries and the sum of their periods, by stack, thread and event.
    sums: FxHashMap<(StackId, ThreadId, usize), usize>,
    found: Vec<((StackId, ThreadId, usize), i64, i64)>,
    has_periods: bool,
    first_ns: Option<i64>,
    last_ns: i64,
}

impl Reader {
    fn new() -> Self {
        Self {
            profile: Profile::default(),
            symbols: Symbols::new(),
            threads: FxHashMap::default(),
            mappings: FxHashMap::default(),
            event_names: Vec::new(),
            sums: FxHashMap::default(),
            found: Vec::new(),
            has_periods: false,
            first_ns: None,
            last_ns: 0,
        }
    }

    fn begin(&mut self, head: &Head<'_>) -> Entry {
        let thread = Thread { pid: head.pid, tid: head.tid, name: head.comm.to_owned(), ..Thread::default() };
        let threads = &mut self.profile.threads;
        let thread = *self.threads.entry(thread).or_insert_with_key(|thread| {
            threads.push(thread.clone());
            ThreadId(threads.len() as u32 - 1)
        });
        // `cycles:u` is cycles in user space.
        let name = head.event.split(':').next().filter(|name| !name.is_empty()).unwrap_or(head.event);
        let known = self.event_names.iter().position(|known| known == name);
        let event = known.unwrap_or_else(|| {
            self.event_names.push(name.to_owned());
            self.event_names.len() - 1
        });
        Entry { thread, unix_ns: head.unix_ns, period: head.period, event, frames: Vec::new() }
    }

    /// The frame of a line; an inner `None` for a source line, which some options of perf print.
    fn frame(&mut self, line: &str) -> Option<Option<Frame>> {
        let (address, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let Ok(address) = u64::from_str_radix(address.trim_start_matches("0x"), 16) else {
            // `file.c:12`, below its frame.
            let is_source = line.rsplit_once(':').is_some_and(|(_, n)| n.bytes().all(|digit| digit.is_ascii_digit()));
            return is_source.then_some(None);
        };
        // A file that is no longer there keeps its path.
        let is_deleted = rest.trim().strip_suffix(" (deleted))").map(|rest| format!("{rest})"));
        let rest = is_deleted.as_deref().unwrap_or(rest.trim());
        let (symbol, module) = match rest.rsplit_once('(') {
            Some((symbol, module)) if module.ends_with(')') => (symbol.trim_end(), module.trim_end_matches(')')),
            _ => (rest, ""),
        };
        // A name can end in what looks like an offset only if there is one behind it.
        let (name, offset) = match symbol.rsplit_once("+0x") {
            Some((name, offset)) if !name.is_empty() => match u64::from_str_radix(offset, 16) {
                Ok(offset) => (name, Some(offset)),
                Err(_) => (symbol, None),
            },
            _ => (symbol, None),
        };
        let is_named = !name.is_empty() && name != "[unknown]";
        if is_named && (address == 0 || module == "inlined") {
            return Some(Some(Frame::Named(Cow::Owned(name.to_owned()))));
        }
        let mapping = match module {
            "" | "[unknown]" | "inlined" => None,
            path => Some(self.mapping(path)),
        };
        let frame = Frame::Address { mapping, svma: Svma(address), kind: AddressKind::Instruction };
        let function = SymbolFrame {
            function_start: offset.map(|offset| Svma(address.wrapping_sub(offset))),
            ..SymbolFrame::named(name)
        };
        match self.symbols.get(&frame) {
            // Another program or another moment can have other code there.
            [known] if *known.name != *name => return Some(Some(Frame::Named(Cow::Owned(name.to_owned())))),
            [] if is_named => {
                frame.address().into_iter().for_each(|key| self.symbols.insert(key, vec![function.clone()]))
            }
            _ => {}
        }
        Some(Some(frame))
    }

    fn mapping(&mut self, path: &str) -> MappingId {
        if let Some(known) = self.mappings.get(path) {
            return *known;
        }
        let id = MappingId(self.profile.mappings.len() as u32);
        let path = path.to_owned();
        self.profile.mappings.push(Mapping { path: path.replace("\\040", " "), ..Mapping::default() });
        self.mappings.insert(path, id);
        id
    }

    fn finish(&mut self, entry: Entry) {
        let stacks = &mut self.profile.stacks;
        let stack = entry.frames.into_iter().rev().fold(Stacks::ROOT, |stack, frame| {
            let frame = stacks.frame_id(frame);
            stacks.push(stack, frame)
        });
        self.has_periods |= entry.period.is_some();
        let period = entry.period.unwrap_or(1);
        if let Some(unix_ns) = entry.unix_ns {
            self.first_ns = Some(self.first_ns.map_or(unix_ns, |first| first.min(unix_ns)));
            self.last_ns = self.last_ns.max(unix_ns);
            if unix_ns >= CALENDAR_NS {
                self.profile.events.push(Event { unix_ns, thread: entry.thread, stack, weight: period });
            }
        }
        let key = (stack, entry.thread, entry.event);
        let index = *self.sums.entry(key).or_insert(self.found.len());
        match self.found.get_mut(index) {
            Some((_, entries, sum)) => (*entries, *sum) = (*entries + 1, sum.saturating_add(period)),
            None => self.found.push((key, 1, period)),
        }
    }

    fn samples(mut self) -> Result<(Profile, Symbols), DecodeError> {
        let mut types = vec![SampleType::new("samples", "count")];
        if self.has_periods {
            types.extend(self.event_names.iter().map(|name| sample_type(name)));
        }
        if types.len().saturating_mul(self.found.len()) > 1 << 28 {
            return Err(DecodeError::corrupt(format!("{} events are too many to have a column each", types.len())));
        }
        for ((stack, thread, event), entries, sum) in self.found {
            let mut values = crate::values![0; types.len()];
            if let Some(value) = values.get_mut(event + 1) {
                *value = sum;
            }
            values.iter_mut().take(1).for_each(|value| *value = entries);
            self.profile.samples.push(Sample { stack, thread: Some(thread), labels: Labels::new(), values });
        }
        // Events weigh in the last column, so there can be one alone.
        if types.len() > 2 {
            self.profile.events.clear();
        }
        self.profile.sample_types = types;
        let first = self.first_ns.unwrap_or(0);
        self.profile.start_unix_ns = if first >= CALENDAR_NS { first } else { 0 };
        self.profile.duration_ns = if self.first_ns.is_some() { self.last_ns.saturating_sub(first) } else { 0 };
        Ok((self.profile, self.symbols))
    }
}

/// What the periods of an event measure.
fn sample_type(event: &str) -> SampleType {
    match event {
        "cpu-clock" | "task-clock" => SampleType::new("cpu", "nanoseconds"),
        "wall-clock" => SampleType::new("wall", "nanoseconds"),
        "off-cpu" => SampleType::new("off_cpu", "nanoseconds"),
        // Another column counts the entries.
        "samples" => SampleType::new("periods", "count"),
        name => {
            let unit = if name.ends_with("_space") { "bytes" } else { "count" };
            SampleType { kind: Cow::Owned(name.to_owned()), unit: Cow::Borrowed(unit) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_of_the_first_line_is_understood() {
        let head = |comm, pid, tid, unix_ns, period, event| Head { comm, pid, tid, unix_ns, period, event };
        for (line, expected) in [
            (
                "app 4711/4712 12.5:  10 cpu-clock:",
                head("app", 4711, 4712, Some(12_500_000_000), Some(10), "cpu-clock"),
            ),
            ("a b 3 7 [002] 1.000002: cycles:u:", head("a b 3", 0, 7, Some(1_000_002_000), None, "cycles:u")),
            (
                "swapper     0 [000]  9.1:          1 cycles:",
                head("swapper", 0, 0, Some(9_100_000_000), Some(1), "cycles"),
            ),
            (":-1 -1/-1 samples:", head(":-1", 0, 0, None, None, "samples")),
            (
                "node 5 5 [001] 3.5: sched:sched_switch: prev_comm=x",
                head("node 5", 0, 5, Some(3_500_000_000), None, "sched:sched_switch"),
            ),
        ] {
            assert_eq!(Head::parse(line).unwrap(), expected, "{line}");
        }
        for line in ["", "app", "app 12", "12 34", "app x/y cycles:", "app 1 2 :"] {
            assert_eq!(Head::parse(line), None, "{line}");
        }
    }

    #[test]
    fn what_perf_prints_around_frames_is_understood() {
        let text = "# captured on : today\nperf 7 100.5: 5 cycles:\n\t  1f operator new(unsigned long)+0x1f (/lib/a (deleted))\n  a.c:12\n\
            \t 2f [unknown] (/x y/b.so)\n\t 2f main (inlined)\n\t 0 [lost: full] ([unknown])\n\nperf 7 101.5: 7 cycles:\n\t1f operator new(unsigned long)+0x1f (/lib/a (deleted))\n";
        let (profile, symbols) = decode(text.as_bytes(), Limits::default()).unwrap();
        assert_eq!((profile.total(0), profile.total(1), profile.duration_ns), (2, 12, 1_000_000_000));
        assert_eq!(profile.events, [], "a clock that counts from the start of the machine");
        let names: Vec<_> = profile
            .stacks
            .frames_leaf_first(profile.samples[0].stack)
            .flat_map(|frame| crate::names::of(frame, &profile, &symbols))
            .collect();
        assert_eq!(names, ["operator new(unsigned long)", "b.so+0x2f", "main", "[lost: full]"]);
    }

    #[test]
    fn an_error_names_its_line() {
        for (text, expected) in [
            ("\n\nnonsense\n", "line 3: not the beginning of an entry"),
            ("a 1 cycles:\n\tzz main (x)\n", "line 2: neither a frame nor a source line"),
            ("\tff main (x)\n", "line 1: not the beginning of an entry"),
        ] {
            assert_eq!(decode(text.as_bytes(), Limits::default()).unwrap_err().to_string(), expected);
        }
    }
}
