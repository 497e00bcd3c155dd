//! Programs that nobody here wrote print and end the same with and without the recorder, and are recorded.

use profile_recorder_tests::terminal::{PROMPT, Terminal};
use profile_recorder_tests::{folded, output, place_program, pprof, profrec, programs, run, scratch, text};
use std::path::Path;
use std::process::{Command, Output};

/// Runs a command without and with the recorder in each mode, and compares what a user sees. `ignore` blanks what differs between any two runs.
fn assert_harmless(command: &[&str], ignore: fn(&str) -> String) {
    let plain = output(Command::new(command[0]).args(&command[1..]));
    for mode in ["allocs", "heap", "cpu", "allocs,cpu"] {
        let directory = scratch();
        let profile = directory.path().join("p.pb.gz");
        let mut arguments = vec!["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--"];
        arguments.extend(command);
        let recorded = output(&mut run(&arguments));
        assert_same(&plain, &recorded, ignore, &format!("{command:?}, mode {mode}"));
        let written: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().map(|e| e.path()).collect();
        assert_eq!(written, std::slice::from_ref(&profile));
        if mode == "allocs" {
            assert!(pprof::total(&profile, "alloc_objects") > 0, "{command:?}");
        }
    }
    let directory = scratch();
    let counts = directory.path().join("counts");
    let counted = output(run(&["stat", "-o", counts.to_str().unwrap(), "--"]).args(command));
    assert_same(&plain, &counted, ignore, &format!("{command:?}, stat"));
}

fn assert_same(plain: &Output, recorded: &Output, ignore: fn(&str) -> String, what: &str) {
    assert_eq!(ignore(&text(&plain.stdout)), ignore(&text(&recorded.stdout)), "standard output of {what}");
    assert_eq!(ignore(&text(&plain.stderr)), ignore(&text(&recorded.stderr)), "standard error of {what}");
    assert_eq!(plain.status, recorded.status, "end of {what}");
}

fn as_it_is(text: &str) -> String {
    text.to_owned()
}

/// Digits differ where times are printed.
fn without_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[test]
fn python_runs_a_test_module_of_its_own_standard_library() {
    assert_harmless(&[&programs::python(), "-m", "unittest", "-q", "test.test_heapq"], without_digits);
}

#[test]
fn python_with_threads_and_subprocesses_runs_as_before() {
    let script = "import subprocess, threading, sys\n\
        out = []\n\
        def work(): out.append(subprocess.run([sys.executable, '-c', 'print(6*7)'], check=True, capture_output=True).stdout)\n\
        threads = [threading.Thread(target=work) for _ in range(4)]\n\
        [t.start() for t in threads]; [t.join() for t in threads]; print(out); sys.exit(3)";
    assert_harmless(&[&programs::python(), "-c", script], as_it_is);
}

#[test]
fn gcc_compiles_a_real_file() {
    let directory = scratch();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/counter.c");
    let object = directory.path().join("counter.o");
    assert_harmless(&["gcc", "-O2", "-Wall", "-c", source.to_str().unwrap(), "-o", object.to_str().unwrap()], as_it_is);
    assert!(object.exists());
}

#[test]
fn git_prints_the_log() {
    let directory = scratch();
    let path = directory.path().to_str().unwrap();
    let setup = format!(
        "cd {path} && git init -q . && git config user.name x && git config user.email x@example.org && \
         for i in 1 2 3 4 5; do echo $i > f && git add f && git commit -qm \"commit $i\"; done"
    );
    assert!(Command::new("sh").args(["-c", &setup]).status().unwrap().success());
    assert_harmless(&["git", "-C", path, "log", "--stat"], as_it_is);
}

#[test]
fn node_evaluates() {
    assert_harmless(&["node", "-e", "console.log(JSON.stringify([1,2,3].map(x => ({x}))))"], as_it_is);
}

#[test]
fn perl_runs() {
    assert_harmless(
        &["perl", "-e", "my %h = map { $_ => $_ x 3 } 1..1000; print scalar(keys %h), qq(\\n); exit 4"],
        as_it_is,
    );
}

/// It runs the program's every instruction itself, the recorder's too, and complains on the program's standard error.
#[test]
fn valgrind_has_nothing_to_complain_of() {
    let directory = scratch();
    let program = programs::compile_c("chain", directory.path());
    let program = program.to_str().unwrap();
    assert_harmless(&["valgrind", "-q", "--error-exitcode=9", program, "allocs"], as_it_is);
}

#[test]
fn a_wrapper_script_that_execs_the_real_program_is_followed() {
    let directory = scratch();
    let wrapper = directory.path().join("wrapper");
    let script = format!("#!/bin/sh\nif true; then exec {} \"$@\"; fi\n", programs::python());
    let written = directory.path().join("script");
    std::fs::write(&written, script).unwrap();
    place_program(&written, &wrapper);
    assert!(Command::new("chmod").arg("+x").arg(&wrapper).status().unwrap().success());
    let wrapper = wrapper.to_str().unwrap();
    assert_harmless(&[wrapper, "-c", "print(sum(len(str(i)) for i in range(1000)))"], as_it_is);
    let profile = directory.path().join("p.folded");
    let path = profile.to_str().unwrap();
    let run = output(&mut run(&[
        "record",
        "--quiet",
        "--no-follow",
        "--mode",
        "allocs",
        "-o",
        path,
        "--",
        wrapper,
        "-c",
        "pass",
    ]));
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert!(
        std::fs::read_to_string(profile).unwrap().contains("Py_RunMain"),
        "the interpreter's stacks are there without --follow too"
    );
}

#[test]
fn a_program_that_forks_and_execs_is_followed_through_all_of_it() {
    let directory = scratch();
    let program = programs::compile_c("forks", directory.path());
    assert_harmless(&[program.to_str().unwrap()], as_it_is);
    let profile = directory.path().join("p.pb.gz");
    let path = profile.to_str().unwrap();
    let recorded =
        output(&mut run(&["record", "--quiet", "--mode", "allocs", "-o", path, "--", program.to_str().unwrap()]));
    assert_eq!(recorded.status.code(), Some(5));
    let top = pprof::go(&["-top", "-cum", "-sample_index=alloc_objects"], path);
    let line = top.lines().find(|line| line.trim_end().ends_with(" allocate")).unwrap_or_else(|| panic!("{top}"));
    assert_eq!(
        line.split_whitespace().nth(3),
        Some("600"),
        "100 in the parent, 200 in the child, 300 after exec:\n{top}"
    );
    let alone = directory.path().join("alone.pb.gz");
    let path = alone.to_str().unwrap();
    output(&mut run(&[
        "record",
        "--quiet",
        "--no-follow",
        "--mode",
        "allocs",
        "-o",
        path,
        "--",
        program.to_str().unwrap(),
    ]));
    let top = pprof::go(&["-top", "-cum", "-sample_index=alloc_objects"], path);
    let line = top.lines().find(|line| line.trim_end().ends_with(" allocate")).unwrap_or_else(|| panic!("{top}"));
    assert_eq!(line.split_whitespace().nth(3), Some("100"), "the parent alone:\n{top}");
}

#[test]
fn redis_serves_its_benchmark() {
    let directory = scratch();
    let socket = directory.path().join("redis.sock");
    let profile = directory.path().join("redis.pb.gz");
    let mut server =
        run(&["record", "--quiet", "--mode", "allocs,cpu", "-o", profile.to_str().unwrap(), "--", "redis-server"])
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket"])
            .arg(&socket)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("profrec runs");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !socket.exists() {
        assert!(std::time::Instant::now() < deadline, "redis-server does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let socket = socket.to_str().unwrap();
    let load = ["-s", socket, "-n", "20000", "-r", "1000", "-t", "set,lpush,get", "-P", "16", "-q"];
    let benchmark = output(Command::new("redis-benchmark").args(load));
    assert!(benchmark.status.success(), "{}", text(&benchmark.stderr));
    output(Command::new("redis-cli").args(["-s", socket, "shutdown", "nosave"]));
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(pprof::total(&profile, "alloc_objects") > 20_000, "its own allocator, jemalloc, is seen too");
    for column in ["alloc_objects", "cpu"] {
        let top = pprof::go(&["-top", "-cum", &format!("-sample_index={column}")], profile.to_str().unwrap());
        assert!(top.contains("main"), "{column}: {top}");
    }
}

#[test]
fn ctrl_c_in_a_terminal_ends_the_command_once_and_what_was_recorded_is_written() {
    let directory = scratch();
    let terminal = Terminal::start(100, 20, &[]);
    let profile = directory.path().join("p.folded");
    let record = format!("{} record --mode allocs -o {} --", profrec().display(), profile.display());
    // Where the command's output goes elsewhere, a line shows what is recorded so far.
    terminal.enter(&format!("{record} sleep 60 >/dev/null"));
    terminal.see(" s, 1 process");
    terminal.key("C-c");
    terminal.wait_for("the summary", |screen| screen.contains("wrote ") && screen.trim_end().ends_with(PROMPT));
    terminal.enter("echo \"ended $?\"");
    let screen = terminal.see("ended 130\n");
    assert!(!screen.contains(" s, 1 process"), "the line is wiped out:\n{screen}");
    assert!(folded::sum(&profile, "") > 0);
}
