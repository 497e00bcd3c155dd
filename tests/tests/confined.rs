//! Programs that confine themselves to a few system calls (seccomp): the recorder makes no call that would be their end.

use profile_recorder_tests::resident::{Resident, serve};
use profile_recorder_tests::{folded, output, programs, scratch, text};
use std::io::{BufRead, BufReader};
use std::process::Command;

/// Runs the victim; the profile of its allocations must have all of them, and at most so many of them without their stack.
fn assert_survived(how: &str, most_lost: u64) {
    let directory = scratch();
    let program = programs::compile_c("confined", directory.path());
    let profile = directory.path().join("p.folded");
    let output = profile.to_str().unwrap();
    for (way, before) in [("prctl", 1_u64), ("syscall", 100), ("prctl", 5000)] {
        for mode in ["allocs", "heap,cpu", "cpu"] {
            let hz = if mode.contains("cpu") { "997" } else { "99" };
            let mut record = vec!["record", "--quiet", "--mode", mode, "-o", output];
            if mode.contains("cpu") {
                record.extend(["--hz", hz]);
            }
            let times = before.to_string();
            record.extend(["--", program.to_str().unwrap(), way, how, &times]);
            let recorded = programs::limited(&record).output().unwrap();
            let what = format!("{way} {how} {before}, mode {mode}: {}", text(&recorded.stderr));
            assert_eq!((text(&recorded.stdout).as_str(), recorded.status.code()), ("done\n", Some(0)), "{what}");
            if mode == "allocs" {
                let (lost, below) = (folded::sum(&profile, "[lost: "), folded::sum(&profile, ";leaf;"));
                assert_eq!(lost + below, before + 3000, "{what}");
                assert!(lost <= most_lost, "{lost} lost, {what}");
            }
        }
    }
}

#[test]
fn a_program_that_is_killed_at_an_unexpected_system_call_lives() {
    assert_survived("kill", 0);
}

#[test]
fn a_program_that_is_sent_a_signal_at_an_unexpected_system_call_receives_none() {
    assert_survived("trap", 0);
}

#[test]
fn a_program_whose_unexpected_system_calls_fail_is_recorded() {
    assert_survived("errno", 0);
}

/// Not even memory can be mapped there.
#[test]
fn a_program_in_strict_mode_lives() {
    assert_survived("strict", 3000);
}

#[test]
fn a_filter_that_the_kernel_does_not_take_changes_nothing() {
    assert_survived("refused", 0);
}

/// A line of the log goes to the host's stderr, which a thread with a table of descriptors of its own has to ask for.
#[test]
fn a_service_that_may_not_do_what_debuggers_do_is_told_its_mistake_and_goes_on() {
    let directory = scratch();
    let (service, log) = (programs::compile_c("service", directory.path()), directory.path().join("log"));
    let mut command = Command::new(service);
    // It waits for what it is told.
    command.args(["sh", "-c", "until test -s \"$0\"; do :; done; echo done"]).arg(&log);
    command.env("PROFILE_RECORDER_ALLOC_INTERVAL", "often").stderr(std::fs::File::create(&log).unwrap());
    let ran = serve(&mut command, directory.path()).output().unwrap();
    assert_eq!((text(&ran.stdout).as_str(), ran.status.code()), ("done\n", Some(0)), "{:?}", ran.status);
    let told = std::fs::read_to_string(log).unwrap();
    assert!(told.contains("PROFILE_RECORDER_ALLOC_INTERVAL"), "{told}");
}

/// Names are found by a thread that lets the others go before.
#[test]
fn a_service_that_may_not_change_priorities_is_asked_for_profiles_and_goes_on() {
    let directory = scratch();
    let mut service = Command::new(programs::compile_c("service", directory.path()));
    let mut running = Resident::start(service.args(["sh", "-c", "echo on; while :; do :; done"]));
    let mut line = String::new();
    BufReader::new(running.child().stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "on\n");
    let pid = running.child().id();
    // From here on the server is the shell's.
    running.wait_for_server(pid);
    for question in ["cpu?seconds=1&format=collapsed", "wall?seconds=1&format=collapsed"] {
        let answer = running.get(&format!("/debug/pprof/{question}"));
        assert!(text(&answer).contains("main"), "{question}: {}", text(&answer));
    }
    assert!(running.child().try_wait().unwrap().is_none());
}

/// Asks the kernel in one of these ways what it can confine, and says the same as without the recorder; the elapsed time since then is recorded.
fn assert_goes_on(how: &str) {
    let directory = scratch();
    let program = programs::compile_c("probes", directory.path());
    let plain = output(Command::new(&program).args([how, "1"]));
    let said = text(&plain.stdout);
    assert!(said.ends_with("probed\n"), "{said}");
    let profile = directory.path().join("p.folded");
    for mode in ["wall", "cpu,wall"] {
        let arguments = ["record", "--quiet", "--mode", mode, "--hz", "997", "-o", profile.to_str().unwrap(), "--"];
        let recorded = programs::limited(&arguments).arg(&program).args([how, "500"]).output().unwrap();
        assert_eq!(text(&recorded.stdout), said, "mode {mode}: {}", text(&recorded.stderr));
        let wall = programs::beside(&profile, "wall", mode);
        assert!(folded::sum(&wall, ";goes_on;") > 0, "{how}, mode {mode}: what came after is recorded");
    }
    let mut running = Resident::start(Command::new(&program).arg(how));
    let mut line = String::new();
    let stdout = running.child().stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, said);
    // Where it had to end for a moment, it may not listen yet.
    let pid = running.child().id();
    running.wait_for_server(pid);
    assert_eq!(text(&running.get("/health")).trim(), "OK");
}

#[test]
fn a_program_that_asks_what_the_kernel_can_confine_is_recorded_further() {
    assert_goes_on("probes");
}

#[test]
fn a_program_whose_filter_the_kernel_refuses_is_recorded_further() {
    assert_goes_on("refused");
}
