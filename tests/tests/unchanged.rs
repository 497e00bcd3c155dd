//! What a program cannot notice: errno, cancellation, signals, the blocks of its heap, and how small a signal stack is.

use profile_recorder_tests::{build, counter, folded, output, programs, run, scratch, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library whose file must be read for its frame information.
fn bare(directory: &Path) -> PathBuf {
    let flags = ["-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-exceptions", "-nostartfiles"];
    programs::compile_c_library("bare", directory, &flags)
}

/// Runs a case of `unchanged.c` without and with the recorder, and compares what it says. Returns the recorded stacks, folded.
fn assert_unchanged(case: &str, mode: &str, expected: &str) -> String {
    let directory = scratch();
    let program = programs::compile_c("unchanged", directory.path());
    let library = bare(directory.path());
    let arguments = [case, library.to_str().unwrap()];
    let plain = output(Command::new(&program).args(arguments));
    let folded = directory.path().join("p.folded");
    let mut record = vec!["record", "--quiet", "--mode", mode, "-o", folded.to_str().unwrap()];
    if mode.contains("cpu") {
        record.extend(["--hz", "997"]);
    }
    let recorded = output(run(&record).arg("--").arg(&program).args(arguments));
    assert!(text(&plain.stdout).ends_with(expected), "{}", text(&plain.stdout));
    assert_eq!(text(&recorded.stdout), text(&plain.stdout), "mode {mode}");
    assert_eq!((text(&recorded.stderr).as_str(), recorded.status), ("", plain.status), "mode {mode}");
    // Of several modes each has a file of its own.
    std::fs::read_to_string(folded).unwrap_or_default()
}

#[test]
fn errno_is_kept_by_allocations_that_read_files() {
    let folded = assert_unchanged("errno", "allocs", "errno\n");
    let through = folded.lines().find(|line| line.contains("bare_allocate"));
    let through = through.unwrap_or_else(|| panic!("{folded}"));
    assert!(through.contains(";main;") && !through.contains("[truncated"), "its file was read: {through}");
    assert_unchanged("errno", "heap", "errno\n");
}

#[test]
fn errno_is_kept_by_ticks() {
    let folded = assert_unchanged("errno", "cpu", "errno\n");
    assert!(folded.contains("main"), "{folded}");
    assert_unchanged("errno", "allocs,cpu", "errno\n");
}

#[test]
fn a_cancelled_thread_is_not_cancelled_inside_malloc() {
    for mode in ["allocs", "heap"] {
        assert_unchanged("cancel", mode, "allocated, then cancelled\ncancel\n");
    }
}

#[test]
fn the_dynamic_linker_allocates_nothing_for_the_recorder() {
    let directory = scratch();
    let path = directory.path();
    let program = programs::compile_c("unchanged", path);
    let variable = programs::compile_c_library("variable", path, &["-O2"]);
    let mut arguments = vec!["heap".to_owned(), bare(path).to_str().unwrap().to_owned()];
    for number in 0..40 {
        // Each is an object of its own.
        let copy = path.join(format!("libvariable{number}.so"));
        std::fs::copy(&variable, &copy).expect("a copy");
        arguments.push(copy.to_str().unwrap().to_owned());
    }
    let library = counter::compile(path);
    let count = |command: &mut Command, file: &str| {
        let counted = path.join(file);
        let ended = output(command.args(&arguments).env("LD_PRELOAD", &library).env("COUNTER_FILE", &counted));
        assert!(ended.status.success(), "{}{}", text(&ended.stdout), text(&ended.stderr));
        counter::read(&counted)
    };
    // The counter counts in recorded processes alone, which this variable marks.
    let plain = count(Command::new(&program).env("PROFILE_RECORDER_STORE", path), "plain");
    let profile = path.join("p.pb.gz");
    let mut recorded = run(&["record", "--quiet", "--mode", "allocs", "-o", profile.to_str().unwrap(), "--"]);
    assert_eq!(count(recorded.arg(&program), "recorded"), plain);
}

#[test]
fn rusts_small_signal_stacks_are_large_enough() {
    let directory = scratch();
    for mode in ["cpu", "cpu,allocs"] {
        let profile = directory.path().join("p.folded");
        let arguments = ["record", "--quiet", "--hz", "2000", "--mode", mode, "-o", profile.to_str().unwrap(), "--"];
        let recorded = output(run(&arguments).arg(build("victim-grows")));
        assert!(recorded.status.success(), "mode {mode}: {:?} {}", recorded.status, text(&recorded.stderr));
        assert_eq!(text(&recorded.stdout), "true\n");
    }
}

/// Threads that block everything and one that waits for signals: the signals are the program's own, and the threads' time is recorded.
#[test]
fn ticks_are_not_among_the_signals_that_a_program_waits_for() {
    let directory = scratch();
    let program = programs::compile_c("waits", directory.path());
    let program = program.to_str().unwrap();
    let profile = directory.path().join("p.folded");
    for way in ["sigwait", "sigwaitinfo", "sigtimedwait", "signalfd", "few", "cancel"] {
        let plain = Command::new(program).arg(way).output().unwrap();
        assert!(text(&plain.stdout).contains(if way == "cancel" { "cancelled 1" } else { "signal 15, wrong 1 0" }));
        for mode in ["allocs", "cpu", "heap,cpu"] {
            let mut record = vec!["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap()];
            if mode != "allocs" {
                record.extend(["--hz", "997"]);
            }
            record.extend(["--", program, way]);
            let recorded = programs::limited(&record).output().unwrap();
            let what = format!("{way}, mode {mode}: {}", text(&recorded.stderr));
            assert_eq!(text(&recorded.stdout), text(&plain.stdout), "{what}");
            assert_eq!(recorded.status.code(), plain.status.code(), "{what}");
            if mode == "cpu" {
                assert!(folded::sum(&profile, ";spin") > 0, "{what}");
            }
        }
    }
}
