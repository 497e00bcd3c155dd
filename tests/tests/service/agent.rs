//! Real programs, collected by one agent into one file: redis and Python with the preload library, and a Rust service with its own; then programs whose code is made while they run.

use profile::Profile;
use profile::decode::{self, Limits};
use profile_recorder_tests::programs::PerfMap;
use profile_recorder_tests::resident::Resident;
use profile_recorder_tests::service::Service;
use profile_recorder_tests::{output, profrec, programs, scratch, text};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Computes, and allocates and keeps so much that samples of 512 KiB do not all miss it.
const PYTHON: &str = "import hashlib
kept = bytes(20_000_000)
while True: hashlib.pbkdf2_hmac('sha256', b'x', b'y', 1000); bytes(100_000)";

fn redis(port: u16) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"]);
    command
}

#[test]
fn three_real_programs_are_one_flame_graph() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (redis, mut python) =
        (Resident::start(&mut redis(port)), Resident::start(Command::new(programs::python()).args(["-c", PYTHON])));
    let (_service, service_socket, _directory) = Service::start_at_socket(&[]);
    let mut load = Command::new("redis-benchmark")
        .args(["-p", &port.to_string(), "-q", "-l", "-t", "set,lpush", "-P", "16"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("apt-get install redis-tools");
    let directory = scratch();
    let python_pid = python.child().id();
    let file =
        collected(directory.path(), &[redis.directory(), python.directory(), service_socket.parent().unwrap()], 3);
    let _ = load.kill();
    let _ = load.wait();

    let col = std::fs::read_to_string(&file).unwrap();
    assert_busy(&col, &[("redis-server", "aeMain"), ("axum-service", "axum"), ("python", "_PyEval_EvalFrameDefault")]);
    assert!(col.contains(&format!("\"pid\":\"{python_pid}\"")), "{}", col.lines().next().unwrap_or_default());
    assert!(col.contains(";appid: native: redis-server (/usr/bin/redis-"), "{col}");
    renders(&file);
}

#[test]
fn what_was_recorded_so_far_is_kept_when_the_agent_is_told_to_end() {
    let mut python = Resident::start(Command::new(programs::python()).args(["-c", PYTHON]));
    let directory = scratch();
    let sent = directory.path().join("sent");
    let mut command = agent(directory.path(), &[python.directory()], 3600);
    command.args(["--continuous", "--mode", "cpu,allocs,heap", "--sink"]).arg(format!("directory={}", sent.display()));
    let mut agent = command.spawn().unwrap();
    let begun = Instant::now();
    let metrics = || String::from_utf8(python.get("/metrics")).unwrap();
    while !metrics().contains("profile_recorder_sessions_running 2\n") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", metrics());
    }
    let recording = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    // SAFETY: ends a child of this process, as a service manager would.
    assert_eq!(unsafe { libc::kill(agent.id() as libc::pid_t, libc::SIGTERM) }, 0);
    assert!(agent.wait().unwrap().success());
    let most = begun.elapsed().as_secs_f64();
    assert!(recording.elapsed() < Duration::from_secs(30), "an hour was asked for");

    let col = std::fs::read_to_string(directory.path().join("out/last_profile.col")).unwrap();
    assert_busy(&col, &[("python", "_PyEval_EvalFrameDefault")]);
    let read = |path: PathBuf| decode::read(&std::fs::read(path).unwrap(), Limits::default()).unwrap().0;
    let profiles: Vec<Profile> = std::fs::read_dir(&sent).unwrap().map(|entry| read(entry.unwrap().path())).collect();
    assert_eq!(profiles.len(), 3);
    for profile in profiles {
        let (kind, seconds) = (profile.sample_types[0].kind.clone(), profile.duration_ns as f64 / 1e9);
        println!("{kind}: {seconds:.2} s of {most:.2}");
        // A moment has no length; the others say how long they were, which is not the hour.
        assert!(kind == "inuse_objects" || (seconds > 1.9 && seconds < most), "{kind}: {seconds} of {most}");
    }
    assert!(python.child().try_wait().unwrap().is_none());
}

/// What one agent collects in so many seconds from the sockets in these directories, as `.col`.
fn collected(scratch: &Path, directories: &[&Path], seconds: u32) -> PathBuf {
    let ran = output(&mut agent(scratch, directories, seconds));
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    scratch.join("out/last_profile.col")
}

/// An agent whose cycles take so many seconds, with its files in `scratch`.
fn agent(scratch: &Path, directories: &[&Path], seconds: u32) -> Command {
    let sockets: Vec<String> =
        directories.iter().map(|directory| format!("\"{}/*.sock\"", directory.display())).collect();
    let (config, out) = (scratch.join("agent.toml"), scratch.join("out"));
    let targets = format!("[[targets]]\nsockets = [{}]\n", sockets.join(", "));
    let state = scratch.join("state");
    let settings = format!("registry = false\nfrequency = 99\njitter = 0\nstate-dir = {state:?}\n{targets}");
    std::fs::write(&config, settings).unwrap();
    let mut agent = Command::new(profrec());
    agent.args(["agent", "-d", &seconds.to_string(), "--config"]).arg(&config).arg("-o").arg(&out);
    agent
}

/// Each process was busy, most of the time in code that only it has.
fn assert_busy(col: &str, processes: &[(&str, &str)]) {
    let total = |process: &str, function: &str| -> f64 {
        let of_process = |line: &&str| {
            line.split(';').nth(2).is_some_and(|comm| comm.starts_with(process)) && line.contains(function)
        };
        let values =
            col.lines().skip(1).filter(of_process).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum::<f64>() / 1e9
    };
    for (process, function) in processes {
        println!("{process}: {:.2} s, of which {function} {:.2} s", total(process, ""), total(process, function));
        assert!(
            total(process, "") > 0.05 && total(process, function) > 0.5 * total(process, ""),
            "{process} in\n{col}"
        );
    }
}

const JAVA: &str = "public class Hot {
    static long burns(int n) { long s = 0; for (int i = 0; i < n; i++) s = s * 31 + i % 7; return s; }
    static long calls(int n) { return burns(n) + 1; }
    public static void main(String[] a) { long t = 0; while (t != 1) t += calls(100000) | 2; }
}";
const NODE: &str = "function burns(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i % 7) | 0; return s; }
    for (;;) burns(100000);";

#[test]
fn functions_whose_code_is_made_at_run_time_are_in_the_same_picture() {
    let directory = scratch();
    let classes = directory.path().to_str().unwrap();
    let source = directory.path().join("Hot.java");
    std::fs::write(&source, JAVA).unwrap();
    let compiled = output(Command::new("javac").args(["-d", classes]).arg(&source));
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    // One compiler of the two: what it compiled stays what it is, and where it is.
    let options = ["-XX:+PreserveFramePointer", "-XX:TieredStopAtLevel=1", "-XX:-Inline", "-cp", classes, "Hot"];
    let mut java = Resident::start(Command::new("java").args(options));
    let mut node = Resident::start(Command::new("node").args(["--perf-basic-prof", "-e", NODE]).current_dir(classes));
    let pids = [java.child().id(), node.child().id()];
    let maps = pids.map(PerfMap::of);
    let is_named = || {
        let named = output(Command::new("jcmd").args([&pids[0].to_string(), "Compiler.perfmap"]));
        assert!(named.status.success(), "{}", text(&named.stdout));
        std::fs::read_to_string(maps[0].path()).unwrap().contains("Hot.burns(int)")
    };
    let begun = Instant::now();
    while !is_named() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the compiler has not come to it");
    }
    let file = collected(directory.path(), &[java.directory(), node.directory()], 2);
    let col = std::fs::read_to_string(file).unwrap();
    assert_busy(&col, &[("java", "long Hot.burns(int)_[j]"), ("node", "burns [eval]")]);
    // On stacks that are whole, from the first thread's start or another's.
    let of = |function: &str| -> Vec<&str> { col.lines().filter(|line| line.contains(function)).collect() };
    assert!(of("Hot.burns").iter().all(|line| line.contains(";clone3;") && line.contains(";JavaMain;")), "{col}");
    assert!(of("burns [eval]").iter().all(|line| line.contains(";_start;")), "{col}");
    assert!(col.contains(";appid: java: Hot;") && col.contains(";appid: native: node ("), "{col}");
    assert!(!col.contains("function burns(n)"), "the text of a program is nobody's business");
}

/// The flame graph of Brendan Gregg's own script.
fn renders(col: &Path) {
    let script = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl";
    assert!(Path::new(script).exists(), "apt-get install libdevel-nytprof-perl");
    let drawn = output(Command::new("perl").arg(script).arg(col));
    // The line of metadata is no stack, which the script tells.
    assert!(drawn.status.success() && text(&drawn.stderr).contains("Ignored 1 lines"), "{}", text(&drawn.stderr));
    for frame in ["redis-server", "axum-service", "aeMain"] {
        assert!(text(&drawn.stdout).contains(&format!("<title>{frame} (")), "{frame} is in no frame");
    }
}
