//! A recording that ends badly is still a whole profile.

use profile_recorder_tests::resident::serve;
use profile_recorder_tests::{output, pprof, programs, run, scratch, text};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

fn assert_recorded(how: &str, code: Option<i32>, signal: Option<i32>) {
    let directory = scratch();
    let program = programs::compile_c("ending", directory.path());
    let profile = directory.path().join("p.pb.gz");
    let path = profile.to_str().unwrap();
    let recorded =
        output(&mut run(&["record", "--quiet", "--mode", "allocs", "-o", path, "--", program.to_str().unwrap(), how]));
    assert_eq!((recorded.status.code(), recorded.status.signal()), (code, signal), "{how}: {}", text(&recorded.stderr));
    let top = pprof::go(&["-top", "-cum", "-sample_index=alloc_objects"], path);
    let work = top.lines().find(|line| line.trim_end().ends_with(" work")).unwrap_or_else(|| panic!("{how}: {top}"));
    assert_eq!(work.split_whitespace().nth(3), Some("5000"), "{how}: {top}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "the program and the profile, nothing else");
}

#[test]
fn a_program_that_returns_is_recorded() {
    assert_recorded("return", Some(0), None);
}

#[test]
fn a_program_that_calls_underscore_exit_is_recorded() {
    assert_recorded("_exit", Some(7), None);
}

#[test]
fn a_program_that_aborts_is_recorded() {
    assert_recorded("abort", None, Some(6));
}

#[test]
fn a_program_that_crashes_is_recorded() {
    assert_recorded("segv", None, Some(11));
}

#[test]
fn a_program_that_is_killed_is_recorded() {
    assert_recorded("kill", None, Some(9));
}

/// The recorder has a thread in it, which the C library counts.
#[test]
fn a_process_that_ends_with_its_last_thread_ends() {
    let directory = scratch();
    let program = programs::compile_c("last", directory.path());
    let profile = directory.path().join("p.folded");
    let record = ["record", "--quiet", "--mode", "wall", "-o", profile.to_str().unwrap(), "--"];
    let once = [("call", "2"), ("instruction", "2")];
    let often = [("main", "1"), ("main", "2"), ("main", "30"), ("stays", "4"), ("child", "3")];
    for (how, count, rounds) in
        once.map(|(how, count)| (how, count, 1)).into_iter().chain(often.map(|(how, count)| (how, count, 10)))
    {
        let alone = output(Command::new(&program).args([how, count]));
        assert!(text(&alone.stdout).ends_with("ends\n"), "{how} {count}: {}", text(&alone.stdout));
        for round in 0..rounds {
            let recorded = output(programs::limited(&record).arg(&program).args([how, count]));
            let mut serving = Command::new("timeout");
            let served = output(serve(serving.arg("60").arg(&program).args([how, count]), directory.path()));
            for (with, ran) in [("recorded", recorded), ("served", served)] {
                let what = format!("{how} {count}, {with}, round {round}: {}", text(&ran.stderr));
                assert_eq!((text(&ran.stdout), ran.status), (text(&alone.stdout), alone.status), "{what}");
            }
        }
    }
}
