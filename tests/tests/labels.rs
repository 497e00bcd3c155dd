//! Labels reach the samples of every mode: to the unit where allocations are counted, in their share where time is sampled.

#[path = "labels/layers.rs"]
mod layers;

use profile_recorder::labels;
use profile_recorder_tests::{output, pprof, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

struct Recorder {
    directory: tempfile::TempDir,
    _server: profile_recorder::Server,
}

/// This process's own server, which records every allocation.
fn recorder() -> &'static Recorder {
    static STARTED: OnceLock<Recorder> = OnceLock::new();
    STARTED.get_or_init(|| {
        let directory = profile_recorder_tests::scratch();
        let url = format!("unix://{}/own.sock", directory.path().display());
        let builder = profile_recorder::Server::bind(&url).register(false).alloc_interval(NonZeroU64::new(1));
        Recorder { directory, _server: builder.start().expect("the server starts") }
    })
}

fn fetch(path: &str) -> Vec<u8> {
    let socket = recorder().directory.path().join("own.sock");
    let answer = output(
        Command::new("curl")
            .args(["-sS", "--fail-with-body", "--unix-socket"])
            .arg(socket)
            .arg(format!("http://localhost/debug/pprof/{path}")),
    );
    assert!(answer.status.success(), "{path}: {}{}", text(&answer.stderr), text(&answer.stdout));
    answer.stdout
}

/// The values of the first two columns by label set, the sets without `key` left out.
fn by_labels(path: &str, key: &str) -> BTreeMap<String, (i64, i64)> {
    by_labels_below("", path, key)
}

/// The same of stacks with a function of this name.
fn by_labels_below(function: &str, path: &str, key: &str) -> BTreeMap<String, (i64, i64)> {
    let json: Value = serde_json::from_slice(&fetch(path)).expect("JSON");
    let has_name =
        |frame: &Value| json["frames"][frame.as_u64().unwrap() as usize]["name"].to_string().contains(function);
    let mut sums = BTreeMap::new();
    for sample in json["samples"].as_array().expect("samples") {
        let labels = &sample["labels"];
        if labels.get(key).is_some() && sample["stack"].as_array().expect("a stack").iter().any(has_name) {
            let value = |i: usize| sample["values"][i].as_i64().expect("a value");
            let sum: &mut (i64, i64) = sums.entry(labels.to_string()).or_default();
            *sum = (sum.0 + value(0), sum.1 + value(1));
        }
    }
    sums
}

fn boxes(n: usize) {
    (0..n).for_each(|i| drop(black_box(Box::new(i))));
}

#[test]
fn allocations_split_by_label_to_the_unit() {
    recorder();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                boxes(1000);
                for _ in 0..25 {
                    labels::with("exact", "a", || boxes(3));
                    labels::with("exact", format_args!("{}", 'b'), || {
                        boxes(1);
                        labels::with("user", 7, || boxes(5));
                        boxes(1);
                        labels::with("exact", "c", || boxes(10));
                    });
                    boxes(4);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let expected = [
        (r#"{"exact":"a"}"#, 300),
        (r#"{"exact":"b"}"#, 200),
        (r#"{"exact":"b","user":"7"}"#, 500),
        (r#"{"exact":"c"}"#, 1000),
    ];
    let expected = expected.map(|(labels, objects)| (labels.to_owned(), (objects, 8 * objects)));
    assert_eq!(by_labels("allocs?format=json", "exact"), BTreeMap::from(expected));
}

#[test]
fn futures_keep_their_labels_on_whichever_thread_they_run() {
    recorder();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for (route, n) in [("/a", 1), ("/b", 2), ("/c", 3)].repeat(8) {
            let request = async move {
                for _ in 0..20 {
                    boxes(n);
                    tokio::task::yield_now().await;
                    labels::with("part", "inner", || boxes(n));
                }
            };
            tasks.push(tokio::spawn(labels::future("future", route, request)));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    // tokio's own queues may allocate below a poll.
    let sums = by_labels_below("labels::boxes", "allocs?format=json", "future");
    for (route, n) in [("/a", 1), ("/b", 2), ("/c", 3)] {
        for set in [format!(r#"{{"future":"{route}"}}"#), format!(r#"{{"future":"{route}","part":"inner"}}"#)] {
            assert_eq!(sums[&set].0, 8 * 20 * n, "{set} of {sums:?}");
        }
    }
}

#[test]
fn what_is_live_is_told_by_label_too_and_pprof_reads_it() {
    recorder();
    let kept: Vec<Box<u64>> = labels::with("cache", "orders", || {
        boxes(100);
        let mut kept = Vec::with_capacity(50);
        (0..50).for_each(|i| kept.push(black_box(Box::new(i))));
        kept
    });
    let file = recorder().directory.path().join("heap.pb.gz");
    std::fs::write(&file, fetch("heap")).unwrap();
    let file = file.to_str().unwrap();
    let tags = pprof::go(&["-tags", "-sample_index=inuse_objects"], file);
    assert!(tags.contains("cache: Total"), "{tags}");
    let top = pprof::go(&["-top", "-sample_index=inuse_objects", "-tagfocus", "cache=orders"], file);
    assert!(top.contains("51") && top.contains("Active filters"), "50 boxes and their vector:\n{top}");
    drop(kept);
}

#[test]
fn a_label_ends_with_its_guard_whatever_the_order_and_with_a_panic() {
    recorder();
    let outer = labels::enter("order", "outer");
    let inner = labels::enter("order", "inner");
    drop(outer);
    boxes(1);
    drop(inner);
    boxes(1000);
    let panicked = std::panic::catch_unwind(|| {
        labels::with("order", "panics", || {
            boxes(2);
            std::panic::resume_unwind(Box::new(()));
        })
    });
    assert!(panicked.is_err());
    boxes(1000);
    let sums = by_labels("allocs?format=json", "order");
    assert_eq!(sums[r#"{"order":"inner"}"#], (1, 8));
    // The panic's own box besides.
    assert!((2..10).contains(&sums[r#"{"order":"panics"}"#].0), "{sums:?}");
    assert_eq!(sums.len(), 2);
}

#[test]
fn keys_of_the_recorder_stay_its_own() {
    recorder();
    labels::with("thread", "mine", || labels::with("reserved", "", || boxes(1)));
    let expected = [(r#"{"reserved":"","thread_":"mine"}"#.to_owned(), (1, 8))];
    assert_eq!(by_labels("allocs?format=json", "reserved"), BTreeMap::from(expected));
}

fn thread_cpu() -> Duration {
    Duration::from_nanos(capture::clock::thread_cpu_ns())
}

#[inline(never)]
fn spin(rounds: u64) {
    (0..rounds).for_each(|i| _ = black_box(i));
}

/// Does three parts of its work for one label and one part for another, until told; not in step with the ticks, which the kernel sends every few milliseconds of CPU time. It does
/// not ask how long it worked: where threads wait for a processor, that is when the kernel takes it away, before the tick.
fn work(stop: &AtomicBool, key: &'static str, seed: u64) {
    let mut random = seed;
    while !stop.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = 400_000 + (random >> 44);
        labels::with(key, "most", || spin(part * 3));
        labels::with(key, "some", || spin(part));
    }
}

// In an unoptimised build, as this is, the tick handler once took more stack than Rust's signal stacks have.
#[test]
fn cpu_time_splits_by_label() {
    recorder();
    let stop = AtomicBool::new(false);
    let sums = std::thread::scope(|scope| {
        let stop = &stop;
        (0..2).for_each(|seed| drop(scope.spawn(move || work(stop, "cpu", seed))));
        let sums = by_labels("profile?seconds=5&hz=997&format=json", "cpu");
        stop.store(true, Ordering::Relaxed);
        sums
    });
    let (most, some) = (sums[r#"{"cpu":"most"}"#].1, sums[r#"{"cpu":"some"}"#].1);
    let share = most as f64 / (most + some) as f64;
    // Where labels change a tick gives up to its whole period to the wrong one, in either direction: with half a second of CPU time and more (a crowded machine) that is some
    // 0.02 in all, as standard deviation.
    assert!(most + some > 500_000_000, "{sums:?}");
    assert!((share - 0.75).abs() < 0.07, "three parts of four: {share}");
}

#[test]
fn elapsed_time_carries_the_labels_of_threads_that_wait_and_of_those_that_run() {
    recorder();
    let stop = AtomicBool::new(false);
    let (held, mutex) = (AtomicBool::new(false), std::sync::Mutex::new(()));
    let sums = std::thread::scope(|scope| {
        let guard = mutex.lock().unwrap();
        scope.spawn(|| labels::with("wall", "waits", || drop(mutex.lock())));
        scope.spawn(|| {
            let _label = labels::enter("wall", "runs");
            held.store(true, Ordering::Relaxed);
            while !stop.load(Ordering::Relaxed) {
                black_box(thread_cpu());
            }
        });
        while !held.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        let sums = by_labels("wall?seconds=1&hz=200&format=json", "wall");
        stop.store(true, Ordering::Relaxed);
        drop(guard);
        sums
    });
    let waits = sums[r#"{"state":"off-cpu","syscall":"futex","wall":"waits"}"#].1;
    assert!((800_000_000..1_300_000_000).contains(&waits), "a second: {sums:?}");
    let runs: i64 = sums.iter().filter(|(set, _)| set.contains("runs")).map(|(_, sum)| sum.1).sum();
    assert!((800_000_000..1_300_000_000).contains(&runs), "a second: {sums:?}");
}

fn set_in_force() -> layout::RecordId {
    let capture::thread::Current::Known(thread) = capture::thread::current() else { panic!("registered") };
    thread.label_set()
}

#[test]
fn a_child_after_fork_begins_without_labels_and_can_have_its_own() {
    recorder();
    let outer = labels::enter("fork", "parent");
    // SAFETY: the child sets labels and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut right = set_in_force().is_none();
        labels::with("fork", "child", || right &= !set_in_force().is_none());
        right &= set_in_force().is_none();
        let inner = labels::enter("fork", "grandchild");
        drop(outer);
        right &= !set_in_force().is_none();
        drop(inner);
        right &= set_in_force().is_none();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if right { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child; the pointer lives through the call.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    assert!(!set_in_force().is_none());
    drop(outer);
    assert!(set_in_force().is_none());
}
