//! Where there is no room for a recording, or no longer a way to it: the program does what it always does, and what was allocated is counted all the same.

use profile_recorder_tests::{counter, folded, programs, scratch, text};
use std::path::Path;
use std::process::Command;

/// What `full.c` and the C library below it allocate besides the 6,000 stacks: the buffer, and the second thread.
const STACKS: u64 = 6_000;
const BESIDES: std::ops::RangeInclusive<u64> = 2..=3;
const SIZES: [(&str, u64); 3] = [("1 MiB", 1 << 20), ("2 MiB", 2 << 20), ("4 MiB", 4 << 20)];

fn full(directory: &Path) -> String {
    programs::compile_c("full", directory).to_str().unwrap().to_owned()
}

/// A shell's command line that is recorded to `p.folded` of the directory, and what it must print and end with.
fn assert_unaffected(directory: &Path, mode: &str, shell: &str, printed: &str, code: i32) {
    let profile = directory.join("p.folded");
    let record = ["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--", "sh", "-c", shell];
    let recorded = programs::limited(&record).output().unwrap();
    let (out, err) = (text(&recorded.stdout), text(&recorded.stderr));
    assert_eq!((out.as_str(), err.as_str(), recorded.status.code()), (printed, "", Some(code)), "{shell}, mode {mode}");
}

#[test]
fn a_store_without_room_keeps_the_number_of_allocations() {
    let directory = scratch();
    let program = full(directory.path());
    for (size, bytes) in SIZES {
        let shell = format!("PROFILE_RECORDER_STORE_BYTES={bytes} exec {program}");
        assert_unaffected(directory.path(), "allocs", &shell, "6000\n", 3);
        let profile = directory.path().join("p.folded");
        let (lost, below) = (folded::sum(&profile, "[lost: store full]"), folded::sum(&profile, ";leaf;"));
        assert_eq!(lost + below, STACKS, "{size}: {lost} lost, {below} with their stacks");
        assert!(lost > STACKS / 20 && below > 0, "{size}: {lost} lost, {below} with their stacks");
        assert_unaffected(directory.path(), "heap,cpu", &shell, "6000\n", 3);
    }
}

/// What was lost is followed to its end like everything else: an early version told of it as live for ever.
#[test]
fn what_a_store_without_room_lost_is_not_live() {
    let directory = scratch();
    let program = full(directory.path());
    let shell = format!("PROFILE_RECORDER_STORE_BYTES={} exec {program}", 1 << 20);
    assert_unaffected(directory.path(), "heap", &shell, "6000\n", 3);
    let profile = directory.path().join("p.folded");
    assert_eq!(folded::sum(&profile, "[lost: store full]"), 0);
    // The buffer of the output, and what the shell had. Together the 6,000 blocks have three megabytes.
    let live = folded::sum(&profile, "");
    assert!((4096..65_536).contains(&live), "{live} bytes");
}

#[test]
fn a_store_without_room_agrees_with_the_independent_counter_about_python() {
    let directory = scratch();
    let library = counter::compile(directory.path());
    let script = "import json, re, argparse; print(len(json.dumps([{'a': str(i)} for i in range(2000)])))";
    for (size, bytes) in SIZES {
        let (counted, profile) = (directory.path().join(size), directory.path().join("p.folded"));
        let output = profile.to_str().unwrap();
        let variable = format!("PROFILE_RECORDER_STORE_BYTES={bytes}");
        let python = programs::python();
        let command = ["env", &variable, "PYTHONMALLOC=malloc", &python, "-c", script];
        let mut record = programs::limited(&["record", "--quiet", "--mode", "allocs", "-o", output, "--"]);
        let recorded = record.args(command).env("LD_PRELOAD", &library).env("COUNTER_FILE", &counted).output().unwrap();
        assert_eq!((text(&recorded.stdout).as_str(), recorded.status.code()), ("28890\n", Some(0)), "{size}");
        let counts = counter::read(&counted);
        let expected = counts.malloc + counts.calloc + counts.realloc + counts.posix_memalign + counts.aligned_alloc;
        assert_eq!(folded::sum(&profile, ""), expected, "{size}");
        assert!(folded::sum(&profile, "[lost: store full]") > 0 || bytes > 2 << 20, "{size}");
    }
}

#[test]
fn a_daemon_that_gave_up_its_rights_its_root_and_its_descriptors_is_recorded_to_its_end() {
    let directory = scratch();
    let program = full(directory.path());
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let shell = format!("exec {program} drop {}", empty.display());
    assert_unaffected(directory.path(), "allocs", &shell, "6000\n", 3);
    let profile = directory.path().join("p.folded");
    assert_eq!((folded::sum(&profile, ";leaf;"), folded::sum(&profile, "[lost: ")), (STACKS, 0));
}

/// The kernel ends a process that makes a file too large, by a signal.
#[test]
fn a_limit_on_the_size_of_files_ends_nobody() {
    let directory = scratch();
    let program = full(directory.path());
    for kilobytes in [0, 1, 100, 1000] {
        // Dash counts in blocks of 512 bytes.
        let shell = format!("ulimit -f {}; {program}", kilobytes * 2);
        assert_unaffected(directory.path(), "allocs", &shell, "6000\n", 3);
        assert_unaffected(directory.path(), "heap,cpu", &shell, "6000\n", 3);
    }
    // A store of the last of these was made, and is as small as it has to be.
    assert_unaffected(directory.path(), "allocs", &format!("ulimit -f 2000; {program}"), "6000\n", 3);
    let profile = directory.path().join("p.folded");
    let (lost, below) = (folded::sum(&profile, "[lost: store full]"), folded::sum(&profile, ";leaf;"));
    assert!(lost + below == STACKS && below > 0, "{lost} lost, {below} with their stacks");
}

#[test]
fn a_process_without_descriptors_or_address_space_does_its_work() {
    let directory = scratch();
    let program = full(directory.path());
    for limit in ["-n 4", "-v 40000", "-v 90000", "-v 200000", "-s 300", "-l 0"] {
        let shell = format!("ulimit {limit}; exec {program}");
        let plain = Command::new("sh").args(["-c", &shell]).output().unwrap();
        assert_eq!((text(&plain.stdout).as_str(), plain.status.code()), ("6000\n", Some(3)), "{limit}, alone");
        for mode in ["allocs", "heap,cpu"] {
            assert_unaffected(directory.path(), mode, &shell, "6000\n", 3);
        }
    }
}

#[test]
fn a_full_file_system_raises_no_signal() {
    let directory = scratch();
    let program = full(directory.path());
    let profile = directory.path().join("p.folded");
    // A namespace of its own, in which memory files have two megabytes; whoever is not root becomes it there.
    let inside = "mount -t tmpfs -o size=2m none /dev/shm && exec env -u XDG_RUNTIME_DIR TMPDIR=/dev/shm \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--map-root-user", "sh", "-c", inside, "sh"]);
    for mode in ["heap,cpu", "allocs"] {
        let record = programs::limited(&["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--"]);
        let mut command = Command::new(unshare.get_program());
        command.args(unshare.get_args()).arg(record.get_program()).args(record.get_args());
        let recorded = command.arg(&program).output().unwrap();
        let (out, err) = (text(&recorded.stdout), text(&recorded.stderr));
        assert_eq!((out.as_str(), err.as_str(), recorded.status.code()), ("6000\n", "", Some(3)), "mode {mode}");
    }
    let (lost, below) = (folded::sum(&profile, "[lost: store full]"), folded::sum(&profile, ";leaf;"));
    assert!(lost + below == STACKS && lost > 0 && below > 0, "{lost} lost, {below} with their stacks");
    assert!(BESIDES.contains(&(folded::sum(&profile, "") - STACKS)), "{}", folded::sum(&profile, ""));
}
