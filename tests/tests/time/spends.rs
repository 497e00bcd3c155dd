//! CPU time and elapsed time are what the kernel's clocks say, for programs that are hard to sample. (`benches/accuracy` has the table; here the tolerances are wide.)

use super::truth::{Truth, below, by_label, spends};
use profile_recorder_tests::{build, folded, output, pprof, run, scratch, text};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Records `victim-spends` from its start in these modes; what it says.
pub(super) fn recorded(arguments: &[&str], modes: &str, hz: &str, profile: &Path) -> Truth {
    let program = build("victim-spends");
    let mut record = vec!["record", "--quiet", "--mode", modes, "--hz", hz, "-o", profile.to_str().unwrap(), "--"];
    record.push(program.to_str().unwrap());
    record.extend(arguments);
    let recorded = output(&mut run(&record));
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    Truth::of(&text(&recorded.stdout))
}

fn assert_near(sum: f64, truth: f64, part: f64, what: &str) {
    // A process goes on after it asked for its clock: it prints, and it ends.
    assert!((sum - truth).abs() < truth * part + 5e6, "{what}: {sum} ns of {truth} ns");
}

#[test]
fn the_sum_is_the_process_time_whatever_the_rate_and_the_work() {
    let directory = scratch();
    let profile = directory.path().join("p.pb.gz");
    for (arguments, hz) in [
        (&["threads", "1500000"][..], "99"),
        (&["crowd", "20000000"], "1000"),
        (&["bursts-often"], "99"),
        (&["blocked"], "99"),
        (&["moment", "3000000"], "1"),
    ] {
        let truth = recorded(arguments, "cpu", hz, &profile);
        assert_near(pprof::total(&profile, "cpu") as f64, truth.process(), 0.01, &format!("{arguments:?} at {hz} Hz"));
    }
}

#[test]
fn what_no_tick_fell_into_is_shown_as_unsampled() {
    let directory = scratch();
    let profile = directory.path().join("p.folded");
    let truth = recorded(&["blocked"], "cpu", "99", &profile);
    let (unsampled, all) = (folded::sum(&profile, "[unsampled]") as f64, folded::sum(&profile, "") as f64);
    assert!(unsampled > 250e6 && unsampled <= all, "of the thread that blocks the signal: {unsampled}");
    assert_near(all, truth.process(), 0.01, "all of it");
    recorded(&["moment", "1000000"], "cpu", "1", &profile);
    assert!(folded::sum(&profile, "[unsampled]") > 0, "a process shorter than a period");
}

/// Elapsed time is looked at by a thread of the recorder, which takes some time for it at this rate.
#[test]
fn time_of_the_recorder_itself_is_not_the_programs() {
    let directory = scratch();
    let profile = directory.path().join("p.pb.gz");
    let truth = recorded(&["split", "5"], "cpu,wall", "997", &profile);
    let program: f64 = truth.all("function").iter().map(|(_, nanos)| nanos).sum();
    assert_near(pprof::total(&profile, "cpu") as f64, program, 0.01, "CPU time of the program");
}

#[test]
fn each_thread_has_its_time_however_short_it_is() {
    let directory = scratch();
    let profile = directory.path().join("p.pb.gz");
    for (arguments, least) in [(&["threads", "1500000"][..], 8), (&["short-lived"], 4), (&["blocked"], 1)] {
        let truth = recorded(arguments, "cpu", "99", &profile);
        let threads = by_label(&profile, "cpu", "thread");
        let spent = truth.all("thread");
        assert!(spent.len() >= least, "{arguments:?}: {}", spent.len());
        for (name, nanos) in spent {
            let sampled = threads.get(name).copied().unwrap_or(0.0);
            // A thread begins before its first line, and ends after its last.
            assert!(sampled > nanos * 0.99 && sampled < nanos * 1.02 + 5e6, "{name}: {sampled} of {nanos} ns");
        }
    }
}

#[test]
fn functions_have_their_shares_at_any_depth() {
    let directory = scratch();
    let profile = directory.path().join("p.pb.gz");
    for (depth, hz) in [("50", "250"), ("150", "99")] {
        let truth = recorded(&["split", depth], "cpu", hz, &profile);
        let functions = truth.all("function");
        let whole: f64 = functions.iter().map(|(_, spent)| spent).sum();
        assert_eq!(functions.len(), 4);
        for (name, spent) in functions {
            let found = below(&profile, "cpu", &format!("::{name}"));
            assert!((found - spent).abs() < whole * 0.06, "{name}, {depth} deep at {hz} Hz: {found} of {spent} ns");
        }
    }
}

#[test]
fn a_session_sums_to_the_process_time_and_threads_have_theirs() {
    for hz in [99, 1000] {
        let (truth, profile, _carried) = spends("crowd 40000000", "", &format!("profile?hz={hz}"));
        let sum = pprof::total(&profile, "cpu") as f64;
        // The recorder's own threads are part of the process's clock, and not of the profile.
        assert!(sum > truth.process() * 0.96 && sum < truth.process() * 1.01 + 5e6, "{sum} of {}", truth.process());
        let threads = by_label(&profile, "cpu", "thread");
        let mut found = 0;
        for (name, nanos) in truth.all("thread") {
            // On a busy machine the kernel's ticks may all miss a thread of 40 ms: then it is in `[unsampled]`.
            let Some(sampled) = threads.get(name) else { continue };
            assert!((sampled - nanos).abs() < nanos * 0.15 + 11e6, "{name} at {hz} Hz: {sampled} of {nanos} ns");
            found += 1;
        }
        assert!(found >= 8, "{found} of 16 threads: {threads:?}");
    }
}

#[test]
fn threads_have_the_names_that_they_gave_themselves_whether_they_end_or_not() {
    let directory = scratch();
    let profile = directory.path().join("p.folded");
    let program = build("victim-spends");
    for mode in ["cpu", "wall", "allocs"] {
        let recorded = run(&["record", "--quiet", "--mode", mode, "--thread-frames", "-o", profile.to_str().unwrap()])
            .args(["--", program.to_str().unwrap(), "named-late"])
            .output()
            .expect("profrec runs");
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        let stacks = std::fs::read_to_string(&profile).expect("a profile");
        let threads: BTreeSet<&str> = stacks.lines().filter_map(|line| line.split(';').next()).collect();
        assert!(threads.contains("late-0") && threads.contains("late-1"), "{mode}: {threads:?}");
    }
}

#[test]
fn threads_are_sampled_where_the_kernel_has_no_timers_left() {
    let (truth, profile, _carried) = spends("crowd 40000000", "ulimit -i 0;", "profile?hz=99");
    let sum = pprof::total(&profile, "cpu") as f64;
    assert!(sum > truth.process() * 0.93 && sum < truth.process() * 1.01 + 5e6, "{sum} of {}", truth.process());
    let found = below(&profile, "cpu", "::burns");
    assert!(found > truth.process() * 0.5, "in the function that works: {found} of {}", truth.process());
}

#[test]
fn programs_are_recorded_where_the_kernel_has_no_timers_left() {
    let directory = scratch();
    let profile = directory.path().join("p.pb.gz");
    let program = build("victim-spends");
    for mode in ["cpu", "cpu,wall"] {
        let recorded = run(&["record", "--mode", mode, "-o", profile.to_str().unwrap(), "--"])
            .args(["bash", "-c", &format!("ulimit -i 0; exec {} crowd 40000000", program.display())])
            .output()
            .expect("profrec runs");
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        assert!(!text(&recorded.stderr).contains("without a timer"), "{}", text(&recorded.stderr));
        let truth = Truth::of(&text(&recorded.stdout));
        // The process's clock has the recorder's threads in it, which ask: on a busy machine that takes a while.
        let (total, threads) = (pprof::total(&profile, "cpu") as f64, truth.all("thread"));
        let threads: f64 = threads.iter().map(|(_, nanos)| nanos).sum();
        assert!(total > threads * 0.995, "{mode}: {total} of at least {threads} ns");
        assert!(total < truth.process() + 5e6, "{mode}: {total} of at most {} ns", truth.process());
        let found = below(&profile, "cpu", "::burns");
        assert!(found > truth.process() * 0.8, "{mode}: in the function that works: {found} of {}", truth.process());
    }
}

#[test]
fn elapsed_time_of_each_thread_is_divided_by_its_states() {
    // However seldom it looks: the sampler of a busy machine is late.
    for query in ["wall?hz=99", "wall?hz=1"] {
        elapsed_time_is_divided(query);
    }
}

fn elapsed_time_is_divided(query: &str) {
    let (truth, profile, _carried) = spends("sleepers", "", query);
    let (threads, states) = (by_label(&profile, "wall", "thread"), by_label(&profile, "wall", "state"));
    let existed: HashMap<_, _> = truth.all("existed").into_iter().collect();
    for (name, lived) in truth.all("lived") {
        let (found, existed) = (threads.get(name).copied().unwrap_or(0.0), existed[name]);
        // The kernel notes the beginning in ticks of 10 ms.
        assert!(found > lived * 0.98 - 60e6, "{query}, {name}: {found} of at least {lived} ns");
        assert!(found < existed * 1.02 + 60e6, "{query}, {name}: {found} of at most {existed} ns");
    }
    let on_cpu = states.get("on-cpu").copied().unwrap_or(0.0);
    assert!((on_cpu - truth.process()).abs() < truth.process() * 0.2, "{on_cpu} of {} ns: {states:?}", truth.process());
    let asleep = by_label(&profile, "wall", "syscall").get("clock_nanosleep").copied().unwrap_or(0.0);
    assert!(asleep > 64.0 * 1.35e9, "64 threads slept a second and a half each: {asleep}");
}

#[test]
fn threads_that_no_look_finds_have_the_time_that_they_lived() {
    let (truth, profile, _carried) = spends("short-lived", "", "wall?hz=1");
    let threads = by_label(&profile, "wall", "thread");
    let lived: f64 = truth.all("lived").iter().map(|(_, nanos)| nanos).sum();
    let found: f64 = threads.iter().filter(|(name, _)| name.starts_with("worker-")).map(|(_, nanos)| nanos).sum();
    assert!((found - lived).abs() < lived * 0.05, "{found} of {lived} ns: {threads:?}");
    let on_cpu = by_label(&profile, "wall", "state").get("on-cpu").copied().unwrap_or(0.0);
    assert!((on_cpu - truth.process()).abs() < truth.process() * 0.2, "{on_cpu} of {} ns", truth.process());
}

#[test]
fn mode_offcpu_has_blocked_threads_alone() {
    let (_, profile, _carried) = spends("sleepers", "", "offcpu?hz=50");
    let calls = by_label(&profile, "off_cpu", "syscall");
    assert!(calls.get("clock_nanosleep").is_some_and(|asleep| *asleep > 20e9), "{calls:?}");
    assert!(by_label(&profile, "off_cpu", "state").is_empty(), "there is but one");
    let burned = below(&profile, "off_cpu", "::burns");
    let all = pprof::total(&profile, "off_cpu") as f64;
    assert!(burned < all * 0.01, "threads that work: {burned} of {all} ns");
}
