//! `Recorder`: profiles of the program by itself, exact where they can be.

use criterion::profiler::Profiler;
use profile_recorder::{CriterionProfiler, Format, Profile, RecordErrorKind, Recorder};
use profile_recorder_tests::{output, scratch, text};
use std::hint::black_box;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Recordings of one kind share their rate or interval; tests that need one of their own take turns.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Uses so much CPU time.
#[inline(never)]
fn burns(time: Duration) {
    let end = cpu_time() + time;
    while cpu_time() < end {
        black_box((0..1000_u64).fold(0, |sum, i| sum ^ black_box(i)));
    }
}

#[inline(never)]
#[allow(clippy::vec_box, reason = "each is an allocation to be counted")]
fn makes_boxes(count: u64) -> Vec<Box<u64>> {
    let mut boxes = Vec::with_capacity(count as usize);
    (0..count).for_each(|i| boxes.push(black_box(Box::new(i))));
    boxes
}

/// The default column of the stacks with a function of this name.
fn of(function: &str, profile: &Profile) -> i64 {
    let mut folded = Vec::new();
    profile.encode(Format::Collapsed, &mut folded).expect("memory takes all");
    let folded = text(&folded);
    let lines = folded.lines().filter(|line| line.contains(function));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<i64>().ok()).sum()
}

#[test]
fn cpu_time_between_start_and_stop_is_in_the_profile() {
    let _alone = alone();
    burns(Duration::from_millis(50));
    let session = Recorder::cpu().hz(499).start().unwrap();
    let before = cpu_time();
    burns(Duration::from_millis(200));
    let burnt = cpu_time() - before;
    let profile = session.stop().unwrap();
    burns(Duration::from_millis(50));
    let found = Duration::from_nanos(of("recorder::burns", &profile) as u64);
    assert!(found <= burnt + Duration::from_millis(10) && found >= burnt * 9 / 10, "{found:?} of {burnt:?}");
    assert!(profile.total("cpu") >= Some(found.as_nanos() as i64));
}

#[test]
fn allocations_between_start_and_stop_are_exact() {
    let _alone = alone();
    let allocs = Recorder::allocs().interval(1).start().unwrap();
    let heap = Recorder::heap().interval(1).start().unwrap();
    let kept = makes_boxes(1000);
    drop(makes_boxes(500));
    let (allocs, heap) = (allocs.stop().unwrap(), heap.stop().unwrap());
    let after = makes_boxes(10);
    // The boxes and the vectors that hold them.
    assert_eq!(of("makes_boxes", &allocs), 1000 + 1 + 500 + 1);
    let kinds: Vec<&str> = heap.sample_types().iter().map(|column| &*column.kind).collect();
    assert!(kinds.contains(&"inuse_space"), "{kinds:?}");
    assert_eq!(of("makes_boxes", &heap), 1000 * 16);
    drop((kept, after));
}

#[test]
fn a_recording_of_some_seconds_ends_by_itself_and_of_a_moment_at_once() {
    let _alone = alone();
    let begun = Instant::now();
    let profile = Recorder::off_cpu().hz(99).seconds(0.2).record().unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(profile.total("off_cpu") > Some(0), "who waits for the recording is blocked");
    assert!(of("Recorder", &profile) > 0, "and seen");
    let threads = Recorder::threads().record().unwrap();
    assert!(threads.total("threads") >= Some(2));
    let heap = Recorder::heap().record().unwrap();
    assert!(heap.total("inuse_space").is_some());
}

#[test]
fn settings_that_cannot_be_are_refused_with_their_range() {
    let cases = [
        (Recorder::cpu().hz(0).record(), "1 to 10000"),
        (Recorder::wall().hz(10_001).record(), "1 to 10000"),
        (Recorder::cpu().seconds(0.0).record(), "more than 0"),
        (Recorder::cpu().seconds(-1.0).record(), "more than 0"),
        (Recorder::cpu().seconds(f64::NAN).record(), "more than 0"),
        (Recorder::allocs().seconds(3601.0).record(), "at most 3600"),
        (Recorder::allocs().interval(0).seconds(1).record(), "an interval of 0 bytes"),
        (Recorder::heap().interval(1).record(), "`seconds` is needed"),
        (Recorder::threads().start().map(|_| unreachable!()), "use `record`"),
    ];
    for (result, said) in cases {
        let error = result.unwrap_err();
        assert!(error.kind() == RecordErrorKind::Setting && error.to_string().contains(said), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

#[test]
fn another_rate_waits_until_a_dropped_session_is_gone() {
    let _alone = alone();
    let running = Recorder::cpu().hz(50).seconds(3600).start().unwrap();
    drop(Recorder::cpu().hz(50).start().unwrap());
    let begun = Instant::now();
    let mut wait = Duration::MAX;
    // The one without an end leaves a moment after it was dropped, and nobody is told to wait for it any more.
    while wait > Duration::from_secs(3600) {
        let error = Recorder::cpu().hz(77).start().unwrap_err();
        let RecordErrorKind::Busy(until) = error.kind() else { panic!("{error}") };
        wait = until;
        assert!(begun.elapsed() < Duration::from_secs(20), "{wait:?}");
    }
    assert!(wait > Duration::from_secs(3500), "{wait:?}");
    drop(running);
    let begun = Instant::now();
    while Recorder::cpu().hz(77).seconds(0.01).record().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "what is dropped ends");
    }
}

#[test]
fn a_file_is_written_in_the_format_of_its_name_or_not_at_all() {
    let _alone = alone();
    let directory = scratch();
    let path = |name: &str| directory.path().join(name);
    let profile = Recorder::threads().record().unwrap();
    for extension in Format::EXTENSIONS {
        let path = path(&format!("p{extension}"));
        std::fs::write(&path, "what was there before").unwrap();
        profile.write_to(&path).unwrap_or_else(|error| panic!("{extension}: {error}"));
        assert_ne!(std::fs::read(&path).unwrap(), b"what was there before", "{extension}");
    }
    assert!(profile.write_to(path("p.exe")).unwrap_err().to_string().contains(".pb.gz"));
    assert!(profile.write_to(path("no/such/directory.svg")).is_err());
    let files = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(files, Format::EXTENSIONS.len(), "nothing else is left");
}

#[test]
fn criterion_has_a_profile_of_each_benchmark_in_its_folder() {
    let _alone = alone();
    let directory = scratch();
    let folder = directory.path().join("criterion/split/profile");
    let mut profiler = CriterionProfiler::new(Recorder::cpu().hz(499), "cpu.folded");
    profiler.start_profiling("split", &folder);
    burns(Duration::from_millis(50));
    profiler.stop_profiling("split", &folder);
    let profile = std::fs::read_to_string(folder.join("cpu.folded")).unwrap();
    assert!(profile.contains("recorder::burns"), "{profile:.2000}");
    // A benchmark that could not be recorded disturbs nobody.
    let mut broken = CriterionProfiler::new(Recorder::cpu().hz(0), "cpu.folded");
    broken.start_profiling("other", &folder);
    broken.stop_profiling("other", &folder);
}

/// A service that forks its workers: its allocations were counted before, and only the workers record.
#[test]
#[ignore = "runs in a process of its own, started by the next test"]
fn forks_a_worker_that_records() {
    drop(makes_boxes(10));
    // SAFETY: the child uses what a child of a program with threads may use: its own memory, its C library.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let session = Recorder::cpu().hz(997).start().expect("the worker records");
        burns(Duration::from_millis(200));
        let mut json = Vec::new();
        session.stop().expect("a profile").encode(Format::Json, &mut json).expect("memory takes all");
        let profile: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let threads = profile["threads"].as_array().expect("threads");
        let own = i64::from(std::process::id());
        let is_own = !threads.is_empty() && threads.iter().all(|thread| thread["pid"].as_i64() == Some(own));
        if !is_own {
            eprintln!("{own} recorded {threads:?}");
        }
        // SAFETY: ends the child without what the test runner does at its end.
        unsafe { libc::_exit(i32::from(!is_own)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child, and writes its status to a number.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    println!("WORKER {status}");
}

#[test]
fn the_profile_of_a_forked_worker_is_its_own() {
    let mut itself = Command::new(std::env::current_exe().expect("this test"));
    let told = output(itself.args(["--exact", "recorder::forks_a_worker_that_records", "--ignored", "--nocapture"]));
    assert!(text(&told.stdout).contains("WORKER 0\n"), "{}{}", text(&told.stdout), text(&told.stderr));
}
