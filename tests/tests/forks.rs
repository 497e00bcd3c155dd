//! A thousand processes that come out of a program whose threads allocate all the time: nobody waits forever, and every allocation of every process is counted.

use profile_recorder_tests::{folded, programs, scratch, text};

const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4";

/// Runs the victim in a mode and compares the profile with what the program says of itself.
fn assert_counted(how: &str, mode: &str, other_allocator: Option<&str>) {
    let directory = scratch();
    let program = programs::compile_c("multiplies", directory.path());
    let profile = directory.path().join("p.folded");
    let path = profile.to_str().unwrap();
    let mut command = programs::limited(&["record", "--mode", mode, "-o", path, "--", program.to_str().unwrap(), how]);
    if let Some(library) = other_allocator {
        command.env("LD_PRELOAD", library);
    }
    let recorded = command.output().unwrap();
    let (said, told) = (text(&recorded.stdout), text(&recorded.stderr));
    let what = format!("{how}, mode {mode}, {other_allocator:?}: {said}{told}");
    assert_eq!(recorded.status.code(), Some(0), "{what}");
    let said: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [parent, children, failed] = said[..] else { panic!("{what}") };
    assert_eq!(failed, 0, "{what}");
    assert!(told.contains("in 1,001 processes"), "the program and its thousand children: {what}");
    if mode == "allocs" {
        let (all, lost) = (folded::sum(&profile, ";allocate;"), folded::sum(&profile, "[lost: "));
        assert_eq!((all, lost), (parent + children, 0), "{what}");
    } else {
        assert_eq!(folded::sum(&programs::beside(&profile, "heap", mode), ";allocate;"), 0, "all was freed: {what}");
    }
}

/// A fork of a process whose pages are many takes longer than a period of the ticks, and ends all the same. `FORK_MIB=4096` is the large form.
#[test]
fn a_large_process_forks_under_ticks() {
    let directory = scratch();
    let program = programs::compile_c("large", directory.path());
    let profile = directory.path().join("p.folded");
    let mebibytes = std::env::var("FORK_MIB").unwrap_or_else(|_| "512".to_owned());
    let mut record = vec!["record", "--mode", "cpu,wall", "--hz", "1000", "-o", profile.to_str().unwrap(), "--"];
    record.extend([program.to_str().unwrap(), &mebibytes]);
    let recorded = programs::limited(&record).output().unwrap();
    let (said, told) = (text(&recorded.stdout), text(&recorded.stderr));
    println!("{said}{told}");
    assert_eq!(recorded.status.code(), Some(0), "{said}{told}");
    assert_eq!(said.lines().last(), Some("10 children"), "{said}{told}");
}

#[test]
fn a_thousand_forks_of_threads_that_allocate_are_counted_to_the_unit() {
    assert_counted("fork", "allocs", None);
}

#[test]
fn a_thousand_forks_free_what_was_allocated_before_and_after_them() {
    assert_counted("fork", "heap", None);
    assert_counted("fork", "heap,cpu", None);
}

#[test]
fn a_thousand_forks_with_another_allocator_are_counted_to_the_unit() {
    let jemalloc = programs::jemalloc();
    assert_counted("fork", "allocs", Some(jemalloc));
    assert_counted("fork", "heap,cpu", Some(jemalloc));
}

/// The C library allocates for the child's own agent, and the allocator's locks are its parent's until its fork hook has run.
#[test]
fn children_get_their_agent_after_the_allocator_has_its_locks_back() {
    for library in [programs::jemalloc(), TCMALLOC] {
        let directory = scratch();
        let program = programs::compile_c("forked", directory.path());
        let profile = directory.path().join("p.folded");
        let mut command = programs::limited(&["record", "--mode", "wall", "-o", profile.to_str().unwrap(), "--"]);
        let recorded = command.arg(&program).env("LD_PRELOAD", library).output().unwrap();
        let told = text(&recorded.stderr);
        assert_eq!((recorded.status.code(), text(&recorded.stdout).trim()), (Some(0), "150"), "{library}: {told}");
        assert!(told.contains("in 151 processes"), "{library}: {told}");
    }
}

#[test]
fn a_thousand_vforks_are_counted_to_the_unit() {
    assert_counted("vfork", "allocs", None);
    assert_counted("vfork", "heap,cpu", None);
}

#[test]
fn a_thousand_spawned_programs_are_counted_to_the_unit() {
    assert_counted("posix_spawn", "allocs", None);
    assert_counted("posix_spawn", "heap,cpu", None);
}
