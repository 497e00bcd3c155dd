//! Counts equal the truth: what an independent counter counts in the same run, and what a program is known to do.

use profile_recorder_tests::counter::{self, Counts};
use profile_recorder_tests::{build, output, pprof, programs, run, scratch, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs a command under `profrec stat` with the independent counter behind it; both counts.
fn both(command: &[&str], directory: &Path) -> (Counts, Value) {
    let library = counter::compile(directory);
    let counted = directory.join("counted");
    let json = directory.join("stat.json");
    let mut arguments = vec!["stat", "--json", "-o", json.to_str().unwrap(), "--"];
    arguments.extend(command);
    let run = output(run(&arguments).env("LD_PRELOAD", &library).env("COUNTER_FILE", &counted));
    assert!(run.status.success(), "{command:?}: {}", text(&run.stderr));
    let json = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    (counter::read(&counted), json)
}

fn calls(json: &Value, function: &str) -> u64 {
    json["functions"][function]["calls"].as_u64().unwrap_or(0)
}

fn assert_equal(command: &[&str]) {
    let directory = scratch();
    let (counted, json) = both(command, directory.path());
    assert_same_counts(&json, counted, &format!("{command:?}"));
    // The counter does not stand in front of these, which few programs call.
    let others = ["memalign", "valloc", "pvalloc"].map(|name| json["functions"][name]["bytes"].as_u64().unwrap_or(0));
    let ours = json["bytes"].as_u64().unwrap() - others.iter().sum::<u64>();
    assert_eq!(ours, counter::bytes(&directory.path().join("counted")), "{command:?}: bytes asked");
}

fn assert_same_counts(json: &Value, counted: Counts, what: &str) {
    let ours = Counts {
        malloc: calls(json, "malloc"),
        calloc: calls(json, "calloc"),
        realloc: calls(json, "realloc") + calls(json, "reallocarray"),
        posix_memalign: calls(json, "posix_memalign"),
        aligned_alloc: calls(json, "aligned_alloc"),
        free: calls(json, "free"),
    };
    assert_eq!(ours, counted, "{what}: ours, and the independent counter's");
    assert!(counted.malloc > 0);
}

#[test]
fn a_c_program_is_counted_to_the_unit() {
    let directory = scratch();
    assert_equal(&[programs::compile_c("family", directory.path()).to_str().unwrap()]);
}

#[test]
fn python_is_counted_to_the_unit() {
    let script = "import json, re; print(len(json.dumps([{'a': str(i)} for i in range(20000)])))";
    assert_equal(&[&programs::python(), "-c", script]);
}

#[test]
fn a_threaded_rust_program_is_counted_to_the_unit() {
    assert_equal(&[build("victim-threads").to_str().unwrap()]);
}

#[test]
fn a_compiler_with_its_children_is_counted_to_the_unit() {
    let directory = scratch();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims/burn.c");
    let object = directory.path().join("burn.o");
    assert_equal(&["gcc", "-O2", "-c", source.to_str().unwrap(), "-o", object.to_str().unwrap()]);
}

/// A server with an allocator of its own, a shared jemalloc: the calls of that library's functions.
#[test]
fn redis_under_load_is_counted_to_the_unit() {
    let directory = scratch();
    let library = counter::compile(directory.path());
    let (counted, json) = (directory.path().join("counted"), directory.path().join("stat.json"));
    let socket = directory.path().join("redis.sock");
    let socket = socket.to_str().unwrap();
    let mut server = run(&["stat", "--json", "-o", json.to_str().unwrap(), "--", "redis-server"])
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket", socket])
        .env("LD_PRELOAD", &library)
        .env("COUNTER_FILE", &counted)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let ask = |question: &[&str]| text(&output(Command::new("redis-cli").args(["-s", socket]).args(question)).stdout);
    while ask(&["ping"]) != "PONG\n" {
        assert!(std::time::Instant::now() < deadline, "redis-server starts");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let load = ["-s", socket, "-n", "20000", "-r", "1000", "-t", "set,lpush,hset,zadd", "-P", "16", "-q"];
    assert!(output(Command::new("redis-benchmark").args(load)).status.success());
    assert_eq!(ask(&["flushall", "async"]), "OK\n");
    ask(&["shutdown", "nosave"]);
    assert!(server.wait().unwrap().success());
    let json: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let counted = counter::read(&counted);
    assert!(counted.malloc > 80_000, "{counted:?}");
    assert_same_counts(&json, counted, "redis-server");
}

#[test]
fn node_is_counted_to_the_unit() {
    let script = "const l = []; for (let i = 0; i < 2000; i++) l.push(Buffer.alloc(20000, i)); \
        console.log(require('zlib').deflateSync(Buffer.concat(l.slice(0, 20))).length > 0)";
    assert_equal(&["node", "-e", script]);
}

/// Whole trees of processes among them: a shell that starts others, make with two jobs.
#[test]
fn programs_of_every_day_are_counted_to_the_unit() {
    let directory = scratch();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let lines: String = (0..20_000).map(|i| format!("line {} of many\n", i * 7919 % 20_000)).collect();
    std::fs::write(path("lines"), &lines).unwrap();
    std::fs::write(path("Makefile"), "all: a b c\na b c: lines\n\tsort lines > $@\n").unwrap();
    let perl = "my %h; $h{$_ % 999} .= \"x\" for 1 .. 50000; print scalar keys %h";
    let ruby = "puts (1..20000).map(&:to_s).sort.uniq.size";
    let shell = format!("for i in 1 2 3; do grep -c 7 {} | cat; done; ls -l / | wc -l", path("lines"));
    let url = format!("file://{}", path("lines"));
    let commands: [&[&str]; 9] = [
        &["perl", "-e", perl],
        &["ruby", "-e", ruby],
        &["bash", "-c", &shell],
        &["make", "-s", "-j2", "-C", directory.path().to_str().unwrap()],
        &["sort", "--parallel=2", "-S", "1M", "-o", &path("sorted"), &path("lines")],
        &["ls", "-lR", "/usr/include"],
        &["git", "diff", "--no-index", "--stat", &path("lines"), &path("lines")],
        &["curl", "-s", "-o", &path("copy"), &url],
        &["xz", "-k", "-f", "-T2", &path("lines")],
    ];
    commands.into_iter().for_each(assert_equal);
    assert_eq!(std::fs::read_to_string(path("copy")).unwrap(), lines);
}

#[test]
fn every_function_of_the_family_is_told_apart() {
    let directory = scratch();
    let program = programs::compile_c("family", directory.path());
    let json = directory.path().join("stat.json");
    let run = output(&mut run(&["stat", "--json", "-o", json.to_str().unwrap(), "--", program.to_str().unwrap()]));
    assert!(run.status.success(), "{}", text(&run.stderr));
    let json: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let known = [
        ("calloc", 900),
        ("realloc", 800),
        ("reallocarray", 70),
        ("posix_memalign", 60),
        ("aligned_alloc", 50),
        ("memalign", 40),
        ("valloc", 30),
        ("pvalloc", 20),
    ];
    for (function, times) in known {
        assert_eq!(calls(&json, function), times, "{function}");
    }
    // The C library itself asks for the buffer of standard output, and perhaps for more at its start.
    assert!((1002..1010).contains(&calls(&json, "malloc")), "{}", calls(&json, "malloc"));
    assert_eq!(json["functions"]["aligned_alloc"]["bytes"], 50 * 320);
}

/// One run that is counted and recorded at once: the sum over all stacks is the number of calls.
#[test]
fn the_stacks_of_a_profile_sum_to_the_exact_counts() {
    let directory = scratch();
    let library = counter::compile(directory.path());
    let victims = [
        vec![programs::python(), "-c".into(), "x=[str(i) for i in range(100000)]".into()],
        vec![build("victim-threads").to_str().unwrap().into()],
        vec![programs::compile_c("family", directory.path()).to_str().unwrap().into()],
    ];
    for (i, victim) in victims.iter().enumerate() {
        let counted = directory.path().join(format!("counted{i}"));
        let profile = directory.path().join(format!("{i}.pb.gz"));
        let mut arguments = vec!["record", "--quiet", "--mode", "allocs", "-o", profile.to_str().unwrap(), "--"];
        arguments.extend(victim.iter().map(String::as_str));
        let run = output(run(&arguments).env("LD_PRELOAD", &library).env("COUNTER_FILE", &counted));
        assert!(run.status.success(), "{victim:?}: {}", text(&run.stderr));
        let counts = counter::read(&counted);
        // The counter does not stand in front of memalign, valloc and pvalloc: `family` calls them 90 times.
        let unseen = if i == 2 { 90 } else { 0 };
        let expected =
            counts.malloc + counts.calloc + counts.realloc + counts.posix_memalign + counts.aligned_alloc + unseen;
        assert_eq!(pprof::total(&profile, "alloc_objects"), i64::try_from(expected).unwrap(), "{victim:?}");
    }
}

#[test]
fn go_names_the_functions_of_python_with_their_allocations() {
    let directory = scratch();
    let profile = directory.path().join("a.pb.gz");
    let python = programs::python();
    let script = "x=[str(i) for i in range(100000)]";
    let path = profile.to_str().unwrap();
    let run = output(&mut run(&["record", "--quiet", "--mode", "allocs", "-o", path, "--", &python, "-c", script]));
    assert!(run.status.success(), "{}", text(&run.stderr));
    let top = pprof::go(&["-top", "-cum", "-nodecount=200", "-sample_index=alloc_objects"], path);
    for name in ["Py_RunMain", "_PyEval_EvalFrameDefault", "malloc"] {
        assert!(
            top.lines().any(|line| line.split_whitespace().last() == Some(name) || line.contains(name)),
            "{name} in:\n{top}"
        );
    }
    // Complete stacks: everything but what the dynamic linker does before `main` lies below `main`.
    let total = pprof::total(&profile, "alloc_objects");
    let below_main = top
        .lines()
        .find(|line| line.split_whitespace().last().is_some_and(|name| name == "Py_BytesMain"))
        .and_then(|line| line.split_whitespace().nth(3)?.parse::<i64>().ok())
        .unwrap_or_else(|| panic!("Py_BytesMain in:\n{top}"));
    assert!(below_main * 100 >= total * 98, "{below_main} of {total} below Py_BytesMain:\n{top}");
}

#[test]
fn live_memory_is_what_was_allocated_and_not_freed() {
    let directory = scratch();
    let program = programs::compile_c("ending", directory.path());
    let profile = directory.path().join("h.pb.gz");
    let path = profile.to_str().unwrap();
    let run = output(&mut run(&["record", "--quiet", "--mode", "heap", "-o", path, "--", program.to_str().unwrap()]));
    assert!(run.status.success(), "{}", text(&run.stderr));
    let live = pprof::go(&["-top", "-cum", "-sample_index=inuse_objects"], path);
    let work = live.lines().find(|line| line.trim_end().ends_with(" work")).unwrap_or_else(|| panic!("{live}"));
    assert_eq!(work.split_whitespace().nth(3), Some("5000"), "{live}");
}
