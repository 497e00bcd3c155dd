//! CPU profiles tell how much, and where.

#[path = "time/crowded.rs"]
mod crowded;
#[path = "time/guests.rs"]
mod guests;
#[path = "time/sessions.rs"]
mod sessions;
#[path = "time/spends.rs"]
mod spends;
#[path = "time/truth.rs"]
mod truth;
#[path = "time/waits.rs"]
mod waits;
#[path = "time/watched.rs"]
mod watched;

use profile_recorder_tests::{output, pprof, programs, run, scratch, text};

fn burned(threads: &str, hz: &str) {
    let directory = scratch();
    let program = programs::compile_c("burn", directory.path());
    let profile = directory.path().join("p.pb.gz");
    let path = profile.to_str().unwrap();
    let program = program.to_str().unwrap();
    let recorded =
        output(&mut run(&["record", "--quiet", "--mode", "cpu", "--hz", hz, "-o", path, "--", program, threads]));
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let printed = text(&recorded.stdout);
    let clocks: Vec<f64> = printed.split_whitespace().map(|ns| ns.parse().expect("nanoseconds")).collect();
    let [truth, in_most, in_some] = clocks[..] else { panic!("{printed}") };
    let total = pprof::total(&profile, "cpu") as f64;
    assert!((total / truth - 1.0).abs() < 0.03, "{threads} threads at {hz} Hz: {total} ns of {truth} ns");
    let top = pprof::go(&["-top", "-cum", "-sample_index=cpu", "-unit=ns"], path);
    let of = |name: &str| {
        let line =
            top.lines().find(|line| line.trim_end().ends_with(&format!(" {name}"))).unwrap_or_else(|| panic!("{top}"));
        line.split_whitespace().nth(3).and_then(|value| value.strip_suffix("ns")?.parse::<f64>().ok()).unwrap()
    };
    let share = of("burn_most") / (of("burn_most") + of("burn_some"));
    let expected = in_most / (in_most + in_some);
    assert!((share - expected).abs() < 0.05, "{share}: {expected}\n{top}");
}

#[test]
fn one_thread_is_accounted_for() {
    burned("1", "99");
}

#[test]
fn more_threads_than_processors_are_accounted_for() {
    burned("6", "99");
}

#[test]
fn a_rate_above_the_kernels_tick_keeps_its_totals() {
    burned("2", "2000");
}
