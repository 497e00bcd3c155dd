//! Programs that know nothing of the recorder answer curl when the preload library brings its server, and do what they do without it.

use profile_recorder_tests::resident::{self, Resident};
use profile_recorder_tests::{output, pprof, programs, scratch, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The same with the server and without: what comes out, and how it ends.
fn unchanged(what: &str, run: impl Fn(&mut dyn FnMut(&mut Command)) -> Output) {
    let directory = scratch();
    let plain = run(&mut |_| ());
    let served = run(&mut |command| {
        resident::serve(command, directory.path());
    });
    assert_eq!(plain.status, served.status, "{what}: {}", text(&served.stderr));
    assert_eq!(text(&plain.stdout), text(&served.stdout), "{what}");
    assert_eq!(text(&plain.stderr), text(&served.stderr), "{what}");
}

fn python(program: &str) -> Command {
    let mut command = Command::new(programs::python());
    command.args(["-c", program]);
    command
}

#[test]
fn output_and_end_of_real_programs_are_unchanged() {
    let python_program = "import json,os,subprocess,sys,threading
print(os.open('/dev/null', os.O_RDONLY), sorted(os.listdir('/proc/self/fd')))
t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()
print(subprocess.run(['sh', '-c', 'echo from a shell; exit 4'], capture_output=True))
pid = os.fork()
if pid == 0: os._exit(7)
print(os.waitpid(pid, 0)[1] >> 8, len(json.dumps(list(range(10000)))))
os.closerange(3, 4096); print(os.open('/dev/null', os.O_RDONLY))
sys.stderr.write('to stderr\\n'); sys.exit(5)";
    unchanged("python3", |prepare| {
        let mut command = python(python_program);
        prepare(&mut command);
        output(&mut command)
    });
    unchanged("node", |prepare| {
        let mut command = Command::new("node");
        command.args([
            "-e",
            "console.log(require('crypto').createHash('sha1').update('x').digest('hex')); process.exitCode = 3",
        ]);
        prepare(&mut command);
        output(&mut command)
    });
    unchanged("gcc", |prepare| {
        let mut command = Command::new("gcc");
        command.args(["-O1", "-Wall", "-S", "-x", "c", "-", "-o", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"int f(int x) { int unused; return x * 3; }").unwrap();
        child.wait_with_output().unwrap()
    });
    unchanged("a killed shell", |prepare| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo before; kill -TERM $$"]);
        prepare(&mut command);
        output(&mut command)
    });
}

#[test]
fn a_script_answers_with_what_it_does() {
    let program = "import json
kept = bytes(20_000_000)
keep = []
def work():
    while True:
        keep.append(json.loads(json.dumps([{'a': i} for i in range(300)])))
        del keep[:-200]
print('works', flush=True)
work()";
    // What it keeps is so much that samples of 512 KiB do not all miss it.
    let mut running = Resident::start(&mut python(program));
    let mut lines = BufReader::new(running.child().stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "works");
    assert_eq!(running.get("/health"), b"OK");
    let directory = scratch();
    let file = directory.path().join("p.pb.gz");
    for (path, column) in [
        ("/debug/pprof/profile?seconds=0.5", "cpu"),
        ("/debug/pprof/wall?seconds=0.3", "wall"),
        ("/debug/pprof/allocs", "alloc_space"),
        ("/debug/pprof/heap", "inuse_space"),
        ("/debug/pprof/allocs?seconds=0.2&interval=1", "alloc_objects"),
        ("/debug/pprof/goroutine", "threads"),
    ] {
        std::fs::write(&file, running.get(path)).unwrap();
        assert!(pprof::total(&file, column) > 0, "{path}");
    }
    let stacks = text(&running.get("/debug/pprof/profile?seconds=0.5&debug=1"));
    assert!(stacks.contains("_PyEval_EvalFrameDefault"), "{stacks:.2000}");
    assert!(!stacks.contains("profile_recorder"), "the recorder is not in what it records: {stacks:.2000}");
    let stats: serde_json::Value = serde_json::from_slice(&running.get("/alloc/stats")).unwrap();
    assert!(stats["functions"]["malloc"]["calls"].as_u64() > Some(1000), "{stats}");
    assert!(running.child().try_wait().unwrap().is_none());
}

#[test]
fn a_server_and_a_database_answer_while_they_serve() {
    let directory = scratch();
    let socket = directory.path().join("redis");
    let mut redis = Resident::start(
        Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--daemonize", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(directory.path()),
    );
    wait_for(|| socket.exists());
    let load =
        output(Command::new("redis-benchmark").arg("-s").arg(&socket).args(["-n", "20000", "-t", "set,lpush", "-q"]));
    assert!(load.status.success(), "{}", text(&load.stderr));
    let heap = text(&redis.get("/debug/pprof/allocs?format=collapsed"));
    assert!(heap.contains("redis") || heap.contains("malloc"), "{heap:.2000}");
    assert!(text(&redis.get("/debug/pprof/wall?seconds=0.3&debug=2")).contains("state=\"off-cpu\""));
    // The child that saves is forked, and ends as it would.
    let saved = output(Command::new("redis-cli").arg("-s").arg(&socket).args(["--raw", "BGSAVE"]));
    assert!(text(&saved.stdout).contains("Background saving started"), "{}", text(&saved.stdout));
    wait_for(|| directory.path().join("dump.rdb").exists());
    assert!(redis.child().try_wait().unwrap().is_none());

    let node = Resident::start(
        Command::new("node")
            .args(["-e", "function spin() { for (;;) JSON.parse(JSON.stringify({ a: [1, 2, 3] })) } spin()"]),
    );
    let stacks = text(&node.get("/debug/pprof/profile?seconds=0.5&debug=1"));
    assert!(stacks.contains("node") || stacks.contains("v8"), "{stacks:.2000}");
}

fn wait_for(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_forked_child_answers_by_its_own_pid_and_a_closed_table_harms_nobody() {
    let program = "import os, sys, time
pid = os.fork()
if pid == 0:
    os.closerange(0, 4096)
    x = 0
    while True: x += 1
print(pid, flush=True)
os.closerange(3, 4096)
sys.stdin.read()
os.kill(pid, 9)";
    let mut running = Resident::start(&mut python(program));
    let mut lines = BufReader::new(running.child().stdout.take().unwrap()).lines();
    let child: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    running.wait_for_server(child);
    assert_ne!(child, running.child().id());
    let stats: serde_json::Value =
        serde_json::from_slice(&resident::get(&running.socket(child), "/alloc/stats")).unwrap();
    assert_eq!(stats["pid"], child);
    let stacks = text(&resident::get(&running.socket(child), "/debug/pprof/profile?seconds=1&debug=1"));
    assert!(stacks.contains("_PyEval_EvalFrameDefault"), "{stacks:.2000}");
    assert_eq!(running.get("/health"), b"OK");
    let directory = running.socket(child).parent().unwrap().to_owned();
    drop(running.child().stdin.take());
    assert!(running.child().wait().unwrap().success());
    // The parent ended in an orderly way, the child was killed.
    assert!(!directory.join(format!("app-{}.sock", running.child().id())).exists());
}

/// Children of daemons and of Python's multiprocessing leave so, and there may be many.
#[test]
fn a_process_that_leaves_by_exit_at_once_leaves_no_file() {
    let program = "import os, sys
pid = os.fork()
if pid == 0:
    sys.stdin.readline()
    os._exit(7)
print(pid, flush=True)
print(os.waitpid(pid, 0)[1] >> 8, flush=True)
sys.stdin.read()
os._exit(3)";
    let mut running = Resident::start(&mut python(program));
    let mut lines = BufReader::new(running.child().stdout.take().unwrap()).lines();
    let child: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    running.wait_for_server(child);
    let parent = running.child().id();
    let directory = running.socket(child).parent().unwrap().to_owned();
    let of = |pid: u32| {
        let names = std::fs::read_dir(directory.join("profile-recorder"))
            .unwrap()
            .chain(std::fs::read_dir(&directory).unwrap());
        names.flatten().filter(|entry| entry.file_name().to_string_lossy().contains(&pid.to_string())).count()
    };
    let is_listed = |pid: u32| directory.join(format!("profile-recorder/{pid}.json")).exists();
    wait_for(|| is_listed(parent) && is_listed(child));
    assert_eq!((of(parent), of(child)), (2, 2));
    running.child().stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "7");
    assert_eq!((of(parent), of(child)), (2, 0), "its own, and not its parent's");
    assert_eq!(running.get("/health"), b"OK");
    drop(running.child().stdin.take());
    assert_eq!(running.child().wait().unwrap().code(), Some(3));
    assert_eq!(of(parent), 0);
}

#[test]
fn a_fixed_address_belongs_to_the_first_process() {
    let directory = scratch();
    let socket = directory.path().join("one.sock");
    let mut command = python(
        "import os, sys
pid = os.fork()
if pid == 0: sys.stdin.read(); os._exit(0)
print('forked', flush=True); sys.stdin.read(); os.waitpid(pid, 0)",
    );
    let mut child = resident::serve(&mut command, directory.path())
        .env("PROFILE_RECORDER_SERVER_URL", format!("unix://{}", socket.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    wait_for(|| std::os::unix::net::UnixStream::connect(&socket).is_ok());
    std::thread::sleep(Duration::from_millis(250));
    let stats: serde_json::Value = serde_json::from_slice(&resident::get(&socket, "/alloc/stats")).unwrap();
    assert_eq!(stats["pid"], child.id());
    drop(child.stdin.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(said, "", "the child does not complain of the address that is in use");
}

#[test]
fn live_bytes_are_told_where_every_allocation_shall_be_recorded() {
    let program = "kept = [bytes(100_000) for _ in range(100)]
print('ready', flush=True)
input()";
    for (interval, is_told) in [("1", true), ("512KiB", false), ("off", false)] {
        let mut command = python(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).env("PROFILE_RECORDER_ALLOC_INTERVAL", interval);
        let mut service = Resident::start(&mut command);
        let mut line = String::new();
        BufReader::new(service.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
        let stats: serde_json::Value = serde_json::from_slice(&service.get("/alloc/stats")).unwrap();
        let live = stats["live_bytes"].as_u64();
        assert_eq!(live.is_some(), is_told, "{interval}: {stats}");
        assert!(live.is_none_or(|live| (10_000_000..40_000_000).contains(&live)), "{stats}");
        let calls = stats["functions"]["malloc"]["calls"].as_u64();
        assert!(calls > Some(1000) && stats["bytes_asked"].as_u64() > Some(10_000_000), "{stats}");
        // A request names an interval, and has its window.
        let window = service.get("/debug/pprof/allocs?seconds=1&interval=1&format=collapsed&symbols=names");
        assert!(!text(&window).contains("[lost"), "{interval}: {}", text(&window));
        drop(service.child().stdin.take());
    }
}

fn written(name: &str, mode: &str, program: &str) -> (Option<String>, Output) {
    let directory = scratch();
    let mut command = python(program);
    command
        .env("LD_PRELOAD", resident::library())
        .env("PROFILE_RECORDER_OUTPUT", directory.path().join(name))
        .env("PROFILE_RECORDER_ALLOC_INTERVAL", "1")
        .env("PROFILE_RECORDER_HZ", "199")
        .env("PROFILE_RECORDER_MODE", mode);
    let output = output(&mut command);
    let files: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(files.len() <= 1, "{files:?}");
    (files.first().map(|path| read(path)), output)
}

fn read(path: &Path) -> String {
    text(&std::fs::read(path).unwrap())
}

#[test]
fn a_profile_is_written_when_the_process_ends() {
    let busy = "import time
t = time.process_time()
while time.process_time() < t + 0.5: pass
keep = [bytes(100000) for _ in range(50)]
print('done')";
    for (name, mode, expected) in [
        ("cpu.folded", "cpu", "_PyEval_EvalFrameDefault"),
        ("heap-{PID}-{EXE}.folded", "heap", "malloc"),
        ("wall.svg", "wall", "</svg>"),
    ] {
        let (profile, output) = written(name, mode, busy);
        assert_eq!(
            (text(&output.stdout), output.status.code()),
            ("done\n".to_owned(), Some(0)),
            "{}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stderr), "");
        let profile = profile.unwrap_or_else(|| panic!("{name} was written"));
        assert!(profile.contains(expected), "{name}: {profile:.2000}");
    }
    let (profile, output) = written("x.folded", "cpu", "import os; print('gone', flush=True); os._exit(3)");
    assert_eq!((profile, output.status.code()), (None, Some(3)), "who leaves at once leaves nothing");
}

#[test]
fn however_early_a_process_ends_what_it_allocated_is_written() {
    let directory = scratch();
    let source = "#include <stdlib.h>
__attribute__((noinline)) char *asks(int n) { char *p = malloc(n); *(volatile char *)p = 1; return p; }
int main(void) { for (int i = 0; i < 7; i++) free(asks(1000)); return 0; }";
    let program = programs::compile_source("brief", source, directory.path());
    let profile = directory.path().join("p.folded");
    for _ in 0..40 {
        let mut command = Command::new(&program);
        command
            .env("LD_PRELOAD", resident::library())
            .env("PROFILE_RECORDER_OUTPUT", &profile)
            .env("PROFILE_RECORDER_ALLOC_INTERVAL", "1")
            .env("PROFILE_RECORDER_MODE", "allocs");
        assert!(output(&mut command).status.success());
        let stacks = read(&profile);
        let of_asks = stacks.lines().find(|line| line.contains(";asks;"));
        assert!(of_asks.is_some_and(|line| line.ends_with(" 7")), "{stacks}");
        std::fs::remove_file(&profile).unwrap();
    }
}

#[test]
fn mistakes_are_told_in_one_line_and_the_program_runs() {
    for (variable, value, said) in [
        ("PROFILE_RECORDER_SERVER_URL", "nonsense", "not a URL"),
        ("PROFILE_RECORDER_SERVER_URL", "http://0.0.0.0:0", "PROFILE_RECORDER_TOKEN"),
        ("PROFILE_RECORDER_SERVER_URL", "unix:///does/not/exist/a.sock", "cannot listen on"),
        ("PROFILE_RECORDER_SERVER_URL_PATTERN", "unix:///tmp/{HOST}.sock", "in braces"),
        ("PROFILE_RECORDER_OUTPUT", "/does/not/exist/a.svg", "will not be written"),
        ("PROFILE_RECORDER_OUTPUT", "/tmp/a.unknown", "file name"),
    ] {
        let output = output(
            python("import time; time.sleep(0.2); print('done')")
                .env("LD_PRELOAD", resident::library())
                .env(variable, value),
        );
        assert_eq!((text(&output.stdout), output.status.code()), ("done\n".to_owned(), Some(0)), "{variable}={value}");
        let stderr = text(&output.stderr);
        assert!(stderr.lines().count() == 1 && stderr.contains(said), "{variable}={value}: {stderr}");
        assert!(stderr.starts_with("profile-recorder: error: "), "{stderr}");
    }
}

const SPINS: &str = "#include <pthread.h>
static volatile int locked = 1;
__attribute__((noinline)) void stuck_in_a_lock(void) { while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE)) ; }
static void *run(void *unused) { stuck_in_a_lock(); return unused; }
int main(void) { pthread_t t; for (int i = 0; i < 4; i++) pthread_create(&t, 0, run, 0); stuck_in_a_lock(); return 0; }";

#[test]
fn a_program_whose_threads_are_all_stuck_is_profiled_and_cancels_at_once() {
    let directory = scratch();
    let program = programs::compile_source("spins", SPINS, directory.path());
    let running = Resident::start(&mut Command::new(program));
    let stacks = text(&running.get("/debug/pprof/profile?seconds=1&format=collapsed"));
    let (all, stuck) = stacks.lines().filter(|line| !line.starts_with('#')).fold((0, 0), |(all, stuck), line| {
        let value: u64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        (all + value, if line.contains("stuck_in_a_lock") { stuck + value } else { stuck })
    });
    assert!(stuck * 100 > all * 95 && all > 0, "{stuck} of {all}:\n{stacks}");
    let threads = text(&running.get("/debug/pprof/threads?debug=1"));
    assert!(threads.contains("total 5 threads/count"), "{threads}");
    // A client that goes away ends its session: its rate no longer stands in the way of another.
    let long = std::os::unix::net::UnixStream::connect(running.socket(running_pid(&running))).unwrap();
    (&long).write_all(b"GET /debug/pprof/profile?seconds=60&hz=11 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let metric = |value: &str| text(&running.get("/metrics")).contains(&format!("sessions_running {value}\n"));
    wait_for(|| metric("1"));
    let gone = Instant::now();
    drop(long);
    wait_for(|| metric("0"));
    assert!(gone.elapsed() < Duration::from_secs(1), "{:?}", gone.elapsed());
}

fn running_pid(running: &Resident) -> u32 {
    let stats: serde_json::Value = serde_json::from_slice(&running.get("/alloc/stats")).unwrap();
    u32::try_from(stats["pid"].as_u64().unwrap()).unwrap()
}

/// Its handler for SIGPROF, or one that waits for signals in a thread of its own, would run on ours.
#[test]
fn the_recorders_threads_block_the_programs_signals() {
    let mut running = Resident::start(Command::new("sleep").arg("600"));
    let tasks = format!("/proc/{}/task", running.child().id());
    let mut ours = 0;
    for task in std::fs::read_dir(tasks).unwrap().flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        if status.starts_with("Name:\tprofrec-") {
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
            let blocked = u64::from_str_radix(blocked, 16).unwrap();
            assert_ne!(blocked >> (libc::SIGPROF - 1) & 1, 0, "{status}");
            ours += 1;
        }
    }
    assert!(ours > 0, "the server has a thread");
}
