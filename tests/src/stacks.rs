//! Stacks of a recording, with the names and files that `profrec` found.

use crate::{output, run, text};
use serde_json::Value;
use std::path::Path;

/// One level of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// Name of the function, or what stands for it.
    pub name: String,
    /// File name of its object; empty for code that belongs to none, and for what is no code.
    pub object: String,
    /// Address in the object, or in the process if there is none: a return address, in the leaf of a tick the next instruction.
    pub address: u64,
    /// Whether the compiler inlined the function into the next one, whose address this is.
    pub inlined: bool,
}

impl Frame {
    /// Whether it is a call of its own: neither inlined, nor a word such as the name of the allocation function.
    pub fn is_call(&self) -> bool {
        self.address != 0 && !self.inlined
    }
}

/// One stack and what it stands for.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The frames, root first.
    pub frames: Vec<Frame>,
    /// Number of allocations, or of samples.
    pub count: i64,
    /// Bytes asked, or nanoseconds.
    pub weight: i64,
}

impl Stack {
    /// The reason why the stack does not reach its root; `None` if it does.
    pub fn truncated(&self) -> Option<&str> {
        self.frames.first()?.name.strip_prefix("[truncated: ")?.strip_suffix(']')
    }

    /// Whether a function of this name is in it.
    pub fn has(&self, name: &str) -> bool {
        self.frames.iter().any(|frame| frame.name == name)
    }

    /// The frames from the root-most function of this name on.
    pub fn from(&self, name: &str) -> Option<&[Frame]> {
        let at = self.frames.iter().position(|frame| frame.name == name)?;
        self.frames.get(at..)
    }

    /// The names, root first.
    pub fn names(&self) -> Vec<&str> {
        names(&self.frames)
    }
}

/// The names of frames, in their order.
pub fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.name.as_str()).collect()
}

/// The stacks with a function of this name.
pub fn with<'a>(stacks: &'a [Stack], name: &str) -> Vec<&'a Stack> {
    stacks.iter().filter(|stack| stack.has(name)).collect()
}

/// The stacks that end early.
pub fn truncated(stacks: &[Stack]) -> Vec<&Stack> {
    stacks.iter().filter(|stack| stack.truncated().is_some()).collect()
}

/// Sum of the counts.
pub fn count<'a>(stacks: impl IntoIterator<Item = &'a Stack>) -> i64 {
    stacks.into_iter().map(|stack| stack.count).sum()
}

/// Sum of the weights.
pub fn weight<'a>(stacks: impl IntoIterator<Item = &'a Stack>) -> i64 {
    stacks.into_iter().map(|stack| stack.weight).sum()
}

/// Some of the stacks and what they stand for, for messages.
pub fn some<'a>(stacks: impl IntoIterator<Item = &'a Stack>) -> String {
    let line = |stack: &Stack| format!("{} {} {}\n", stack.count, stack.weight, stack.names().join(";"));
    stacks.into_iter().take(10).map(|stack| line(stack).chars().take(2000).collect::<String>()).collect()
}

/// What came of a recording.
#[derive(Debug, Default)]
pub struct Recording {
    /// What the command printed.
    pub stdout: String,
    /// The stacks of allocations, if they were recorded.
    pub allocs: Vec<Stack>,
    /// The stacks of CPU time, if it was recorded.
    pub cpu: Vec<Stack>,
}

/// Records allocations of a command.
///
/// # Panics
/// If the command fails or says anything on standard error, or something was lost.
pub fn allocs(command: &[&str]) -> Recording {
    record("allocs", command)
}

/// Records CPU time of a command at 997 Hz.
///
/// # Panics
/// As [`allocs`].
pub fn cpu(command: &[&str]) -> Recording {
    record("cpu", command)
}

/// Records both at once.
///
/// # Panics
/// As [`allocs`].
pub fn both(command: &[&str]) -> Recording {
    record("allocs,cpu", command)
}

/// The ticks of a command with one thread that is recorded as by [`cpu`], in the order in which they came. Addresses are not told.
///
/// # Panics
/// As [`allocs`].
pub fn ticks(command: &[&str]) -> Vec<Stack> {
    let directory = crate::scratch();
    let script = directory.path().join("p.perf");
    record_to(&[&script], "cpu", command);
    in_order(&script)
}

/// One recording as [`cpu`] and as [`ticks`] have it.
///
/// # Panics
/// As [`allocs`].
pub fn cpu_and_ticks(command: &[&str]) -> (Recording, Vec<Stack>) {
    let directory = crate::scratch();
    let [single, script] = ["p.json", "p.perf"].map(|name| directory.path().join(name));
    let stdout = record_to(&[&single, &script], "cpu", command);
    (Recording { stdout, allocs: Vec::new(), cpu: read(&single, "samples") }, in_order(&script))
}

/// The ticks of `perf script`.
fn in_order(script: &Path) -> Vec<Stack> {
    let script = std::fs::read_to_string(script).expect("the profile");
    assert!(!script.contains("lost: "), "{script}");
    let samples = script.split("\n\n").map(|sample| sample.lines().filter(|line| !line.starts_with('#')));
    let samples = samples.filter_map(|mut sample| Some(tick(sample.next()?, sample)));
    // What belongs to no tick, such as the time after the last one, stands behind them with the time of the beginning.
    let mut last = 0.0;
    let is_later = |(time, _): &(f64, Stack)| *time >= std::mem::replace(&mut last, *time);
    samples.take_while(is_later).map(|(_, tick)| tick).collect()
}

/// Ticks in code that was just mapped, before the first that `is_whole`, and those from then on, none of which may end early: a handler cannot read the list of mappings, and the recorder's thread, which does, waits
/// for a processor before that.
///
/// # Panics
/// If none is whole.
pub fn until_known(ticks: &[Stack], is_whole: impl Fn(&Stack) -> bool) -> (&[Stack], &[Stack]) {
    ticks.split_at(ticks.iter().position(is_whole).expect("a complete tick"))
}

/// A sample of `perf script` and its time: "command pid/tid time: weight event:", and below it "address name+offset (object)", leaf first.
fn tick<'a>(header: &str, frames: impl Iterator<Item = &'a str>) -> (f64, Stack) {
    let (before, after) = header.split_once(": ").unwrap_or_else(|| panic!("no header: {header}"));
    let time = before.rsplit(' ').next().and_then(|time| time.parse().ok()).expect("a time");
    let weight = after.split_whitespace().next().and_then(|weight| weight.parse().ok()).expect("a weight");
    let frame = |line: &str| {
        let (_, symbol) = line.trim_start().split_once(' ').unwrap_or_else(|| panic!("no frame: {line}"));
        let (name, object) = symbol.rsplit_once(" (").unwrap_or_else(|| panic!("no object: {line}"));
        let name = name.rsplit_once("+0x").map_or(name, |(name, _)| name);
        let object = object.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
        Frame { name: name.to_owned(), object: object.to_owned(), address: 0, inlined: false }
    };
    let mut frames: Vec<Frame> = frames.map(frame).collect();
    frames.reverse();
    (time, Stack { frames, count: 1, weight })
}

fn record(modes: &str, command: &[&str]) -> Recording {
    let directory = crate::scratch();
    let single = directory.path().join("p.json");
    let stdout = record_to(&[&single], modes, command);
    let of = |mode: &str, column: &str| if modes.contains(mode) { read(&single, column) } else { Vec::new() };
    Recording { stdout, allocs: of("allocs", "alloc_objects"), cpu: of("cpu", "samples") }
}

/// What the command printed.
fn record_to(profiles: &[&Path], modes: &str, command: &[&str]) -> String {
    let mut arguments = vec!["record", "--quiet", "--mode", modes];
    if modes.contains("cpu") {
        arguments.extend(["--hz", "997"]);
    }
    arguments.extend(profiles.iter().flat_map(|profile| ["-o", profile.to_str().expect("a path in UTF-8")]));
    arguments.push("--");
    arguments.extend(command);
    let recorded = output(&mut run(&arguments));
    let (stdout, stderr) = (text(&recorded.stdout), text(&recorded.stderr));
    assert!(recorded.status.success() && stderr.is_empty(), "{command:?}: {}\n{stdout}{stderr}", recorded.status);
    stdout
}

/// The stacks of a profile in JSON that have something in this column or the next.
fn read(profile: &Path, column: &str) -> Vec<Stack> {
    let bytes = std::fs::read(profile).expect("the profile");
    let json: Value = serde_json::from_slice(&bytes).expect("JSON");
    let lost = json["comments"].as_array().expect("comments");
    assert!(lost.iter().all(|comment| !comment.as_str().unwrap_or("").contains("lost: ")), "{lost:?}");
    let kinds = json["sample_types"].as_array().expect("sample types");
    let column = kinds.iter().position(|kind| kind["kind"] == column).expect("the column");
    let frames: Vec<Frame> = json["frames"].as_array().expect("frames").iter().map(|f| frame(f, &json)).collect();
    let index = |value: &Value| usize::try_from(value.as_u64().expect("an index")).expect("an index");
    let stack = |sample: &Value| Stack {
        frames: sample["stack"].as_array().expect("a stack").iter().rev().map(|at| frames[index(at)].clone()).collect(),
        count: sample["values"][column].as_i64().expect("a count"),
        weight: sample["values"][column + 1].as_i64().expect("a weight"),
    };
    let stacks = json["samples"].as_array().expect("samples").iter().map(stack);
    stacks.filter(|stack| (stack.count, stack.weight) != (0, 0)).collect()
}

fn frame(frame: &Value, json: &Value) -> Frame {
    let path = json["mappings"][frame["mapping"].as_u64().map_or(usize::MAX, |at| at as usize)]["path"].as_str();
    let address = frame["address"].as_str().and_then(|address| address.strip_prefix("0x"));
    Frame {
        name: frame["name"].as_str().expect("a name").to_owned(),
        object: path.and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned(),
        address: address.map_or(0, |address| u64::from_str_radix(address, 16).expect("hexadecimal digits")),
        inlined: frame["inlined"].as_bool().unwrap_or(false),
    }
}
