//! `profrec record --duration`: the profiles are written when the time is over, and the command goes on as if nothing had been.

mod support;

use profile::Profile;
use profile::store::{Decoded, decode};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Place, Ran, collapsed_total};

/// Allocates, and allocates more once it is told to, itself and in children.
const VICTIM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) void allocate(int n) {
    for (int i = 0; i < n; i++) { void *volatile p = malloc(100); free(p); }
    __asm__ volatile("");
}
__attribute__((noinline)) void early(void) { allocate(1000); __asm__ volatile(""); }
__attribute__((noinline)) void late(void) {
    allocate(1000);
    struct timespec t;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); while (t.tv_sec < 1);
}

int main(int argc, char **argv) {
    char line[16];
    if (argc > 1) { allocate(500); return 0; }
    early();
    puts("early");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    late();
    if (fork() == 0) { allocate(500); execl(argv[0], argv[0], "again", (char *)0); _exit(1); }
    int status;
    wait(&status);
    puts("late");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 7 : 1;
}
"#;

fn wait_for_line(stdout: &mut BufReader<ChildStdout>, expected: &str) {
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), expected);
}

fn start(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

fn say_go(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
}

fn wait_until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The store of the only process that is recorded.
fn store(place: &Place) -> PathBuf {
    let directory = fs::read_dir(place.stores()).unwrap().next().expect("a directory of stores").unwrap().path();
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).next().expect("a store")
}

fn decoded(path: &Path) -> Decoded {
    decode(&fs::read(path).unwrap()).unwrap()
}

fn total(profile: Option<&Profile>, column: &str) -> i64 {
    let profile = profile.expect("recorded");
    let column = profile.column(column).unwrap();
    profile.samples.iter().map(|sample| sample.values[column]).sum()
}

#[test]
fn profiles_are_written_when_it_is_over_and_the_command_goes_on_unrecorded() {
    let mut place = Place::new();
    place.compile("victim", VICTIM, &["-O1", "-g"]);
    let options = ["--duration", "3", "--mode", "cpu,wall,allocs", "-o", "a.folded"];
    let (mut child, mut stdout) = start(&mut place.command(&[&["record"], &options[..], &["--", "./victim"]].concat()));
    wait_for_line(&mut stdout, "early");
    // Another name of the store, to see in the end what the process went on to write there.
    let kept = place.path("kept.store");
    fs::hard_link(store(&place), &kept).unwrap();

    let files = ["a.allocs.folded", "a.cpu.folded", "a.wall.folded"];
    wait_until(|| files.iter().all(|file| place.path(file).exists()));
    place.assert_no_store_left();
    let written = decoded(&kept);
    let calls = |store: &Decoded| store.counts.calls_of(layout::Function::Malloc);
    assert!(calls(&written) >= 1000, "{}", calls(&written));

    say_go(&mut child);
    wait_for_line(&mut stdout, "late");
    let pid = written.pid;
    assert_eq!(fs::read_dir(format!("/proc/{pid}/task")).unwrap().count(), 1, "nobody looks at its threads any more");
    say_go(&mut child);
    let ran = Ran::of(child.wait_with_output().unwrap());
    ran.assert_code(7);
    assert!(ran.stderr.contains("'victim' goes on, and is no longer recorded"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("error") && !ran.stderr.contains("warning"), "{}", ran.stderr);
    place.assert_no_store_left();

    // Every allocation of its time and none of later; a second of CPU time later on is nowhere.
    let after = decoded(&kept);
    assert!(calls(&after) >= calls(&written) + 1000, "calls are counted as long as the process lives");
    for column in ["alloc_objects", "alloc_space"] {
        let (now, then) = (total(after.allocs.as_ref(), column), total(written.allocs.as_ref(), column));
        assert_eq!(now, then, "{column}");
    }
    assert_eq!(total(after.cpu.as_ref(), "samples"), total(written.cpu.as_ref(), "samples"));
    let allocated = |function| collapsed_total(place.path("a.allocs.folded"), function);
    assert_eq!((allocated("early"), allocated("late")), (1000, 0));
    assert!(collapsed_total(place.path("a.wall.folded"), "main") > 0);
    let allocated = place.run(&["record", "--mode", "allocs", "-o", "all.folded", "--", "./victim", "again"]);
    allocated.assert_code(0);
    assert_eq!(collapsed_total(place.path("all.folded"), "allocate"), 500, "the same program, to its end");
}

#[test]
fn a_command_that_ends_before_is_recorded_to_its_end() {
    let mut place = Place::new();
    place.compile("victim", VICTIM, &["-O1", "-g"]);
    let ran =
        place.run(&["record", "--duration", "600", "--mode", "allocs", "-o", "a.folded", "--", "./victim", "again"]);
    ran.assert_code(0);
    assert_eq!(collapsed_total(place.path("a.folded"), "allocate"), 500);
    assert!(!ran.stderr.contains("goes on"), "{}", ran.stderr);
}

#[test]
fn signals_reach_the_command_before_and_after() {
    use rustix::process::{Pid, Signal, kill_process};
    let place = Place::new();
    let script = "trap 'echo got' USR1; echo ready; while read line; do :; done; while :; do sleep 0.05; done";
    let (child, mut stdout) =
        start(&mut place.command(&["record", "--duration", "1", "-o", "a.folded", "--", "sh", "-c", script]));
    wait_for_line(&mut stdout, "ready");
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    wait_for_line(&mut stdout, "got");
    wait_until(|| place.path("a.folded").exists());
    let mut child = child;
    drop(child.stdin.take());
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    wait_for_line(&mut stdout, "got");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(Ran::of(child.wait_with_output().unwrap()).signal, Some(Signal::TERM.as_raw()));
    place.assert_no_store_left();
}

#[test]
fn a_process_that_starts_while_the_stores_are_read_is_not_recorded() {
    let place = Place::new();
    // Who reads this store waits until the pipe is closed.
    let script =
        "mkfifo $PROFILE_RECORDER_STORE/1-1.store; env | grep -E '^(LD_PRELOAD|PROFILE_RECORDER_)'; echo; read line";
    let options = ["record", "--mode", "allocs", "-o", "a.folded", "--", "sh", "-c", script];
    let (mut child, stdout) = start(&mut place.command(&options));
    let lines = stdout.lines().map(Result::unwrap).take_while(|line| !line.is_empty());
    let variables: Vec<(String, String)> = lines
        .map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap())
        .collect();
    let directory =
        variables.iter().find(|(name, _)| name == "PROFILE_RECORDER_STORE").map(|(_, value)| value).unwrap();
    let pipe = fs::File::options().read(true).write(true).open(Path::new(directory).join("1-1.store")).unwrap();
    say_go(&mut child);
    wait_until(|| !Path::new(directory).exists());

    let stores =
        || fs::read_dir(fs::read_dir(place.stores()).unwrap().next().unwrap().unwrap().path()).unwrap().count();
    let before = stores();
    let late =
        Ran::of(Command::new("sh").args(["-c", "cat /dev/null; echo ran"]).envs(variables.clone()).output().unwrap());
    late.assert_code(0);
    assert_eq!((late.stdout.as_str(), late.stderr.as_str()), ("ran\n", ""));
    assert_eq!(stores(), before);
    assert!(!Path::new(directory).exists());

    drop(pipe);
    Ran::of(child.wait_with_output().unwrap()).assert_code(0);
    place.assert_no_store_left();
}
