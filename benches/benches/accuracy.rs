//! How far profiles of CPU time are from the truth: `cargo bench -p profile-recorder-benches --bench accuracy [-- --quick]`
//!
//! Programs that are hard to sample say themselves how they spent their time (`tests/victims/time/work.rs`). They are recorded by `profrec record`, and the same workloads by pprof-rs in a program of
//! their own (`benches/accuracy`, which cargo builds here). With `--quick`, ours alone, at one rate.

use profile_recorder_benches::figures::is_quick;
use profile_recorder_benches::programs::build;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Workloads, with the number that they take.
const WORKLOADS: [(&str, &str, &str); 14] = [
    ("A", "split", "5"),
    ("A", "split", "50"),
    ("A", "split", "150"),
    ("B", "threads", "4000000"),
    ("C", "bursts", "0"),
    ("C", "bursts-often", "0"),
    ("C", "between-ticks", "0"),
    ("D", "short-lived", "0"),
    ("F", "calls", "0"),
    ("G", "slower", "0"),
    ("G", "slower", "10"),
    ("G", "slower", "20"),
    ("G", "slower", "40"),
    ("H", "crowd", "100000000"),
];

/// Nanoseconds by function or thread name; `-` is all.
type Nanos = BTreeMap<String, f64>;

/// What a workload says, and what was sampled.
struct Run {
    process: f64,
    functions: Nanos,
    sampled: Nanos,
}

fn main() {
    let quick = is_quick();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let ours = Ours {
        profrec: build(&root, &["-p", "profrec", "--bin", "profrec"], "profrec"),
        victim: build(&root, &["-p", "profile-recorder-tests", "--bin", "victim-spends"], "victim-spends"),
    };
    let peer = (!quick).then(|| build(&root.join("benches/accuracy"), &[], "profile-recorder-bench-accuracy"));
    println!(
        "Sum: per cent of the process's CPU time (the part of it that is [unsampled]). Shares: the most that a function's share differs, in points.\n"
    );
    println!("                             ours                            pprof-rs");
    println!("     workload             Hz     sum  unsampled  shares      sum  shares");
    let rates: &[u32] = if quick { &[99] } else { &[99, 1000] };
    for hz in rates {
        for (letter, name, number) in WORKLOADS {
            let run = ours.run(name, number, *hz);
            let unsampled = 100.0 * of(&run.sampled, "[unsampled]") / run.process;
            let theirs = peer.as_ref().map(|peer| with_pprof(peer, name, number, *hz));
            let theirs = theirs.map_or_else(String::new, |run| format!("{:7.1}% {}", sum(&run), shares(&run)));
            println!(
                "  {letter}  {name:13} {number:>9}  {hz:4}  {:6.2}%  {unsampled:7.2}%  {} {theirs}",
                sum(&run),
                shares(&run)
            );
        }
    }
}

fn of(nanos: &Nanos, name: &str) -> f64 {
    nanos.get(name).copied().unwrap_or(0.0)
}

fn sum(run: &Run) -> f64 {
    100.0 * of(&run.sampled, "-") / run.process
}

/// Largest difference of a function's share among those that the workload names; nothing if it names none.
fn shares(run: &Run) -> String {
    let whole: f64 = run.functions.values().sum();
    let sampled: f64 = run.functions.keys().map(|name| of(&run.sampled, name)).sum();
    let differences =
        run.functions.iter().map(|(name, nanos)| 100.0 * (nanos / whole - of(&run.sampled, name) / sampled));
    let most = differences.map(f64::abs).fold(f64::NAN, f64::max);
    if most.is_nan() { "      -".to_owned() } else { format!("{most:7.2}") }
}

struct Ours {
    profrec: PathBuf,
    victim: PathBuf,
}

impl Ours {
    fn run(&self, name: &str, number: &str, hz: u32) -> Run {
        let directory = tempfile::tempdir().expect("a directory");
        let profile = directory.path().join("p.folded");
        let mut command = Command::new(&self.profrec);
        command.args(["record", "--quiet", "--mode", "cpu", "--hz", &hz.to_string(), "-o"]).arg(&profile);
        command.arg("--").arg(&self.victim).args([name, number]);
        let mut run = said(&mut command);
        let folded = std::fs::read_to_string(&profile).expect("a profile");
        for line in folded.lines().filter(|line| !line.starts_with('#')) {
            let (stack, nanos) = line.rsplit_once(' ').expect("a stack and its value");
            let nanos: f64 = nanos.parse().expect("a number");
            let names: std::collections::BTreeSet<&str> =
                stack.split(';').map(|frame| frame.rsplit("::").next().unwrap_or(frame)).chain(["-"]).collect();
            for name in names {
                *run.sampled.entry(name.to_owned()).or_insert(0.0) += nanos;
            }
        }
        run
    }
}

fn with_pprof(program: &Path, name: &str, number: &str, hz: u32) -> Run {
    said(Command::new(program).args([name, number, &hz.to_string()]))
}

/// Runs a program that says what it did.
fn said(command: &mut Command) -> Run {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut run = Run { process: 0.0, functions: Nanos::new(), sampled: Nanos::new() };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((kind, (name, Ok(nanos)))) = line.split_once(' ').and_then(|(kind, rest)| {
            let (name, nanos) = rest.rsplit_once(' ')?;
            Some((kind, (name, nanos.parse::<f64>())))
        }) else {
            panic!("{command:?}: {line}")
        };
        match kind {
            "process" => run.process = nanos,
            "function" => drop(run.functions.insert(name.to_owned(), nanos)),
            "sampled" => drop(run.sampled.insert(name.to_owned(), nanos)),
            _ => {}
        }
    }
    run
}
