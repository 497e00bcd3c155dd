//! Programs that take liberties with processes, threads, stacks and limits: they print and end the same when recorded, in every mode.

use profile_recorder_tests::resident::{Resident, serve};
use profile_recorder_tests::{folded, output, programs, scratch, text};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

#[test]
fn programs_that_take_liberties_are_recorded_and_notice_nothing() {
    let directory = scratch();
    let program = programs::compile_c("liberties", directory.path());
    let program = program.to_str().unwrap();
    let profile = directory.path().join("p.folded");
    let cases =
        ["daemon", "shared", "clone", "smallest", "stack", "detached", "name", "locked", "signals", "memlock", "files"];
    for case in cases {
        let plain = Command::new(program).arg(case).output().unwrap();
        assert_eq!((text(&plain.stdout).as_str(), plain.status.code()), ("ok\n", Some(3)), "{case}, alone");
        for mode in ["allocs", "heap,cpu", "cpu"] {
            let mut record = vec!["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap()];
            if mode.contains("cpu") {
                record.extend(["--hz", "997"]);
            }
            record.extend(["--", program, case]);
            let recorded = programs::limited(&record).output().unwrap();
            let (out, err) = (text(&recorded.stdout), text(&recorded.stderr));
            let what = format!("{case}, mode {mode}");
            assert_eq!((out.as_str(), err.as_str(), recorded.status.code()), ("ok\n", "", Some(3)), "{what}");
            if mode == "allocs" {
                assert!(folded::sum(&profile, ";work;malloc") >= 3000, "{what}");
            }
        }
    }
}

/// A process that gave up its rights is not dumpable: where its threads wait the kernel does not tell it. None is asked then, which would have it wait anew, again and again; those that run are.
#[test]
fn waits_of_a_program_that_gave_up_its_rights_end_when_they_should() {
    let directory = scratch();
    let program = programs::compile_c("gives_up", directory.path());
    let said = "0 broken off, 0 early\n";
    assert_eq!(text(&output(&mut Command::new(&program)).stdout), said, "alone");
    let profile = directory.path().join("p.folded");
    for mode in ["cpu", "wall", "cpu,wall"] {
        let mut record =
            programs::limited(&["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--"]);
        let recorded = record.arg(&program).output().unwrap();
        let what = format!("mode {mode}: {}", text(&recorded.stderr));
        assert_eq!((text(&recorded.stdout).as_str(), recorded.status.code()), (said, Some(0)), "{what}");
        assert!(folded::sum(&profile, "start_thread;work") > 50_000_000, "{what}");
        if mode != "cpu" {
            // Two threads, for 600 milliseconds each.
            assert!(folded::sum(&profile, "[truncated: stack unreadable]") > 1_000_000_000, "{what}");
        }
    }
}

/// The C library changes credentials on all threads, and aborts where one has another result than the rest: the recorder's threads may do what the thread may that makes the call. (Not run by
/// root, the program shows only that all is refused as without the recorder.)
#[test]
fn a_program_becomes_another_user_with_what_capabilities_it_takes() {
    let directory = scratch();
    let program = programs::compile_c("credentials", directory.path());
    let profile = directory.path().join("p.folded");
    for arguments in [&[][..], &["threads"]] {
        let plain = output(Command::new(&program).args(arguments));
        let said = |output: &std::process::Output| {
            (text(&output.stdout), text(&output.stderr), output.status.code(), output.status.signal())
        };
        assert_eq!(plain.status.code(), Some(3), "alone: {:?}", said(&plain));
        for mode in ["cpu", "wall", "cpu,wall"] {
            let mut record = programs::limited(&["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap()]);
            let recorded = record.arg("--").arg(&program).args(arguments).output().unwrap();
            assert_eq!(said(&recorded), said(&plain), "mode {mode}, {arguments:?}");
            assert!(folded::sum(&profile, ";main;work") > 150_000_000, "mode {mode}: recorded afterwards");
        }
        // Only root may make a socket here: the server goes on with the one that it has.
        let mut serving = Command::new("timeout");
        let served = output(serve(serving.arg("60").arg(&program).args(arguments), directory.path()));
        assert_eq!(said(&served), said(&plain), "server, {arguments:?}");
    }
}

/// The address sanitizer insists on being loaded first, and ends the program otherwise; it need not be.
#[test]
fn a_program_with_the_address_sanitizer_is_recorded_once_that_lets_others_before_it() {
    let directory = scratch();
    let (program, profile) = (directory.path().join("sanitized"), directory.path().join("p.folded"));
    programs::gcc(Some("family.c"), &["-fsanitize=address", "-g", "-lpthread"], &program);
    let program = program.to_str().unwrap();
    let record = ["record", "--quiet", "--mode", "allocs", "-o", profile.to_str().unwrap(), "--", program];
    let refused = programs::limited(&record).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("does not come first in initial library list"), "{}", text(&refused.stderr));
    let options = "verify_asan_link_order=0:detect_leaks=0";
    let plain = Command::new(program).env("ASAN_OPTIONS", options).output().unwrap();
    let recorded = programs::limited(&record).env("ASAN_OPTIONS", options).output().unwrap();
    assert_eq!(text(&recorded.stdout), text(&plain.stdout));
    assert_eq!((text(&recorded.stderr), recorded.status.code()), (String::new(), plain.status.code()));
    assert_eq!(folded::sum(&profile, ";main;calloc"), 900);
}

/// What a sanitizer stands in front of, the recorder reaches behind it; and it leaves nothing that one could take for the program's.
#[test]
fn programs_with_sanitizers_are_recorded_in_every_mode_and_end_as_they_would() {
    let directory = scratch();
    let (program, profile) = (directory.path().join("sanitized"), directory.path().join("p.folded"));
    let program = program.to_str().unwrap();
    for sanitizer in ["address", "thread", "undefined"] {
        programs::gcc(Some("sanitized.c"), &["-g", &format!("-fsanitize={sanitizer}")], program.as_ref());
        let run = |command: &mut Command| {
            let output = command.env("ASAN_OPTIONS", "verify_asan_link_order=0").output().unwrap();
            (text(&output.stdout), text(&output.stderr), output.status.code())
        };
        let plain = run(&mut Command::new(program));
        assert_eq!((plain.1.as_str(), plain.2), ("", Some(5)), "{sanitizer}");
        for (mode, of, at_least) in [
            ("allocs", ";main;obtain;malloc", 1_000),
            ("heap", ";main;obtain;malloc", 1),
            ("cpu", ";main;work", 100_000_000),
            ("wall", ";main;work", 100_000_000),
        ] {
            let record = ["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--", program];
            assert_eq!(run(&mut programs::limited(&record)), plain, "{sanitizer}, {mode}");
            let sum = folded::sum(&profile, of);
            assert!(sum >= at_least, "{sanitizer}, {mode}: {sum} of {of}");
        }
    }
}

/// The kernel does not change the user namespace of a process with several threads.
#[test]
fn a_program_that_enters_a_user_namespace_has_one_thread_for_that() {
    const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
  (void)argv;
  errno = 77;
  int entered = argc > 1 ? (int)syscall(SYS_unshare, CLONE_NEWUSER) : unshare(CLONE_NEWUSER);
  printf("%d %d\n", entered, errno);
  int refused = unshare(1);
  printf("%d %d\n", refused, errno);
  return 4;
}"#;
    let directory = scratch();
    let program = programs::compile_source("enters", SOURCE, directory.path());
    let program = program.to_str().unwrap();
    let profile = directory.path().join("p.folded");
    let record = ["record", "--quiet", "--mode", "wall", "-o", profile.to_str().unwrap(), "--"];
    for command in [&[program][..], &[program, "by number"], &["unshare", "--user", "--map-root-user", "id", "-u"]] {
        let alone = output(Command::new(command[0]).args(&command[1..]));
        let recorded = output(programs::limited(&record).args(command));
        let mut serving = Command::new("timeout");
        let served = output(serve(serving.arg("60").args(command), directory.path()));
        for (with, ran) in [("recorded", recorded), ("served", served)] {
            assert_eq!(text(&ran.stdout), text(&alone.stdout), "{command:?}, {with}: {}", text(&ran.stderr));
            assert_eq!(ran.status, alone.status, "{command:?}, {with}");
        }
    }
}

/// The dynamic linker asks the executable first, and takes whatever it has under a name for what a library means: the recorder calls the C library all the same.
#[test]
fn a_program_that_has_functions_under_names_of_the_c_library_is_not_called_by_them() {
    let directory = scratch();
    let (program, profile) = (directory.path().join("taken"), directory.path().join("p.folded"));
    programs::gcc(Some("taken.c"), &["-rdynamic", "-g", "-w"], &program);
    let said = |output: &std::process::Output| (text(&output.stdout), text(&output.stderr), output.status.code());
    let expected = ("done\n".to_owned(), String::new(), Some(3));
    assert_eq!(said(&Command::new(&program).output().unwrap()), expected, "alone");
    for (mode, of, at_least) in [
        ("allocs", ";main;malloc", 1_000),
        ("heap", ";main;malloc", 1),
        ("cpu", ";main;work", 250_000_000),
        ("cpu,wall", ";main;work", 250_000_000),
    ] {
        let record = ["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--"];
        assert_eq!(said(&programs::limited(&record).arg(&program).output().unwrap()), expected, "{mode}");
        let sum = folded::sum(&profile, of);
        assert!(sum >= at_least, "{mode}: {sum} of {of}");
    }
    let mut serving = Resident::start(Command::new(&program).arg("long"));
    let profile = text(&serving.get("/debug/pprof/profile?seconds=0.3&format=collapsed"));
    assert!(profile.contains(";main;work "), "{profile}");
    assert_eq!(serving.child().try_wait().unwrap(), None, "it goes on");
}

/// A library between the preload library and the C library has functions under their names, which mean more, or something else.
#[test]
fn functions_that_another_library_has_under_the_recorders_names_are_called_as_without_it() {
    let directory = scratch();
    let program = directory.path().join("others");
    programs::compile_c_library("others", directory.path(), &["-O1"]);
    let at = directory.path().display();
    let linked = [&format!("-L{at}"), "-lothers", &format!("-Wl,-rpath,{at}"), "-DPROGRAM", "-g"];
    programs::gcc(Some("others.c"), &linked, &program);
    let said = |output: &std::process::Output| (text(&output.stdout), text(&output.stderr), output.status.code());
    let expected = ("200 199 2 2 1 1 1 \nends with 10\n".to_owned(), String::new(), Some(10));
    assert_eq!(said(&Command::new(&program).output().unwrap()), expected, "alone");
    let profile = directory.path().join("p.folded");
    for mode in ["allocs", "heap", "cpu", "cpu,wall"] {
        let record = ["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--"];
        assert_eq!(said(&programs::limited(&record).arg(&program).output().unwrap()), expected, "{mode}");
    }
    let served = output(serve(Command::new("timeout").arg("60").arg(&program), directory.path()));
    assert_eq!(said(&served), expected, "server");
}

/// A program of one thread may have an allocator for one thread: the recorder's threads never come there.
#[test]
fn an_allocator_for_programs_of_one_thread_is_called_by_that_thread_alone() {
    let directory = scratch();
    let program = directory.path().join("single");
    programs::compile_c_library("single", directory.path(), &["-O1", "-fno-builtin"]);
    let at = directory.path().display();
    let linked = [&format!("-L{at}"), "-lsingle", &format!("-Wl,-rpath,{at}"), "-DPROGRAM", "-g"];
    programs::gcc(Some("single.c"), &linked, &program);
    let said = |output: &std::process::Output| (text(&output.stdout), text(&output.stderr), output.status.code());
    let expected = ("done\n".to_owned(), String::new(), Some(3));
    assert_eq!(said(&Command::new(&program).output().unwrap()), expected, "alone");
    let profile = directory.path().join("p.folded");
    for (mode, of, at_least) in [
        ("allocs", ";main;realloc", 1_000),
        ("heap", ";main;realloc", 64),
        ("cpu", ";main;work", 100_000_000),
        ("wall", ";main;", 300_000_000),
        ("cpu,wall,heap", ";main;", 300_000_000),
    ] {
        let record = ["record", "--quiet", "--mode", mode, "-o", profile.to_str().unwrap(), "--"];
        assert_eq!(said(&programs::limited(&record).arg(&program).output().unwrap()), expected, "{mode}");
        let profile = programs::beside(&profile, mode.split(',').next().unwrap(), mode);
        let sum = folded::sum(&profile, of);
        assert!(sum >= at_least, "{mode}: {sum} of {of}");
    }
    let mut serving = Resident::start(Command::new(&program).arg("10000"));
    for path in ["profile?seconds=0.2", "wall?seconds=0.2", "allocs?seconds=0.2", "heap?seconds=0.2", "threads?debug=2"]
    {
        assert!(!serving.get(&format!("/debug/pprof/{path}")).is_empty(), "{path}");
    }
    assert_eq!(serving.child().try_wait().unwrap(), None, "it goes on");
}
