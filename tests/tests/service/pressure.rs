//! The recorder in processes that get no memory, no processor and no thread: it answers, or says why not, and nobody ends by it.

use profile_recorder_tests::resident::Resident;
use profile_recorder_tests::{build, programs, scratch, text};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program with threads that carries the library; ended when dropped.
struct Carrier {
    child: Child,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Carrier {
    fn start() -> Self {
        Self::start_as(Command::new(build("threads")).arg("600"))
    }

    fn start_as(command: &mut Command) -> Self {
        let directory = scratch();
        let socket = directory.path().join("s");
        let child = command
            .env("PROFILE_RECORDER_SERVER_URL", format!("unix://{}", socket.display()))
            .env("XDG_RUNTIME_DIR", directory.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "no server");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, socket, _directory: directory }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and text of an answer.
fn ask(socket: &Path, path: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap_or_else(|error| panic!("{path}: {error}"));
    let answer = text(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{path}: {answer:?}")), answer)
}

/// Lets a process have so much memory and no more; none: as much as it likes.
fn limit_memory(pid: u32, bytes: Option<u64>) {
    let limit = bytes.unwrap_or(libc::RLIM_INFINITY);
    let limits = libc::rlimit { rlim_cur: limit, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: sets a limit of a child of this process, from a structure that lives through the call.
    let set = unsafe { libc::prlimit(pid as libc::pid_t, libc::RLIMIT_AS, &limits, std::ptr::null_mut()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Memory that a process has mapped.
fn mapped(pid: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("a process");
    pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

const PATHS: [&str; 9] = [
    "/health",
    "/metrics",
    "/alloc/stats",
    "/debug/pprof/",
    "/debug/pprof/heap",
    "/debug/pprof/allocs?format=svg",
    "/debug/pprof/profile?seconds=0.1",
    "/debug/pprof/threads?debug=1",
    "/debug/pprof/symbol?0x1000",
];

/// At every size of what is left, each request is answered or refused, and the program goes on.
fn survives_with_little_memory(pid: u32, socket: &Path) {
    for path in PATHS {
        assert_eq!(ask(socket, path).0, 200, "{path}");
    }
    let mut refused = 0;
    for left in [0, 1, 2, 4, 8, 12, 16, 24, 32, 64, 128] {
        limit_memory(pid, Some(mapped(pid) + (left << 20)));
        for path in PATHS {
            let (status, answer) = ask(socket, path);
            assert!(status == 200 || status == 503, "{left} MiB, {path}: {answer:.500}");
            assert!(status == 200 || path != "/health", "{left} MiB: {answer:.500}");
            // Counters are told whether a recording is possible or not.
            let is_zero = answer.contains("\"allocations\":0,") || answer.contains("\"allocations\": 0,");
            assert!(status != 200 || path != "/alloc/stats" || left < 4 || !is_zero, "{left} MiB: {answer:.500}");
            refused += u32::from(status == 503);
        }
    }
    assert!(refused > 0, "without memory nothing can be recorded");
    limit_memory(pid, None);
    for path in PATHS {
        assert_eq!(ask(socket, path).0, 200, "{path}");
    }
}

#[test]
fn a_program_with_the_library_survives_questions_without_memory() {
    let mut carrier = Carrier::start();
    survives_with_little_memory(carrier.child.id(), &carrier.socket);
    assert!(carrier.child.try_wait().unwrap().is_none());
}

#[test]
fn a_preloaded_program_survives_questions_without_memory() {
    let directory = scratch();
    let program = programs::compile_source(
        "sleeps",
        "#include <stdlib.h>\n#include <unistd.h>\nvoid *volatile kept;\nint main(void) { kept = malloc(100); for (;;) pause(); }",
        directory.path(),
    );
    let mut running = Resident::start(&mut Command::new(program));
    let pid = running.child().id();
    survives_with_little_memory(pid, &running.socket(pid));
    assert!(running.child().try_wait().unwrap().is_none());
}

/// The files of a control group as far as they tell of memory, of both versions.
struct Group(tempfile::TempDir);

impl Group {
    fn limit(&self, used: u64, limit: u64) {
        let write = |name: &str, bytes: u64| std::fs::write(self.0.path().join(name), format!("{bytes}\n")).unwrap();
        std::fs::create_dir_all(self.0.path().join("memory")).unwrap();
        write("memory.current", used);
        write("memory.max", limit);
        write("memory/memory.usage_in_bytes", used);
        write("memory/memory.limit_in_bytes", limit);
    }
}

#[test]
fn a_container_that_has_little_memory_left_is_not_ended_for_a_recording() {
    const MIB: u64 = 1 << 20;
    const USED: u64 = 100 * MIB;
    let group = Group(scratch());
    group.limit(USED, USED + MIB);
    let mounted = "mount --bind \"$0\" /sys/fs/cgroup && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", mounted]).arg(group.0.path()).arg(build("threads"));
    let carrier = Carrier::start_as(command.arg("600"));
    let threads = |left| {
        group.limit(USED, USED + left);
        ask(&carrier.socket, "/debug/pprof/threads?format=json")
    };
    let (status, answer) = threads(MIB);
    assert!(status == 503 && answer.contains("may not have the memory that it takes"), "{answer:.500}");
    assert_eq!(ask(&carrier.socket, "/health").0, 200);
    let (status, answer) = threads(30 * MIB);
    assert!(status == 200 && answer.contains("names only: lines and inlined functions may take"), "{answer:.2000}");
    let (status, answer) = threads(2048 * MIB);
    assert!(status == 200 && !answer.contains("names only"), "{answer:.2000}");
}

/// Keeps the calling thread, and what it starts, to the processor that it is on. To it the machine is one of a single processor; other tests have the rest.
fn on_one_processor() -> std::io::Result<()> {
    // SAFETY: a set of processors is a plain bit field, which the three calls read or fill.
    let done = unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap_or(0), &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &one)
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn a_machine_that_is_busy_all_over_still_answers() {
    let directory = scratch();
    // Many more threads than processors, which yield to nobody.
    let source = "#include <pthread.h>
__attribute__((noinline)) void busy(void) { for (volatile unsigned i = 0;; i++) ; }
static void *run(void *unused) { busy(); return unused; }
int main(void) { pthread_t t; for (int i = 0; i < 63; i++) pthread_create(&t, 0, run, 0); busy(); return 0; }";
    let program = programs::compile_source("busy", source, directory.path());
    let mut command = Command::new(program);
    // SAFETY: after the fork this makes one system call.
    unsafe { command.pre_exec(on_one_processor) };
    let mut running = Resident::start(&mut command);
    let pid = running.child().id();
    let socket = running.socket(pid);
    assert_eq!(ask(&socket, "/health").0, 200);
    // The first thread has to get its turn sixty-three times.
    let listed = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    while listed() < 64 + 1 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (status, stacks) = ask(&socket, "/debug/pprof/profile?seconds=1&format=collapsed&symbols=names");
    assert!(status == 200 && stacks.contains("busy"), "{stacks:.500}");
    let (status, threads) = ask(&socket, "/debug/pprof/threads?debug=1&symbols=names");
    assert!(status == 200 && threads.contains("total 64 threads/count"), "{threads:.500}");
    assert!(!threads.contains("[truncated"), "{threads:.500}");
    assert!(threads.contains("busy\n"), "stacks of running threads: {threads:.500}");
    assert_eq!(ask(&socket, "/debug/pprof/heap").0, 200);
}
