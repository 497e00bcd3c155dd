//! How far profiles of CPU time are from the truth: `cargo bench -p profile-recorder-benches --bench accuracy [-- --quick] [WORKLOAD...]`
//!
//! Programs that are hard to sample say themselves how they spent their time (`tests/victims/time/work.rs`). They are recorded by `profrec record`, and the same workloads by pprof-rs in a program of
//! their own (`benches/accuracy`, which cargo builds here). With `--quick`, ours alone, at one rate; with the name of a WORKLOAD, these alone.

use profile_recorder_benches::figures::is_quick;
use profile_recorder_benches::programs::build;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Workloads, with the number that they take.
const WORKLOADS: [(&str, &str, &str); 15] = [
    ("A", "split", "5"),
    ("A", "split", "50"),
    ("A", "split", "150"),
    ("B", "threads", "4000000"),
    ("C", "bursts", "0"),
    ("C", "bursts-often", "0"),
    ("C", "between-ticks", "0"),
    ("D", "short-lived", "0"),
    ("E", "sleepers", "0"),
    ("F", "calls", "0"),
    ("G", "slower", "0"),
    ("G", "slower", "10"),
    ("G", "slower", "20"),
    ("G", "slower", "40"),
    ("H", "crowd", "100000000"),
];

/// The one that runs beside others, too.
const BESIDE_OTHERS: (&str, &str, &str) = ("I", "split", "50");

/// Processes that want to run all the time, one more than there are processors, until dropped.
struct Others(Vec<Child>);

impl Others {
    fn new() -> Self {
        let processors = std::thread::available_parallelism().expect("a number").get();
        let spins = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh runs");
        Self((0..=processors).map(spins).collect())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for spins in &mut self.0 {
            let _ = spins.kill();
            let _ = spins.wait();
        }
    }
}

/// Nanoseconds by function or thread name; `-` is all.
type Nanos = BTreeMap<String, f64>;

/// A thread that used less is not compared: it takes some ten microseconds to begin and to end, in which it cannot say what it used.
const LEAST_OF_A_THREAD: f64 = 4e6;

/// What a workload says, and what was sampled.
#[derive(Default)]
struct Run {
    process: f64,
    functions: Nanos,
    threads: Nanos,
    /// Elapsed time of threads: from their first line to their last, and from before they were made until after they were waited for.
    lived: Nanos,
    existed: Nanos,
    sampled: Nanos,
    /// Different stacks, and those of them that cannot have been.
    stacks: [usize; 2],
}

impl Run {
    fn and(mut self, other: Self) -> Self {
        self.process += other.process;
        let all = [
            (&mut self.functions, other.functions),
            (&mut self.threads, other.threads),
            (&mut self.sampled, other.sampled),
        ];
        for (sums, others) in all {
            others.into_iter().for_each(|(name, nanos)| *sums.entry(name).or_insert(0.0) += nanos);
        }
        self.stacks.iter_mut().zip(other.stacks).for_each(|(sum, other)| *sum += other);
        self
    }
}

fn main() {
    let quick = is_quick();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let ours = Ours {
        profrec: build(&root, &["-p", "profrec", "--bin", "profrec"], "profrec"),
        victim: build(&root, &["-p", "profile-recorder-victims", "--bin", "victim-spends"], "victim-spends"),
    };
    let peer = (!quick).then(|| build(&root.join("benches/accuracy"), &[], "profile-recorder-bench-accuracy"));
    println!(
        "Sum: per cent of the process's CPU time (the part of it that is [unsampled]). Shares: the most that a function's share differs, in points.
Threads: the most that a thread differs from its own clock, in per cent of it, of those that used 4 ms and more.
Wrong: stacks that do not begin where threads begin, or do not come to a function by its callers, of all different ones.
I: the same as A, beside processes that work, one more than there are processors.\n"
    );
    println!("                             ours                                          pprof-rs");
    println!("     workload             Hz     sum  unsampled  shares threads     wrong     sum  shares threads");
    let chosen: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    let rates: &[u32] = if quick { &[99] } else { &[99, 1000] };
    for hz in rates {
        for (letter, name, number) in
            WORKLOADS.into_iter().chain([BESIDE_OTHERS]).filter(|(_, name, _)| is_chosen(name))
        {
            let others = (letter == BESIDE_OTHERS.0).then(Others::new);
            let several = |run: &dyn Fn() -> Run| {
                let first = run();
                // Of a share of a half, 200 samples tell no more than 3.5 points.
                let again = if quick || first.functions.is_empty() { 0 } else { 5 };
                (0..again).fold(first, |sum, _| sum.and(run()))
            };
            let run = several(&|| ours.run(name, number, *hz));
            let unsampled = 100.0 * of(&run.sampled, "[unsampled]") / run.process;
            let theirs = peer.as_ref().map(|peer| several(&|| with_pprof(peer, name, number, *hz)));
            let theirs =
                theirs.map_or_else(String::new, |run| format!("{:7.1}% {} {}", sum(&run), shares(&run), threads(&run)));
            println!(
                "  {letter}  {name:13} {number:>9}  {hz:4}  {:6.2}%  {unsampled:7.2}%  {} {}  {:8} {theirs}",
                sum(&run),
                shares(&run),
                threads(&run),
                format!("{}/{}", run.stacks[1], run.stacks[0])
            );
            drop(others);
        }
    }
    if !is_chosen("sleepers") {
        return;
    }
    println!(
        "\nElapsed time of 66 threads, two of which work for a second and the others sleep a second and a half:\n"
    );
    for hz in rates {
        elapsed(&ours.run_in("wall", "sleepers", "0", *hz), *hz);
    }
}

/// How many threads have less than they lived or more than they existed, and by how much of that.
fn elapsed(run: &Run, hz: u32) {
    let off = run.lived.iter().map(|(name, lived)| {
        let (found, existed) = (of(&run.sampled, &format!("thread:{name}")), of(&run.existed, name));
        let off = (lived - found).max(found - existed).max(0.0);
        100.0 * off / lived
    });
    let outside = off.clone().filter(|off| *off > 0.0).count();
    println!(
        "  E  sleepers  {hz:4} Hz  outside of their bounds: {outside} of {}, by at most {:.2} % of what they lived",
        run.lived.len(),
        off.fold(0.0, f64::max)
    );
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

/// Largest difference of a thread from its own clock; nothing if the workload names none.
fn threads(run: &Run) -> String {
    let named = run.threads.iter().filter(|(_, nanos)| **nanos >= LEAST_OF_A_THREAD);
    let differences = named.map(|(name, nanos)| 100.0 * (of(&run.sampled, &format!("thread:{name}")) / nanos - 1.0));
    let most = differences.map(f64::abs).fold(f64::NAN, f64::max);
    if most.is_nan() { "      -".to_owned() } else { format!("{most:6.1}%") }
}

struct Ours {
    profrec: PathBuf,
    victim: PathBuf,
}

impl Ours {
    fn run(&self, name: &str, number: &str, hz: u32) -> Run {
        self.run_in("cpu", name, number, hz)
    }

    fn run_in(&self, mode: &str, name: &str, number: &str, hz: u32) -> Run {
        let directory = tempfile::tempdir().expect("a directory");
        let profile = directory.path().join("p.folded");
        let mut command = Command::new(&self.profrec);
        command.args(["record", "--quiet", "--mode", mode, "--hz", &hz.to_string()]);
        command.args(["--thread-frames", "-o"]).arg(&profile);
        command.arg("--").arg(&self.victim).args([name, number]);
        let mut run = said(&mut command);
        let folded = std::fs::read_to_string(&profile).expect("a profile");
        for line in folded.lines().filter(|line| !line.starts_with('#')) {
            let (stack, nanos) = line.rsplit_once(' ').expect("a stack and its value");
            let nanos: f64 = nanos.parse().expect("a number");
            let (thread, stack) = stack.split_once(';').expect("a thread and its stack");
            *run.sampled.entry(format!("thread:{thread}")).or_insert(0.0) += nanos;
            if !stack.starts_with("[unsampled]") {
                run.stacks[0] += 1;
                if !is_legal(stack, name, number) {
                    run.stacks[1] += 1;
                    println!("  wrong: {stack}");
                }
            }
            let names: std::collections::BTreeSet<&str> =
                stack.split(';').map(|frame| frame.rsplit("::").next().unwrap_or(frame)).chain(["-"]).collect();
            for name in names {
                *run.sampled.entry(name.to_owned()).or_insert(0.0) += nanos;
            }
        }
        run
    }
}

/// Functions of the workloads that do the work, and who calls them.
const CALLERS: [(&str, &[&str]); 6] = [
    ("split", &["half", "third", "sixth", "rest"]),
    ("bursts", &["steady"]),
    ("between_ticks", &["steady"]),
    ("slower", &["steady", "slowed"]),
    ("calls", &["reads", "asks"]),
    ("thread_start", &["burns"]),
];

/// Whether a stack, its outermost frame first, is one that the workload can have.
fn is_legal(stack: &str, workload: &str, number: &str) -> bool {
    // Elapsed time before the first look and after the last; a sample of CPU time has a stack.
    if stack == "[truncated: between two looks]" {
        return true;
    }
    let frames: Vec<&str> = stack.split(';').map(|frame| frame.rsplit("::").next().unwrap_or(frame)).collect();
    // The dynamic linker's own beginning has a label of its own, from which it calls constructors.
    let begins = ["_start", "_dl_start_user"].contains(&frames[0]) || frames.starts_with(&["clone3", "start_thread"]);
    let known = || CALLERS.iter().flat_map(|(_, functions)| *functions);
    let Some(at) = frames.iter().position(|frame| known().any(|function| function == frame)) else { return begins };
    let called = CALLERS
        .iter()
        .any(|(caller, functions)| functions.contains(&frames[at]) && frames[..at].iter().any(|frame| frame == caller));
    let deeper = frames[..at].iter().filter(|frame| **frame == "deeper").count();
    let deep = if workload == "split" { number.parse::<usize>().map_or(0, |depth| depth + 1) } else { 0 };
    begins && called && deeper == deep
}

fn with_pprof(program: &Path, name: &str, number: &str, hz: u32) -> Run {
    said(Command::new(program).args([name, number, &hz.to_string()]))
}

/// Runs a program that says what it did.
fn said(command: &mut Command) -> Run {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut run = Run::default();
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
            "thread" => drop(run.threads.insert(name.to_owned(), nanos)),
            "lived" => drop(run.lived.insert(name.to_owned(), nanos)),
            "existed" => drop(run.existed.insert(name.to_owned(), nanos)),
            "sampled" => drop(run.sampled.insert(name.to_owned(), nanos)),
            _ => {}
        }
    }
    run
}
