//! The text that `perf script` prints.
//!
//! ```text
//! worker 4711/4712 1700000000.123456:   10000000 cpu-clock:
//!             55d0c0a01234 parse_json+0x34 (/usr/bin/app)
//!             55d0c0a04321 main+0x21 (/usr/bin/app)
//! ```
//!
//! The number before the event's name is the period: what the entry stands for, in the unit of the sample type. `perf report`,
//! inferno and `stackcollapse-perf.pl` add periods up. speedscope and Firefox Profiler count entries instead, each as one sample: so
//! there are as many entries as samples were taken, as long as the profile counts samples and they are not too many. Allocations have
//! one entry a sample, and only readers that add periods up show their true weights.
//!
//! Entries have the time of their event where the profile holds events. Those without one begin with the profile, each thread's
//! directly one after the other.
//!
//! Negative values, which a difference can have, cannot be expressed: they are left out, and a comment says how much that was.
//!
//! A frame without a symbol is `[unknown]` with its address and file, which is how readers know it. Frames that never had an address
//! have the address 0. Inlined functions have lines of their own, with `(inlined)` in place of the file.

use super::{one_line, timeline};
use crate::{Frame, FrameId, Options, Profile, SampleType, StackId, Symbols, Thread};
use rustc_hash::FxHashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// More entries than this are never made of repeated samples.
const MAX_REPEATED: i64 = 2_000_000;

/// What `perf script --header` begins and ends its comments with. Firefox Profiler knows by it what begins with a comment.
const HEADER: &str = "# ========";

/// Writes the profile.
pub fn encode(profile: &Profile, symbols: &Symbols, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let column = options.column(profile)?;
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    let event = profile.sample_types.get(column).map_or("samples".into(), event_name);
    let mut comments: Vec<_> = profile.comments.iter().map(|comment| one_line(comment)).collect();
    let negative: i128 =
        profile.samples.iter().filter_map(|s| s.values.get(column)).map(|v| i128::from((*v).min(0))).sum();
    if negative != 0 {
        comments.push(format!("negative values of {negative} {event} are left out").into());
    }
    if !comments.is_empty() {
        writeln!(out, "{HEADER}")?;
        comments.iter().try_for_each(|comment| writeln!(out, "# {comment}"))?;
        writeln!(out, "{HEADER}\n#")?;
    }
    let mut stacks = StackTexts { profile, symbols, frames: FxHashMap::default(), stacks: FxHashMap::default() };
    let comms: Vec<String> = profile.threads.iter().map(comm).collect();
    timeline::entries(profile, column, MAX_REPEATED, |entry| {
        // An entry stands for what was measured; a count alone says nothing in it.
        if entry.value <= 0 {
            return Ok(());
        }
        match entry.thread.and_then(|id| Some((profile.thread(id)?, &comms[id.index()]))) {
            Some((Thread { pid, tid, .. }, comm)) => write!(out, "{comm} {pid}/{tid}")?,
            None => write!(out, "[unknown] 0/0")?,
        }
        let micros = entry.unix_ns.max(0) / 1000;
        writeln!(out, " {}.{:06}: {:>10} {event}: ", micros / 1_000_000, micros % 1_000_000, entry.value)?;
        out.write_all(stacks.of(entry.stack).as_bytes())?;
        out.write_all(b"\n")
    })?;
    out.flush()
}

/// The name of the events that make up a column.
fn event_name(sample_type: &SampleType) -> String {
    match (&*sample_type.kind, &*sample_type.unit) {
        ("cpu", "nanoseconds") => "cpu-clock".into(),
        ("wall", "nanoseconds") => "wall-clock".into(),
        ("off_cpu", "nanoseconds") => "off-cpu".into(),
        (kind, _) => kind.replace(|c: char| c.is_whitespace() || c.is_control() || c == ':', "_"),
    }
}

/// A thread's name such that readers find where it ends: they take the first word of digits for the thread's number.
fn comm(thread: &Thread) -> String {
    let name = one_line(thread.name.trim());
    let numeric = |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_digit() || c == b'/');
    match &*name {
        "" => ":-1".into(),
        name if numeric(name) => format!(":{name}"),
        name if name.starts_with('#') || name.split(' ').any(numeric) => name.replace([' ', '#'], "_"),
        name => name.to_owned(),
    }
}

/// The lines of each stack, put together once.
struct StackTexts<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    frames: FxHashMap<FrameId, String>,
    stacks: FxHashMap<StackId, String>,
}

impl StackTexts<'_> {
    fn of(&mut self, stack: StackId) -> &str {
        let (profile, symbols, frames) = (self.profile, self.symbols, &mut self.frames);
        self.stacks.entry(stack).or_insert_with(|| {
            let mut text = String::new();
            for id in profile.stacks.frame_ids_leaf_first(stack) {
                let frame = &profile.stacks.frames()[id.index()];
                text.push_str(frames.entry(id).or_insert_with(|| lines(frame, profile, symbols)));
            }
            if text.is_empty() {
                text = format!("\t{:>16x} {} ([unknown])\n", 0, crate::named::NO_STACK);
            }
            text
        })
    }
}

fn lines(frame: &Frame, profile: &Profile, symbols: &Symbols) -> String {
    let (mapping, svma) = match frame {
        Frame::Named(name) => {
            return format!("\t{:>16x} {} ([unknown])\n", 0, one_line(name.trim()));
        }
        Frame::Address { mapping, svma, .. } => (mapping.and_then(|id| profile.mapping(id)), *svma),
    };
    let avma = mapping.map_or(svma.0, |m| m.to_avma(svma));
    // Readers take what follows the last space for the file.
    let path = mapping.map_or("[unknown]".into(), |m| one_line(&m.path).replace(' ', "\\040"));
    let functions = symbols.get(frame);
    let mut text = String::new();
    for function in functions {
        _ = write!(text, "\t{avma:>16x} {}", one_line(function.name.trim()));
        match function.function_start {
            _ if function.inlined => text.push_str(" (inlined)\n"),
            Some(start) => _ = writeln!(text, "+{:#x} ({path})", svma.0.wrapping_sub(start.0)),
            None => _ = writeln!(text, " ({path})"),
        }
    }
    if functions.is_empty() {
        _ = writeln!(text, "\t{avma:>16x} [unknown] ({path})");
    }
    text
}
