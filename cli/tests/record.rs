//! `profrec record` leaves the command as it was, and writes what it did.

mod support;

use std::fs;
use std::io::Write;
use std::process::Stdio;
use support::{Place, Ran, collapsed_total, text};

/// Calls malloc a known number of times in a function of its own, then does as told.
const VICTIM: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void make_garbage(int n) {
    for (int i = 0; i < n; i++) { void *volatile p = malloc(100); free(p); }
    __asm__ volatile("");
}

__attribute__((noinline)) void spin_for_long(void) {
    for (volatile unsigned long i = 0; i < 300000000; i++) { }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    make_garbage(1000);
    if (!strcmp(how, "spin")) spin_for_long();
    if (!strcmp(how, "exit")) return 42;
    if (!strcmp(how, "_exit")) _exit(43);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "segv")) *(volatile int *)8 = 1;
    if (!strcmp(how, "pipe")) { signal(SIGPIPE, SIG_DFL); raise(SIGPIPE); }
    if (!strcmp(how, "fork")) {
        if (fork() == 0) { make_garbage(500); _exit(0); }
        int status; wait(&status);
    }
    return 0;
}
"#;

/// Starts many short children, some of which execute another program, or are killed. After each hundred it waits until few stores are left, or half a minute has passed and it has failed.
const PARENT: &str = r#"
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void make_garbage(int n) {
    for (int i = 0; i < n; i++) { void *volatile p = malloc(100); free(p); }
    __asm__ volatile("");
}

static int stores(void) {
    DIR *directory = opendir(getenv("PROFILE_RECORDER_STORE"));
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) count += strstr(entry->d_name, ".store") != 0;
    closedir(directory);
    return count;
}

static void wait_until_few_are_left(int few) {
    for (int i = 0; stores() > few; i++) {
        if (i == 3000) _exit(9);
        usleep(10000);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "leaf")) { make_garbage(5); return 0; }
    // Outlives its parent, whose store is gone by then.
    int ends[2];
    if (pipe(ends)) return 1;
    if (fork() == 0) {
        pid_t parent = getpid();
        if (fork() == 0) {
            for (int i = 0; getppid() == parent && i < 30000; i++) usleep(1000);
            wait_until_few_are_left(3);
            make_garbage(7);
            _exit(0);
        }
        make_garbage(2);
        _exit(0);
    }
    wait(0);
    for (int child = 1; child <= 1000; child++) {
        if (fork() == 0) {
            make_garbage(3);
            if (child % 10 == 0) raise(SIGKILL);
            if (child % 7 == 0) execl(argv[0], argv[0], "leaf", (char *)0);
            _exit(0);
        }
        wait(0);
        if (child % 100 == 0) wait_until_few_are_left(3);
    }
    close(ends[1]);
    char byte;
    return read(ends[0], &byte, 1);
}
"#;

fn place_with_victim() -> Place {
    let mut place = Place::new();
    place.compile("victim", VICTIM, &["-O1", "-g"]);
    place
}

#[test]
fn what_ended_processes_left_is_taken_up_while_others_run() {
    let mut place = Place::new();
    place.compile("parent", PARENT, &["-O1", "-g"]);
    let ran = place.run(&["record", "--mode", "allocs", "-o", "a.folded", "--", "./parent"]);
    ran.assert_code(0);
    let executed = (1..=1000).filter(|child| child % 7 == 0 && child % 10 != 0).count() as i64;
    assert_eq!(collapsed_total(place.path("a.folded"), "make_garbage"), 3 * 1000 + 5 * executed + 2 + 7);
    assert!(ran.stderr.contains("in 1,003 processes"), "{}", ran.stderr);
    place.assert_no_store_left();
}

#[test]
fn every_allocation_is_in_the_profile() {
    let place = place_with_victim();
    let ran = place.run(&["record", "--mode", "allocs", "-o", "a.folded", "--", "./victim"]);
    ran.assert_code(0);
    assert_eq!(collapsed_total(place.path("a.folded"), "make_garbage"), 1000);
    assert!(ran.stderr.contains("in 1 process") && ran.stderr.contains("wrote a.folded"), "{}", ran.stderr);
    assert_eq!(place.new_files(), ["a.folded"]);
    place.assert_no_store_left();
}

#[test]
fn cpu_time_is_where_it_was_spent() {
    let place = place_with_victim();
    place.run(&["record", "--hz", "999", "-o", "a.folded", "--", "./victim", "spin"]).assert_code(0);
    let (spin, all) =
        (collapsed_total(place.path("a.folded"), "spin_for_long"), collapsed_total(place.path("a.folded"), ""));
    assert!(spin * 10 > all * 9 && all > 50_000_000, "{spin} of {all} ns");
}

#[test]
fn exit_code_and_standard_streams_pass_through() {
    let place = Place::new();
    let script = "read line; echo \"out $line\"; echo err >&2; exit 3";
    let mut command = place.command(&["record", "--quiet", "-o", "a.folded", "--", "sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"in\n").unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap());
    ran.assert_code(3);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out in\n", "err\n"));
    assert_eq!(place.new_files(), ["a.folded"]);
}

#[test]
fn an_end_of_any_kind_is_passed_on_and_leaves_a_whole_profile() {
    let place = place_with_victim();
    let ends = [
        ("exit", Some(42), None),
        ("_exit", Some(43), None),
        ("abort", None, Some(6)),
        ("kill", None, Some(9)),
        ("segv", None, Some(11)),
        ("pipe", None, Some(13)),
    ];
    for (how, code, signal) in ends {
        let ran = place.run(&["record", "--mode", "allocs", "-o", "a.folded", "--", "./victim", how]);
        assert_eq!((ran.code, ran.signal), (code, signal), "{how}: {}", ran.stderr);
        assert_eq!(collapsed_total(place.path("a.folded"), "make_garbage"), 1000, "{how}");
        fs::remove_file(place.path("a.folded")).unwrap();
        place.assert_no_store_left();
    }
}

#[test]
fn children_are_followed_unless_told_otherwise() {
    let place = place_with_victim();
    let ran = place.run(&["record", "--mode", "allocs", "-o", "a.folded", "--", "./victim", "fork"]);
    assert!(ran.stderr.contains("in 2 processes"), "{}", ran.stderr);
    assert_eq!(collapsed_total(place.path("a.folded"), "make_garbage"), 1500);
    let ran = place.run(&["record", "--mode", "allocs", "--no-follow", "-o", "b.folded", "--", "./victim", "fork"]);
    assert!(ran.stderr.contains("in 1 process"), "{}", ran.stderr);
    assert_eq!(collapsed_total(place.path("b.folded"), "make_garbage"), 1000);
    // A shell that starts a program, and one that becomes it.
    for (script, follow, no_follow) in [("./victim; true", 1000, 0), ("exec ./victim", 1000, 1000)] {
        place.run(&["record", "--mode", "allocs", "-o", "c.folded", "--", "sh", "-c", script]).assert_code(0);
        assert_eq!(collapsed_total(place.path("c.folded"), "make_garbage"), follow, "{script}");
        place
            .run(&["record", "--mode", "allocs", "--no-follow", "-o", "d.folded", "--", "sh", "-c", script])
            .assert_code(0);
        assert_eq!(collapsed_total(place.path("d.folded"), "make_garbage"), no_follow, "{script}");
    }
}

#[test]
fn several_modes_are_in_one_file_where_the_format_can_hold_them_and_else_in_one_each() {
    let place = place_with_victim();
    let outputs = ["-o", "a.pb.gz", "-o", "a.profrec", "-o", "a.folded", "-o", "{EXE}.pb.gz"];
    let ran =
        place.run(&[&["record", "--mode", "cpu,allocs,heap"], &outputs[..], &["--", "./victim", "spin"]].concat());
    ran.assert_code(0);
    let files = ["a.allocs.folded", "a.cpu.folded", "a.heap.folded", "a.pb.gz", "a.profrec", "victim.pb.gz"];
    assert_eq!(place.new_files(), files);
    for file in files {
        assert!(ran.stderr.contains(file), "{}", ran.stderr);
    }
    let of = |name: &str| collapsed_total(place.path(name), "make_garbage");
    assert_eq!(of("a.allocs.folded"), 1000);
    assert_eq!(of("a.heap.folded"), 0, "all of them were freed");
    let cpu = collapsed_total(place.path("a.cpu.folded"), "");
    for file in ["a.pb.gz", "a.profrec", "victim.pb.gz"] {
        let bytes = fs::read(place.path(file)).unwrap();
        let (profile, _) = profile::decode::read(&bytes, profile::decode::Limits::default()).unwrap();
        let total = |kind: &str| profile.total(profile.column(kind).unwrap_or_else(|| panic!("no {kind} in {file}")));
        let all = collapsed_total(place.path("a.allocs.folded"), "");
        assert_eq!((total("cpu"), total("alloc_objects")), (cpu, all), "{file}");
        let live = collapsed_total(place.path("a.heap.folded"), "");
        assert_eq!(total("inuse_space"), live, "{file}");
        assert_eq!(&*profile.sample_types[profile.default_column()].kind, "cpu", "{file}");
    }
}

#[test]
fn every_format_is_written() {
    let place = place_with_victim();
    let begins: [(&str, &[u8]); 8] = [
        ("a.svg", b"<?xml"),
        ("a.html", b"<!"),
        ("a.pb.gz", b"\x1f\x8b"),
        ("a.pprof", b"\x1f\x8b"),
        ("a.perf", b""),
        ("a.folded", b""),
        ("a.collapsed", b""),
        ("a.json", b"{"),
    ];
    let mut arguments = vec!["record", "--mode", "allocs"];
    begins.iter().for_each(|(file, _)| arguments.extend(["-o", *file]));
    place.run(&[&arguments[..], &["--", "./victim"]].concat()).assert_code(0);
    for (file, begin) in begins {
        let content = fs::read(place.path(file)).unwrap();
        assert!(content.len() > 20 && content.starts_with(begin), "{file}");
    }
}

#[test]
fn the_command_sees_no_file_of_the_recording_and_the_old_one_until_the_end() {
    let mut place = Place::new();
    place.add("a.folded", "before", 0o640);
    let ran =
        place.run(&["record", "--quiet", "-o", "a.folded", "-o", "b.svg", "--", "sh", "-c", "ls -A; cat a.folded"]);
    ran.assert_code(0);
    assert_eq!(ran.stdout, "a.folded\nbefore");
    assert_ne!(text(place.path("a.folded")), "before");
    assert_eq!(place.new_files(), ["b.svg"]);
}

#[test]
fn a_command_that_nothing_was_recorded_of_is_a_failure_that_says_why() {
    let place = Place::new();
    let Some(loader) =
        ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].into_iter().find(|l| fs::exists(l).unwrap())
    else {
        return;
    };
    // The loader lists what it would load, and runs nothing of it.
    let ran = place.run(&["record", "-o", "a.svg", "--", loader, "--list", "/bin/sh"]);
    ran.assert_code(1);
    assert!(ran.stderr.starts_with("error: nothing was recorded") && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    assert_eq!(place.new_files(), [""; 0]);
    let ran = place.run(&["record", "-o", "a.svg", "--", loader, "--list", "/no/such/file"]);
    assert_eq!(ran.code, Some(127), "the command's own code stays: {}", ran.stderr);
}

#[test]
fn a_preload_library_of_the_user_stays_loaded() {
    let mut place = place_with_victim();
    let source = "#include <stdio.h>\n__attribute__((constructor)) void c(void) { puts(\"loaded\"); fflush(stdout); }";
    let library = place.compile("user.so", source, &["-shared", "-fPIC"]);
    let mut command = place.command(&["record", "--mode", "allocs", "--quiet", "-o", "a.folded", "--", "./victim"]);
    // It is loaded into profrec too, which prints the first line.
    let ran = Ran::of(command.env("LD_PRELOAD", library).output().unwrap());
    assert_eq!(ran.stdout, "loaded\nloaded\n");
    assert_eq!(collapsed_total(place.path("a.folded"), "make_garbage"), 1000);
}

#[test]
fn each_process_gets_a_file_of_its_own_and_those_of_one_name_are_together() {
    let mut place = place_with_victim();
    std::fs::copy(place.path("victim"), place.path("other")).unwrap();
    place.keep("other");
    let script = "./victim & ./victim & ./other & wait";
    let outputs = ["-o", "p-{EXE}.folded", "-o", "q-{PID}.folded", "-o", "all.folded"];
    let ran =
        place.run(&[&["record", "--mode", "allocs", "--quiet"], &outputs[..], &["--", "sh", "-c", script]].concat());
    ran.assert_code(0);
    let of = |name: &str| collapsed_total(place.path(name), "make_garbage");
    assert_eq!((of("p-victim.folded"), of("p-other.folded"), of("all.folded")), (2000, 1000, 3000));
    let each: Vec<i64> = place.new_files().iter().filter(|name| name.starts_with("q-")).map(|name| of(name)).collect();
    assert_eq!(each.iter().filter(|total| **total == 1000).count(), 3, "{each:?}");
    assert_eq!(each.iter().sum::<i64>(), 3000);
    place.run(&["record", "-o", "no/{PID}.svg", "--", "true"]).assert_refused(1, &["its directory does not exist"]);
    place.run(&["record", "-o", "{PID}/a.svg", "--", "true"]).assert_refused(2, &["in a directory's name"]);
}

#[test]
fn the_line_of_progress_shows_what_is_recorded_and_is_wiped_out_in_the_end() {
    let mut place = Place::new();
    let source = r#"
        #include <stdlib.h>
        #include <unistd.h>
        int main(void) {
            for (int i = 0; i < 4321; i++) free(malloc(10));
            void *volatile kept = malloc(3 << 20);
            sleep(2);
            free(kept);
        }"#;
    place.compile("sleeper", source, &["-O0"]);
    let ran = place.run(&["record", "--progress", "--mode", "heap", "-o", "a.folded", "--", "./sleeper"]);
    ran.assert_code(0);
    let lines: Vec<&str> = ran.stderr.split("\r\x1b[2K").collect();
    assert!(lines.len() >= 3, "{}", ran.stderr);
    let seen = lines.iter().any(|line| {
        line.contains(" s, 1 process") && line.contains("4,322 allocations") && line.contains("3.0 MiB live")
    });
    assert!(seen, "{}", ran.stderr);
    assert!(lines.last().unwrap().starts_with("profrec: heap: "), "{}", ran.stderr);
    let ran = place.run(&["record", "-o", "b.folded", "--", "./sleeper"]);
    assert!(!ran.stderr.contains('\r'), "no terminal, no line: {}", ran.stderr);
}

#[test]
fn make_with_two_jobs_builds_a_c_project_as_ever_and_each_compiler_is_told_apart() {
    let mut place = Place::new();
    let functions = ["one", "two", "three"];
    for name in functions {
        place.add(
            &format!("{name}.c"),
            format!("#include <stdio.h>\nint {name}(void) {{ return printf(\"{name}\\n\"); }}\n"),
            0o644,
        );
    }
    let calls = functions.map(|name| format!("int {name}(void);")).concat();
    place.add("main.c", format!("{calls}\nint main(void) {{ return one() + two() + three() == 0; }}\n"), 0o644);
    let rules = "CFLAGS = -O1 -g\nprogram: main.o one.o two.o three.o\n\t$(CC) -o $@ $^\nclean:\n\trm -f *.o program\n";
    place.add("Makefile", rules, 0o644);
    let outputs = ["-o", "all.folded", "-o", "by-{EXE}.folded", "-o", "each-{EXE}-{PID}.folded"];
    let record = ["record", "--mode", "allocs", "--symbols", "names"];
    let ran = place.run(&[&record, &outputs[..], &["--", "make", "-j2"]].concat());
    ran.assert_code(0);
    assert!(ran.stdout.contains("cc -O1 -g") && !ran.stdout.contains("profrec"), "{}", ran.stdout);
    let built = std::process::Command::new(place.path("program")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&built.stdout), "one\ntwo\nthree\n");
    // The four compilations, each in a process of its own; and all of the tree, whichever way it is divided.
    let of = |begin: &str| -> Vec<i64> {
        let files = place.new_files().into_iter().filter(|name| name.starts_with(begin));
        files.map(|name| collapsed_total(place.path(&name), "")).collect()
    };
    let (each, together) = (of("each-cc1-"), of("by-cc1.folded"));
    assert_eq!((each.len(), together.len()), (4, 1), "{each:?}");
    assert!(each.iter().all(|total| *total > 100), "{each:?}");
    assert_eq!(each.iter().sum::<i64>(), together[0]);
    let all = collapsed_total(place.path("all.folded"), "");
    assert_eq!((of("each-").iter().sum::<i64>(), of("by-").iter().sum::<i64>()), (all, all));
    // A project that does not build ends as make does, with what there was until then.
    place.add("two.c", "int two(void) { return }\n", 0o644);
    let ran = place.run(&[&record, &["--quiet", "-o", "failed.folded", "--", "make", "-j2"][..]].concat());
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(collapsed_total(place.path("failed.folded"), "") > 100);
    place.assert_no_store_left();
}
