//! Formats out and in, a million samples over fifty thousand stacks: `cargo bench -p profile-recorder-benches --bench formats [-- --quick] [FILE] [FORMAT...]`
//!
//! The stacks are made by chance, which is harder than any program's: few of their frames are shared. With a FILE, they are those of a recorded profile.
//! Samples have threads: a third of them shares stack and thread with another, and none is merged before it is written. With a FORMAT, these alone are written. In processor time of the one thread that works, beside what inferno and `go tool pprof -proto` take for the like in the same run.

extern crate profile as profile_recorder_profile;

use inferno::collapse::Collapse;
use inferno::collapse::perf::Folder;
use profile::decode::{self, Limits};
use profile::difference::{Comparison, Side};
use profile::{Format, Options, Profile, Sample, SampleType, Symbols, Thread, ThreadId};
use profile_recorder_benches::figures::{Rounds, is_quick, processor_time};
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[path = "../../profile/tests/support/mod.rs"]
#[allow(missing_docs, reason = "shared with the tests of the crate")]
mod support;

/// Milliseconds of processor time that the children took which were waited for.
fn children_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").expect("/proc is mounted");
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks: u64 = [13, 14].iter().filter_map(|field| fields.get(*field)?.parse::<u64>().ok()).sum();
    ticks * 10
}

fn measured<T>(rounds: usize, mut work: impl FnMut() -> T) -> (Rounds, T) {
    let mut all = Rounds::default();
    let mut last = None;
    for _ in 0..rounds {
        let start = processor_time();
        let result = std::hint::black_box(work());
        all.push((processor_time() - start) as f64);
        last = Some(result);
    }
    (all, last.expect("one round at least"))
}

/// Prints a line, and returns the best round in milliseconds.
fn line(name: &str, rounds: &Rounds, note: &str) -> f64 {
    println!("{name:<28} {:9.0} {:9.0}  {note}", rounds.best() / 1e6, rounds.median() / 1e6);
    rounds.best() / 1e6
}

/// How much of another's time ours is.
fn ratio(what: &str, ours: f64, theirs: f64) {
    println!("{:<28} {:9.2}", what, ours / theirs);
}

fn main() {
    let (samples, stacks, rounds) = if is_quick() { (20_000, 1000, 1) } else { (1_000_000, 50_000, 5) };
    let recorded = std::env::args().skip(1).find_map(|path| std::fs::read(path).ok());
    let of = recorded.map_or_else(|| support::large(samples, stacks), |bytes| spread(&bytes, samples, stacks));
    println!(
        "{samples} samples in {} stacks, {} nodes, {} frames\n",
        of.0.samples.iter().map(|sample| sample.stack).collect::<HashSet<_>>().len(),
        of.0.stacks.len(),
        of.0.stacks.frames().len()
    );
    println!("{:<28} {:>9} {:>9}", "processor time, ms", "best", "median");
    let chosen: Vec<Format> = std::env::args().filter_map(|name| Format::from_name(&name).ok()).collect();
    let written = written(&of, rounds, if chosen.is_empty() { &Format::ALL } else { &chosen });
    if chosen.is_empty() {
        read(&written.collapsed, rounds);
        perf_script(rounds);
    }
    operations(&of, rounds);
    if written.svg > 0.0 && !written.collapsed.is_empty() {
        flame_graph(&written, rounds);
    }
    if !written.pprof.is_empty() {
        go(&written, rounds);
    }
}

/// So many samples of twenty threads over the stacks of a recorded profile, so many at most.
fn spread(bytes: &[u8], samples: usize, stacks: usize) -> (Profile, Symbols) {
    let (mut profile, symbols) = decode::read(bytes, Limits::default()).expect("a profile");
    let mut own: Vec<_> = profile.samples.iter().map(|sample| sample.stack).collect();
    own.sort_unstable();
    own.dedup();
    // Some of each part of the program.
    let step = own.len().div_ceil(stacks).max(1);
    let own: Vec<_> = own.into_iter().step_by(step).collect();
    let mut random = support::Random(1);
    let thread = |i: u32| Thread { pid: 1, tid: i + 1, name: format!("worker {i}"), ..Thread::default() };
    profile.threads = (0..20).map(thread).collect();
    profile.sample_types = vec![SampleType::new("alloc_objects", "count"), SampleType::new("alloc_space", "bytes")];
    profile.default_sample_type = None;
    let sample = |i: usize| {
        let objects = 1 + random.below(9) as i64;
        Sample {
            stack: own[random.below(own.len() as u64) as usize],
            thread: Some(ThreadId((i % 20) as u32)),
            labels: profile::Labels::new(),
            values: profile::values![objects, objects * (16 + random.below(500) as i64)],
        }
    };
    profile.samples = (0..samples).map(sample).collect();
    (profile, symbols)
}

/// What is compared with others: files, and milliseconds.
#[derive(Default)]
struct Written {
    pprof: Vec<u8>,
    collapsed: Vec<u8>,
    pprof_both: f64,
    svg: f64,
}

/// Writes each format to a file, as `profrec` does, and reads back those that hold everything.
fn written(of: &(Profile, Symbols), rounds: usize, formats: &[Format]) -> Written {
    let mut written = Written::default();
    let directory = tempfile::tempdir().expect("a temporary directory");
    for format in formats.iter().copied() {
        // Two gigabytes of text.
        if format == Format::Perf && formats.len() > 1 && !is_quick() {
            continue;
        }
        let path = directory.path().join("profile");
        let write = || {
            let mut file = File::create(&path)?;
            format.encode(&of.0, &of.1, &Options::default(), &mut file)
        };
        let (times, _) = measured(rounds, || write().expect("a temporary file takes everything"));
        let bytes = std::fs::read(&path).expect("the file is there");
        let took = line(&format!("write {format}"), &times, &format!("{} KiB", bytes.len() >> 10));
        match format {
            Format::Pprof => {
                let (times, _) =
                    measured(rounds, || decode::pprof::decode(&bytes, Limits::default()).expect("our own"));
                written.pprof_both = took + line("read pprof", &times, "");
                written.pprof = bytes;
            }
            Format::Collapsed => written.collapsed = bytes,
            Format::Svg => written.svg = took,
            Format::Raw => {
                let (times, _) = measured(rounds, || decode::raw::decode(&bytes, Limits::default()).expect("our own"));
                line("read raw", &times, "");
            }
            _ => {}
        }
    }
    written
}

fn read(collapsed: &[u8], rounds: usize) {
    let types = SampleType::new("alloc_space", "bytes");
    let (times, _) =
        measured(rounds, || decode::collapsed::decode(collapsed, types.clone(), Limits::default()).expect("our own"));
    line("read collapsed", &times, "");
}

fn operations(of: &(Profile, Symbols), rounds: usize) {
    let mut other = of.0.clone();
    other.samples.iter_mut().step_by(3).for_each(|sample| sample.values.iter_mut().for_each(|value| *value += 1));
    let (times, _) = measured(rounds, || Profile::difference(&other, &of.0));
    line("difference", &times, "two snapshots of one process");
    let (times, _) = measured(rounds, || {
        let side = |profile| Side { profile, symbols: &of.1 };
        Comparison::new(side(&of.0), side(&other)).counts(1)
    });
    line("comparison", &times, "two builds, by the names of functions");
}

/// What inferno takes for a flame graph.
fn flame_graph(written: &Written, rounds: usize) {
    let text = std::str::from_utf8(&written.collapsed).expect("text");
    let (times, _) = measured(rounds, || {
        let mut options = inferno::flamegraph::Options::default();
        let mut svg = Vec::new();
        inferno::flamegraph::from_lines(&mut options, text.lines(), &mut svg).map(|()| svg).expect("a flame graph")
    });
    let theirs = line("inferno: flame graph", &times, "from our collapsed stacks; ours is `write svg`");
    ratio("  ours of theirs", written.svg, theirs);
}

/// Reading the text of `perf script`, beside inferno.
fn perf_script(rounds: usize) {
    let small = support::large(20_000, 5000);
    let perf = support::encoded(profile::encode::perf::encode, &small, &Options::default());
    let (times, _) = measured(rounds, || decode::perf::decode(&perf, Limits::default()).expect("our own"));
    let ours = line("read perf, 20,000 samples", &times, &format!("{} KiB", perf.len() >> 10));
    let (times, _) = measured(rounds, || {
        let mut folded = Vec::new();
        // One thread, as ours.
        let mut options = inferno::collapse::perf::Options::default();
        options.nthreads = 1;
        Folder::from(options).collapse(&perf[..], &mut folded).map(|()| folded).expect("perf's text")
    });
    let theirs = line("inferno: the same", &times, "without addresses, threads and times");
    ratio("  ours of theirs", ours, theirs);
}

/// What Go's pprof takes to read a file and write it.
fn go(written: &Written, rounds: usize) {
    let Some(go) = go_pprof() else { return println!("go tool pprof is not installed") };
    let directory = tempfile::tempdir().expect("a scratch directory");
    let file = directory.path().join("profile.pb.gz");
    std::fs::write(&file, &written.pprof).expect("the scratch directory is writable");
    let mut times = Rounds::default();
    for _ in 0..rounds.min(3) {
        let start = children_time();
        let output = format!("-output={}", directory.path().join("copy.pb.gz").display());
        let status =
            Command::new(&go).args(["-proto", "-symbolize=none", &output]).arg(&file).stderr(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "go tool pprof reads our file");
        times.push((children_time() - start) as f64 * 1e6);
    }
    let theirs = line("go tool pprof -proto", &times, "reads and writes; ours is `read pprof` and `write pprof`");
    ratio("  ours of theirs", written.pprof_both, theirs);
}

fn go_pprof() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    versions.map(|path| path.join("pkg/tool/linux_amd64/pprof")).find(|path| Path::new(path).exists())
}
