//! Programs that are hard on whoever lives inside them: they print and end as without the recorder, in every mode.

#[path = "hostile/soak.rs"]
mod soak;

use profile_recorder_tests::{output, programs, run, scratch, text};

fn assert_survived(case: &str) {
    assert_survived_in(&["allocs", "heap", "cpu", "cpu,heap", "cpu,wall"], case);
}

fn assert_survived_in(modes: &[&str], case: &str) {
    let directory = scratch();
    let program = programs::compile_c("hostile", directory.path());
    for mode in modes {
        let profile = directory.path().join("p.pb.gz");
        let mut arguments = vec!["record", "--quiet", "--mode", mode];
        if mode.contains("cpu") || mode.contains("wall") {
            arguments.extend(["--hz", "997"]);
        }
        arguments.extend(["-o", profile.to_str().unwrap(), "--", program.to_str().unwrap(), case]);
        let recorded = output(&mut run(&arguments));
        assert_eq!(text(&recorded.stdout), format!("{case}\n"), "mode {mode}: {}", text(&recorded.stderr));
        assert_eq!((text(&recorded.stderr).as_str(), recorded.status.code()), ("", Some(0)), "mode {mode}");
    }
}

#[test]
fn ten_thousand_short_threads_are_survived() {
    assert_survived("churn");
}

#[test]
fn libraries_that_come_and_go_are_survived() {
    assert_survived("libraries");
}

#[test]
fn allocations_in_signal_handlers_are_survived() {
    assert_survived("signals");
}

#[test]
fn forks_while_threads_allocate_are_survived() {
    assert_survived("forks");
}

#[test]
fn children_that_no_fork_handler_announces_are_survived() {
    assert_survived("clones");
}

#[test]
fn threads_that_share_the_storage_of_others_are_survived() {
    assert_survived("guests");
}

#[test]
fn posix_spawn_and_vfork_are_survived() {
    assert_survived("spawns");
}

#[test]
fn a_hundred_thousand_frames_are_survived() {
    assert_survived("deep");
}

#[test]
fn stacks_of_sixteen_kilobytes_are_survived() {
    assert_survived("small");
}

#[test]
fn coroutines_on_their_own_stacks_are_survived() {
    assert_survived("fibers");
}

#[test]
fn alternate_stacks_and_long_jumps_are_survived() {
    assert_survived("handlers");
}

#[test]
fn threads_that_exit_and_are_cancelled_are_survived() {
    assert_survived("cancels");
}

/// A blocked thread is walked from outside; meanwhile it goes on and closes the library that it waited in.
#[test]
fn libraries_that_close_while_their_threads_are_looked_at_are_survived() {
    let directory = scratch();
    let program = programs::compile_c("closes", directory.path());
    let libraries = ["0.so", "1.so", "2.so", "3.so"].map(|name| directory.path().join(name));
    for library in &libraries {
        programs::gcc(Some("closed.c"), &["-O1", "-fomit-frame-pointer", "-shared", "-fPIC"], library);
    }
    let profile = directory.path().join("p.folded");
    let mut arguments =
        vec!["record", "--quiet", "--mode", "wall", "--hz", "4000", "-o", profile.to_str().unwrap(), "--"];
    arguments.extend([program.to_str().unwrap(), "15"]);
    arguments.extend(libraries.iter().map(|library| library.to_str().unwrap()));
    let recorded = output(&mut run(&arguments));
    assert_eq!(
        (text(&recorded.stdout).as_str(), recorded.status.code()),
        ("closed\n", Some(0)),
        "{:?}",
        recorded.status
    );
    let stacks = std::fs::read_to_string(profile).expect("the profile");
    assert!(stacks.contains(";closes;calls;waits;"), "stacks in the libraries");
}

/// In a look of `wall` too: the kernel keeps one SIGPROF for a thread, so one of the recorder's that waits must not be in the place of the program's.
#[test]
fn signals_of_the_same_number_all_come() {
    assert_survived("stray");
    assert_survived_in(&["wall"], "stray");
}
