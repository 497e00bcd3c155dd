//! What sessions cost the program that they look at: `cargo bench -p profile-recorder-benches --bench sessions [-- --quick]`
//!
//! `victim-spends` carries the library, and says how much CPU time its process used: with threads that only wait, all of it is the recorder's; with a fixed amount of work on two threads, what a
//! session adds is the difference to runs without one, in turn with them.

use profile_recorder_benches::figures::is_quick;
use profile_recorder_benches::programs::build;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Sessions that look at idle threads, with the part of a processor that each may take.
const IDLE: [(&str, &[(u64, f64)]); 3] = [
    ("no session", &[(1000, 0.0), (10_000, 0.0)]),
    ("wall?hz=20", &[(1000, 0.3), (10_000, 2.0)]),
    ("offcpu?hz=20", &[(1000, 0.3), (10_000, 2.0)]),
];
/// Sessions of a program that works on all processors, with what each may add. (Nothing was promised of elapsed time.)
const BUSY: [(&str, f64); 4] =
    [("no session", 0.0), ("cpu?hz=99", 0.3), ("cpu?hz=1000", 2.0), ("wall?hz=99", f64::NAN)];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let victim = build(&root, &["-p", "profile-recorder-victims", "--bin", "victim-spends"], "victim-spends");
    let quick = is_quick();
    println!("idle threads: milliseconds of CPU time when all are new, and then per cent of one processor\n");
    println!("  session          threads   new ms      used   at most");
    for (session, goals) in IDLE {
        for (threads, goal) in goals.iter().take(if quick { 1 } else { 2 }) {
            let spent = Victim::start(&victim, &["idle", &threads.to_string()]).run(session, 12);
            let used = 100.0 * spent.of("idle") / 4e9;
            println!("  {session:15} {threads:8}  {:7.1}  {used:7.3}%  {goal:6.1}%", spent.of("new") / 1e6);
        }
    }
    println!("\nfixed work on two threads: milliseconds of CPU time, the least of several runs\n");
    println!("  session          least ms   added   at most    samples  lost  handlers  threads");
    let rounds = if quick { 1 } else { 7 };
    let mut least = [f64::MAX; BUSY.len()];
    let mut last: [Option<Spent>; BUSY.len()] = [const { None }; BUSY.len()];
    for _ in 0..rounds {
        for (((session, _), least), last) in BUSY.iter().zip(&mut least).zip(&mut last) {
            let spent = Victim::start(&victim, &["busy", if quick { "500" } else { "60000" }]).run(session, 30);
            *least = least.min(spent.of("busy"));
            *last = Some(spent);
        }
    }
    for (((session, goal), nanos), last) in BUSY.iter().zip(least).zip(&last) {
        let added = 100.0 * (nanos / least[0] - 1.0);
        let told = last.as_ref().map_or_else(String::new, Spent::samples);
        let goal = if goal.is_nan() { "-".to_owned() } else { format!("{goal:.1}%") };
        println!("  {session:15} {:9.1}  {added:5.2}%  {goal:>8}    {told}", nanos / 1e6);
    }
    println!("\n64 threads that work, at 1,000 Hz\n");
    let spent = Victim::start(&victim, &["many", if quick { "10000000" } else { "60000000" }]).run("cpu?hz=1000", 30);
    println!("  samples, lost, ms of handlers and of threads: {}", spent.samples());
}

/// A running program that waits to be told to begin.
struct Victim {
    child: Child,
    stdout: BufReader<ChildStdout>,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

/// What the program said, and what the recorder did.
struct Spent {
    said: String,
    /// The recorder's own counters, in the text format of Prometheus.
    metrics: String,
}

impl Spent {
    /// Nanoseconds of a function.
    fn of(&self, function: &str) -> f64 {
        let line = self.said.lines().find_map(|line| line.strip_prefix(&format!("function {function} ")));
        line.and_then(|nanos| nanos.parse().ok()).unwrap_or_else(|| panic!("{}", self.said))
    }

    /// Samples that were taken, events that were lost, and milliseconds of CPU time that the handlers and the recorder's threads took.
    fn samples(&self) -> String {
        let sum = |name: &str| -> f64 {
            let lines = self.metrics.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        format!(
            "{:7}  {:4}  {:8.1}  {:7.1}",
            sum("profile_recorder_time_samples_total"),
            sum("profile_recorder_lost_total"),
            1e3 * sum("profile_recorder_handler_seconds_total"),
            1e3 * sum("profile_recorder_own_cpu_seconds_total")
        )
    }
}

impl Victim {
    fn start(program: &Path, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("s");
        let mut child = Command::new(program)
            .args(arguments)
            .env("PROFILE_RECORDER_SERVER_URL", format!("unix://{}", socket.display()))
            .env("XDG_RUNTIME_DIR", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        while !socket.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, stdout, socket, _directory: directory }
    }

    /// Has it work during a session of at most so many seconds, which is cut off when it has worked.
    fn run(mut self, session: &str, seconds: u32) -> Spent {
        let asked = (session != "no session").then(|| self.ask(&format!("/debug/pprof/{session}&seconds={seconds}")));
        // The session begins before the work.
        std::thread::sleep(Duration::from_millis(if asked.is_some() { 500 } else { 10 }));
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
        let mut said = String::new();
        while !said.lines().any(|line| line.starts_with("process ")) {
            assert_ne!(self.stdout.read_line(&mut said).expect("it writes"), 0, "{said}");
        }
        drop(asked);
        let mut metrics = String::new();
        self.ask("/metrics").read_to_string(&mut metrics).expect("an answer");
        Spent { said, metrics }
    }

    fn ask(&self, path: &str) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).expect("it serves");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it reads");
        stream
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
