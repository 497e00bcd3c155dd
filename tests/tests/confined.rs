//! Programs that confine themselves to a few system calls (seccomp): the recorder makes no call that would be their end.

use profile_recorder_tests::resident::Resident;
use profile_recorder_tests::{folded, programs, scratch, text};
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
fn a_service_that_may_not_do_what_debuggers_do_is_told_its_mistake_and_served() {
    let directory = scratch();
    let (service, log) = (programs::compile_c("service", directory.path()), directory.path().join("log"));
    let mut command = Command::new(service);
    command.args(["sh", "-c", "read line"]).env("PROFILE_RECORDER_ALLOC_INTERVAL", "often");
    let running = Resident::start(command.stderr(std::fs::File::create(&log).unwrap()));
    assert!(!running.get("/health").is_empty());
    let told = std::fs::read_to_string(log).unwrap();
    assert!(told.contains("PROFILE_RECORDER_ALLOC_INTERVAL"), "{told}");
}
