//! The incremental walk gives the stacks of a plain walk, and the plain walk those of libgcc's unwinder: in real programs, for every allocation.

use profile_recorder_tests::{build, oracle, output, programs, scratch, text};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What the comparing library counted in all processes of a command, in the order of `alloc_hook::oracle::Counts`.
#[derive(Debug)]
struct Compared {
    equal: u64,
    libgcc_ends_earlier: u64,
    ours_ends_earlier: u64,
    frames: u64,
}

/// A command under the comparing library, which ends it at a difference.
struct Comparing {
    directory: tempfile::TempDir,
    command: Command,
}

impl Comparing {
    fn new(modes: &str, command: &[&str]) -> Self {
        let directory = scratch();
        let counts = directory.path().join("counts");
        std::fs::write(&counts, [0; 32]).unwrap();
        let stores = directory.path().join("stores");
        std::fs::create_dir(&stores).unwrap();
        let mut recorded = Command::new(command[0]);
        recorded
            .args(&command[1..])
            .env("LD_PRELOAD", oracle())
            .env("PYTHONMALLOC", "malloc")
            .env("PROFILE_RECORDER_ORACLE", counts)
            .env("PROFILE_RECORDER_STORE", stores)
            .env("PROFILE_RECORDER_STORE_MODES", modes);
        Self { directory, command: recorded }
    }

    fn run(mut self) -> Compared {
        let run = output(&mut self.command);
        assert!(run.status.success(), "{:?}: {:?}\n{}", self.command, run.status, text(&run.stderr));
        self.compared()
    }

    fn compared(&self) -> Compared {
        let bytes = std::fs::read(self.directory.path().join("counts")).unwrap();
        let mut counts = bytes.chunks_exact(8).map(|count| u64::from_le_bytes(count.try_into().unwrap()));
        let mut next = || counts.next().unwrap();
        let compared =
            Compared { equal: next(), libgcc_ends_earlier: next(), ours_ends_earlier: next(), frames: next() };
        eprintln!("{:?}: {compared:?}", self.command.get_program());
        compared
    }
}

/// Every stack is compared by both walks, and with libgcc's; nowhere does ours end earlier.
fn assert_equal(modes: &str, command: &[&str], at_least: u64) {
    let compared = Comparing::new(modes, command).run();
    assert!(compared.equal >= at_least && compared.frames >= compared.equal, "{command:?}: {compared:?}");
    assert_eq!(compared.ours_ends_earlier, 0, "{command:?}");
    // All of these have frame information for all of their code, up to the root.
    assert_eq!(compared.libgcc_ends_earlier, 0, "{command:?}");
}

#[test]
fn stacks_of_python_are_libgccs() {
    let json = "import json\nfor i in range(3): json.loads(json.dumps([{'a': i, 'b': [1, 2]} for i in range(20000)]))";
    assert_equal("allocs", &[&programs::python(), "-c", json], 1_000_000);
    assert_equal("heap,cpu", &[&programs::python(), "-c", "import json, re, unittest"], 100_000);
}

/// Through the fronts of slots: it has a malloc of its own.
#[test]
fn stacks_of_rustc_itself_are_libgccs() {
    let directory = scratch();
    let source = directory.path().join("small.rs");
    std::fs::write(&source, "pub fn f(s: &str) -> u64 { s.lines().filter_map(|l| l.parse::<u64>().ok()).sum() }\n")
        .unwrap();
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]));
    let rustc = format!("{}/bin/rustc", text(&sysroot.stdout).trim());
    let metadata = directory.path().join("small.rmeta");
    let arguments =
        ["--crate-type", "lib", "--emit", "metadata", "-o", metadata.to_str().unwrap(), source.to_str().unwrap()];
    assert_equal("heap", &[&[rustc.as_str()], &arguments[..]].concat(), 3_000);
}

#[test]
fn stacks_of_compilers_are_libgccs() {
    let directory = scratch();
    let object = directory.path().join("x.o");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims/hostile.c");
    let command = ["gcc", "-O2", "-c", source.to_str().unwrap(), "-o", object.to_str().unwrap()];
    assert_equal("allocs", &command, 100_000);
    assert_equal("heap,cpu", &command, 100_000);
}

#[test]
fn stacks_of_rust_are_libgccs() {
    assert_equal("allocs", &[build("victim-parses").to_str().unwrap()], 500_000);
    assert_equal("heap,cpu", &[build("victim-threads").to_str().unwrap()], 1_000);
}

#[test]
fn stacks_of_perl_are_libgccs() {
    let hash = "my %h = map { $_ => $_ x 3 } 1..50000; print scalar keys %h";
    assert_equal("allocs", &["perl", "-e", hash], 100_000);
}

#[test]
fn stacks_of_node_are_libgccs_up_to_code_made_at_run_time() {
    let script = "let a = []; for (let i = 0; i < 1e5; i++) a.push({i}); console.log(JSON.stringify(a).length)";
    for modes in ["allocs", "heap,cpu"] {
        let compared = Comparing::new(modes, &["node", "-e", script]).run();
        assert!(compared.equal > 10_000, "{compared:?}");
        assert_eq!(compared.ours_ends_earlier, 0);
    }
}

#[test]
fn stacks_of_hostile_programs_are_libgccs() {
    let directory = scratch();
    let hostile = programs::compile_c("hostile", directory.path());
    for case in ["handlers", "libraries", "deep", "fibers"] {
        let compared = Comparing::new("allocs", &[hostile.to_str().unwrap(), case]).run();
        // glibc's first function of a coroutine has no frame information, and libgcc nothing to go on with.
        assert!(compared.libgcc_ends_earlier == 0 || case == "fibers", "{case}: {compared:?}");
        assert_eq!(compared.ours_ends_earlier, 0, "{case}");
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stacks_of_redis_are_libgccs() {
    let directory = scratch();
    let socket = directory.path().join("redis.sock");
    let socket = socket.to_str().unwrap();
    let server = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--io-threads", "2"];
    let mut comparing = Comparing::new("allocs,cpu", &server);
    let mut running = Server(comparing.command.stdout(std::process::Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(30);
    while !Path::new(socket).exists() {
        assert!(Instant::now() < deadline && running.0.try_wait().unwrap().is_none(), "redis-server does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let load = ["-s", socket, "-n", "2000", "-c", "8", "-q", "-t", "set,get,lpush,lrange_100,zadd,mset"];
    assert!(output(Command::new("redis-benchmark").args(load)).status.success());
    output(Command::new("redis-cli").args(["-s", socket, "shutdown", "nosave"]));
    assert!(running.0.wait().unwrap().success());
    let compared = comparing.compared();
    assert_eq!((compared.ours_ends_earlier, compared.libgcc_ends_earlier), (0, 0), "{compared:?}");
    assert!(compared.equal > 10_000, "{compared:?}");
}
