//! A recording that ends badly is still a whole profile.

use profile_recorder_tests::{output, pprof, programs, run, scratch, text};
use std::os::unix::process::ExitStatusExt;

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
