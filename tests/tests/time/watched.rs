//! Elapsed time of programs that `profrec record` runs.

use super::spends::recorded;
use super::truth::{below, by_label};
use profile_recorder_tests::{folded, output, pprof, programs, run, scratch, text};
use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command};

#[test]
fn elapsed_time_is_recorded_from_the_first_to_the_last_moment() {
    let directory = scratch();
    let path = |name: &str| directory.path().join(name);
    // Both are columns of one file.
    let wall = path("p.pb.gz");
    let truth = recorded(&["sleepers"], "wall,offcpu", "99", &wall);
    let threads = by_label(&wall, "wall", "thread");
    let lived = truth.all("lived");
    assert_eq!(lived.len(), 66);
    let existed: HashMap<_, _> = truth.all("existed").into_iter().collect();
    for (name, lived) in lived {
        let (found, existed) = (threads.get(name).copied().unwrap_or(0.0), existed[name]);
        // The kernel notes in ticks of 10 ms when it began.
        assert!(found > lived - 2e6, "{name}: {found} of at least {lived} ns");
        assert!(found < existed + 10e6, "{name}: {found} of at most {existed} ns");
    }
    let (_, elapsed) = truth.all("elapsed")[0];
    let main = threads.get("victim-spends").copied().unwrap_or(0.0);
    // The process begins before, and ends after, what it measures itself.
    assert!(main > elapsed * 0.99 && main < elapsed + 500e6, "{main} of {elapsed} ns");

    let states = by_label(&wall, "wall", "state");
    assert_eq!(states.get("off-cpu").copied().unwrap_or(0.0), pprof::total(&wall, "off_cpu") as f64, "{states:?}");
    let on_cpu = states.get("on-cpu").copied().unwrap_or(0.0);
    assert!((on_cpu - truth.process()).abs() < truth.process() * 0.2, "{on_cpu} of {} ns", truth.process());
    let asleep = by_label(&wall, "off_cpu", "syscall").get("clock_nanosleep").copied().unwrap_or(0.0);
    assert!(asleep > 64.0 * 1.35e9, "64 threads slept a second and a half each: {asleep}");
    let burned = below(&wall, "wall", "::burns");
    assert!(burned > 1.8e9, "two threads burned a second each: {burned}");
}

/// The last look takes a while, and who ends in it was not looked at before.
#[test]
fn threads_that_end_with_the_process_have_their_time() {
    const TOGETHER: f64 = 400e6;
    let directory = scratch();
    let program = programs::compile_c("ends", directory.path());
    let profile = directory.path().join("p.pb.gz");
    let record = ["record", "--mode", "wall", "-o", profile.to_str().unwrap(), "--", program.to_str().unwrap()];
    for micros in ["0", "100", "200", "400", "800", "1500", "3000"].repeat(2) {
        let recorded = output(&mut run(&[&record[..], &[micros]].concat()));
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        let threads = by_label(&profile, "wall", "thread");
        let sleeping: Vec<_> = threads.iter().filter(|(name, _)| name.starts_with("sleeps-")).collect();
        assert_eq!(sleeping.len(), 64, "{threads:?}");
        for (name, found) in sleeping {
            assert!(*found > TOGETHER - 1e6, "{name}: {found} ns, with an end {micros} us later");
        }
    }
}

/// Nanoseconds below a process's system calls of this name.
fn waited(profile: &Path, call: &str) -> f64 {
    by_label(profile, "wall", "syscall").get(call).copied().unwrap_or(0.0)
}

#[test]
fn children_are_looked_at_as_their_parents_are() {
    let directory = scratch();
    let profile = directory.path().join("p.pb.gz");
    let record = ["record", "--mode", "wall", "-o", profile.to_str().unwrap(), "--", "bash", "-c"];
    // Each shell tells how long it is at work by its own clock, without another process.
    let script =
        "a=$EPOCHREALTIME; sleep 0.8 & (a=$EPOCHREALTIME; sleep 0.4; echo $a $EPOCHREALTIME; exec sleep 0.2); wait
echo $a $EPOCHREALTIME; exit 7";
    let recorded = output(&mut run(&[&record[..], &[script]].concat()));
    assert_eq!(recorded.status.code(), Some(7));
    let said = text(&recorded.stdout);
    let clocks: Vec<f64> = said.split_whitespace().map(|clock| clock.replace(',', ".").parse().unwrap()).collect();
    let [inner_from, inner_to, from, to] = clocks[..] else { panic!("{said}") };
    let at_work = (inner_to - inner_from + to - from) * 1e9;
    let (slept, waited) = (below(&profile, "wall", " nanosleep"), waited(&profile, "wait4"));
    // The first moments of a process, until its agent looks, and the linker's before them are not seen.
    assert!(slept > 1.3e9 && slept < 1.5e9, "three sleeps, 1.4 s together: {slept}");
    // The inner shell becomes the last of its commands. No shell waits for longer than it is at work, give or take a look.
    assert!(waited > 1.1e9, "a shell waits for all of them, another for one: {waited}");
    assert!(waited < at_work + 50e6, "two shells wait for {waited}, and are at work for {at_work}");
    assert!(text(&recorded.stderr).contains("of elapsed time of all threads in "), "{}", text(&recorded.stderr));
}

/// A signal that another thread sends arrives at the end of a system call rather than between two.
#[test]
fn who_makes_calls_all_the_time_is_not_found_in_them_more_than_it_is() {
    let directory = scratch();
    let program = programs::compile_c("calls", directory.path());
    let profile = directory.path().join("p.folded");
    let record = ["record", "--quiet", "--mode", "wall", "-o", profile.to_str().unwrap(), "--"];
    let recorded = output(&mut run(&[&record[..], &[program.to_str().unwrap()]].concat()));
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let said = text(&recorded.stdout);
    let spent: Vec<f64> = said.split_whitespace().map(|ns| ns.parse().expect("nanoseconds")).collect();
    let [with, without] = spent[..] else { panic!("{said}") };
    let [calls, all] = ["with_calls;call", "with_calls"].map(|part| folded::sum(&profile, part) as f64);
    let (found, truth) = (calls / all, 1.0 - without / with);
    assert!(all > with * 0.9, "{all} of {with} ns");
    assert!((found - truth).abs() < 0.15, "{found} of the time in calls, which take {truth}");
}

/// Processes that keep all processors busy, until dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn new() -> Self {
        let processors = std::thread::available_parallelism().expect("a number").get();
        let spins = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh runs");
        Self((0..2 * processors).map(|_| spins()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for spins in &mut self.0 {
            let _ = spins.kill();
            let _ = spins.wait();
        }
    }
}

/// Where a thread has to wait for a processor, the sampler's signal waits with it, and the program that takes the process's place would end by it.
#[test]
fn programs_that_become_others_find_no_signal_waiting() {
    let directory = scratch();
    let program = programs::compile_c("again", directory.path());
    let program = program.to_str().unwrap();
    let profile = directory.path().join("p.folded");
    let profile = profile.to_str().unwrap();
    let busy = Busy::new();
    // With room for signals that say something, and without any.
    for (limit, mode) in [("", "wall"), ("ulimit -i 0;", "wall"), ("ulimit -i 0;", "cpu")] {
        let record = ["record", "--quiet", "--mode", mode, "--hz", "1000", "-o", profile, "--"];
        let shell = format!("{limit} exec {program} 120 b c d e f g h i");
        let mut command = run(&[&record[..], &["bash", "-c", &shell]].concat());
        let recorded = output(command.env("CARRIED", "on"));
        let said = (recorded.status.code(), text(&recorded.stdout), text(&recorded.stderr));
        assert_eq!(said, (Some(7), "done\n".to_owned(), String::new()), "{limit} {mode} {:?}", recorded.status);
    }
    drop(busy);
}
