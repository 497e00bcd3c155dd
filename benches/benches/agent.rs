//! What the agent takes: `cargo bench -p profile-recorder-benches --bench agent [-- --quick]`
//!
//! `tests/agent/recorders.py` plays the processes: each answers, after the time it was asked for, with a profile of Python at work. The agent runs at its defaults
//! (11 samples a second, cycles of a minute), writes collapsed stacks and a page, and sends pprof to a directory. Its processor time is the kernel's, a part of one
//! processor; its memory the most that was resident.

use profile_recorder_benches::figures::is_quick;
use profile_recorder_benches::programs::build;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Processes, the most of a processor that the agent may take, and of memory, in MiB.
const FLEETS: [(u32, f64, u64); 2] = [(50, 0.01, 512), (1000, 2.0, 512)];

const PYTHON: &str = "import json,re,time
end = time.time() + 3
while time.time() < end: re.findall('[a-f]+', json.dumps(json.loads(json.dumps(list(range(3000))))))";

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let profrec = build(here, &["--workspace", "--bin", "profrec"], "profrec");
    let directory = tempfile::tempdir().expect("a directory");
    let profile = directory.path().join("python.profrec");
    let recorded = Command::new(&profrec)
        .args(["record", "--quiet", "--hz", "99", "--symbols", "names", "-o"])
        .arg(&profile)
        .args(["--", "python3", "-c", PYTHON])
        .status();
    assert!(recorded.is_ok_and(|status| status.success()), "profrec records python3");
    let (length, cycles) = if is_quick() { (5, 1) } else { (60, 3) };
    println!("{cycles} cycles of {length} s, each process with a profile of {} bytes\n", bytes(&profile));
    println!("processes  profiles  CPU of one processor  at most  resident MiB  at most");
    for (count, most_cpu, most_memory) in FLEETS {
        let fleet = Fleet::start(here, count, directory.path(), &profile);
        let state = directory.path().join(format!("state-{count}"));
        let mut agent = agent(&profrec, directory.path(), &state, length);
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs(length * cycles + 2));
        let (cpu, resident) = (cpu_seconds(agent.id()), resident_mib(agent.id()));
        let share = cpu / begun.elapsed().as_secs_f64();
        let _ = terminate(&agent);
        let _ = agent.wait();
        drop(fleet);
        let profiles = std::fs::read_dir(directory.path().join("sent")).map_or(0, Iterator::count);
        println!("{count:9} {profiles:9} {share:20.4} {most_cpu:8} {resident:13} {most_memory:8}");
        let _ = std::fs::remove_dir_all(directory.path().join("sent"));
    }
}

fn bytes(path: &Path) -> u64 {
    path.metadata().expect("a file").len()
}

struct Fleet(Child);

impl Fleet {
    fn start(here: &Path, count: u32, directory: &Path, profile: &Path) -> Self {
        let sockets = directory.join("sockets");
        let _ = std::fs::remove_dir_all(&sockets);
        std::fs::create_dir(&sockets).expect("a directory");
        let mut command = Command::new("python3");
        command.arg(here.join("../tests/agent/recorders.py")).arg(&sockets).arg(count.to_string()).arg(profile);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        let mut line = String::new();
        let read = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
        assert!(read.is_ok() && line == "listening\n", "the processes listen");
        Self(child)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn agent(profrec: &Path, directory: &Path, state: &Path, length: u64) -> Child {
    let config = directory.join("agent.toml");
    let text = format!("registry = false\n[[targets]]\nsockets = ['{}/sockets/*.sock']\n", directory.display());
    std::fs::File::create(&config).and_then(|mut file| file.write_all(text.as_bytes())).expect("a file");
    let mut command = Command::new(profrec);
    command.args(["agent", "-c", "-d", &length.to_string(), "--rotating-output", "--config"]).arg(config);
    command.arg("-o").arg(directory.join("out")).arg("--state-dir").arg(state);
    command.arg(format!("--sink=directory={}", directory.join("sent").display()));
    command.stderr(Stdio::null()).spawn().expect("the agent starts")
}

fn terminate(child: &Child) -> std::io::Result<std::process::ExitStatus> {
    Command::new("kill").arg(child.id().to_string()).status()
}

/// User and system time of a process, in seconds.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the agent runs");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_ascii_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("ticks")).sum::<f64>() / 100.0
}

/// The most that a process had in memory.
fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
}
