//! Programs that handle signals while they are recorded: each of their handlers is called as without the recorder, for the recorder's own signal too.

use profile_recorder_tests::{output, programs, run, scratch, text};
use std::process::Command;

/// Runs the program without and with the recorder, in modes that send signals.
fn assert_unchanged(program: &std::path::Path, arguments: &[&str], expected: &str) {
    let plain = output(Command::new(program).args(arguments));
    assert_eq!((text(&plain.stdout).as_str(), text(&plain.stderr).as_str()), (expected, ""), "without the recorder");
    for mode in ["cpu", "wall", "cpu,heap"] {
        let profile = program.with_extension("pb.gz");
        let mut recorded = run(&["record", "--quiet", "--mode", mode, "--hz", "997", "-o", profile.to_str().unwrap()]);
        let recorded = output(recorded.arg("--").arg(program).args(arguments));
        let what = format!("mode {mode}: {}", text(&recorded.stderr));
        assert_eq!((text(&recorded.stdout).as_str(), recorded.status.code()), (expected, Some(0)), "{what}");
    }
}

/// Threads of Rust have a signal stack of 8 KiB, and handlers that take more of it than that (pprof-rs) do not ask for it.
#[test]
fn a_handler_runs_on_the_stack_that_it_asked_for() {
    let directory = scratch();
    assert_unchanged(&programs::compile_c("small_signal_stacks", directory.path()), &[], "done\n");
}

/// `signal` is `__sysv_signal` for programs that ask for plain C or POSIX, and the C library's functions call each other past whoever stands in front of `sigaction`.
#[test]
fn an_action_is_what_the_program_said_by_whatever_function() {
    let directory = scratch();
    let program = programs::compile_c("actions", directory.path());
    let plain = output(&mut Command::new(&program));
    let said = text(&plain.stdout);
    assert!(said.ends_with("done\n"), "{said}");
    assert_unchanged(&program, &[], &said);
}

/// A tick comes with the signal that ends such a wait, or just after its handler: made again, the wait would never end.
#[test]
fn a_wait_for_a_signal_that_came_is_over() {
    let directory = scratch();
    let program = programs::compile_c("reaps", directory.path());
    let profile = directory.path().join("p.folded");
    for mode in ["cpu", "wall"] {
        let record = ["record", "--quiet", "--no-follow", "--mode", mode, "--hz", "4000", "-o"];
        let recorded = output(run(&record).arg(&profile).arg("--").arg(&program).arg("2000"));
        let said = (text(&recorded.stdout), recorded.status.code());
        assert_eq!(said, ("1 1\n2000\n".to_owned(), Some(0)), "mode {mode}: {}", text(&recorded.stderr));
    }
}

/// However the program makes the call: by functions of the C library's of today and of glibc 2.41, with and without frame pointers, and by `syscall`.
#[test]
fn a_wait_that_a_tick_breaks_off_goes_on() {
    let directory = scratch();
    let program = programs::compile_c("broken_off", directory.path());
    let profile = directory.path().join("p.folded");
    for mode in ["cpu", "wall"] {
        let record = ["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--"];
        let recorded = output(run(&record).arg(&program));
        let said = text(&recorded.stdout);
        let waits: Vec<&str> = said.lines().collect();
        assert_eq!(waits.len(), 6, "mode {mode}: {said}{}", text(&recorded.stderr));
        assert!(waits.iter().all(|wait| wait.ends_with(": 1")), "mode {mode}: {said}");
    }
}

/// What a program sets aside for the handler of a crash it may give to many threads, or release before its thread ends: ticks came there.
#[test]
fn a_signal_stack_is_what_the_program_said_and_ticks_leave_it_alone() {
    let directory = scratch();
    let program = programs::compile_c("signal_stacks", directory.path());
    for way in ["shared", "released", "coroutines", "refused"] {
        assert_unchanged(&program, &[way], "done\n");
    }
}

/// Where a signal that an instruction raises is blocked the kernel ends the process: the recorder blocked them while it did what no handler may come between.
#[test]
fn a_program_that_steps_through_itself_or_answers_its_own_system_calls_goes_on() {
    let directory = scratch();
    let program = programs::compile_c("steps_itself", directory.path());
    assert_unchanged(&program, &[], "done\n");
    let said = text(&output(Command::new(&program).arg("calls")).stdout);
    assert!(["done\n", "not supported\n"].contains(&said.as_str()), "{said}");
    assert_unchanged(&program, &["calls"], &said);
}
