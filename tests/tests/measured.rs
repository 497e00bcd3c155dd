//! `measure` counts what the thread allocated, `assert_max!` tells who allocated too much; both while other threads allocate.

#[path = "measured/cycles.rs"]
mod cycles;
#[path = "measured/recorder.rs"]
mod recorder;

use profile_recorder::alloc::{AllocStats, assert_max, measure};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator<cycles::Counting> =
    profile_recorder::RecordingAllocator::new(cycles::Counting);

fn counts(stats: &AllocStats) -> Vec<(&'static str, u64, u64)> {
    stats.by_function().map(|function| (function.name, function.calls, function.bytes)).collect()
}

/// Runs the closure while four other threads allocate as fast as they can.
fn among_others<R>(f: impl FnOnce() -> R) -> R {
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(5));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                ready.wait();
                while !stop.load(Ordering::Relaxed) {
                    drop(black_box(vec![1_u8; 100]));
                }
            });
        }
        ready.wait();
        let result = catch_unwind(AssertUnwindSafe(f));
        stop.store(true, Ordering::Relaxed);
        result.unwrap()
    })
}

#[test]
fn each_function_is_counted_to_the_byte() {
    let (length, stats) = measure(|| {
        let mut grown: Vec<u8> = Vec::with_capacity(10);
        grown.reserve_exact(black_box(30));
        let zeroed = vec![0_u64; black_box(100)];
        drop(black_box(grown));
        black_box(zeroed).len()
    });
    assert_eq!(length, 100);
    assert_eq!(counts(&stats), [("alloc", 1, 10), ("alloc_zeroed", 1, 800), ("realloc", 1, 30), ("dealloc", 2, 830)]);
    assert_eq!((stats.allocs(), stats.bytes(), stats.frees()), (3, 840, 2));
    assert_eq!(stats.to_string(), "3 allocations, 840 bytes asked, 2 frees (alloc 1, alloc_zeroed 1, realloc 1)");
    assert_eq!(measure(|| black_box(1) + 1).1, AllocStats::default());
    assert_eq!(AllocStats::default().to_string(), "0 allocations, 0 bytes asked, 0 frees");
}

#[test]
fn other_threads_do_not_count_and_measurements_nest() {
    among_others(|| {
        for n in 0..200 {
            let (inner, outer) = measure(|| {
                drop(black_box(Box::new(1_u64)));
                let inner = measure(|| (0..n).for_each(|_| drop(black_box(Box::new(1_u16))))).1;
                drop(black_box(Box::new(1_u64)));
                inner
            });
            assert_eq!((inner.allocs(), inner.bytes(), inner.frees()), (n, 2 * n, n));
            assert_eq!((outer.allocs(), outer.bytes(), outer.frees()), (n + 2, 2 * n + 16, n + 2));
        }
    });
}

#[test]
fn every_thread_has_its_own_counts() {
    std::thread::scope(|scope| {
        for t in 1..9_u64 {
            scope.spawn(move || {
                for _ in 0..500 {
                    let stats = measure(|| (0..t).for_each(|_| drop(black_box(vec![1_u8; 33])))).1;
                    assert_eq!((stats.allocs(), stats.bytes(), stats.frees()), (t, 33 * t, t));
                }
            });
        }
    });
}

#[test]
fn a_panic_passes_through_and_leaves_nothing_behind() {
    let panicked = catch_unwind(|| measure(|| -> u8 { std::panic::resume_unwind(Box::new(7)) }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&7));
    let before = recorded();
    let panicked = catch_unwind(|| assert_max!(0, { std::panic::resume_unwind(Box::new(8)) }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&8));
    assert!(recorded() > before, "inside it was");
    assert_eq!(measure(|| drop(black_box(Box::new(1_u32)))).1.bytes(), 4);
    assert_eq!(recorded(), recorded_after(|| drop(black_box(Box::new(1_u32)))), "nothing is recorded any more");
}

/// Allocations of this thread with a stack in this process's store.
fn recorded() -> i64 {
    let mut bytes = vec![0; capture::region::used_bytes()];
    let length = capture::copy::copy(&mut bytes);
    let decoded = profile::store::decode(&bytes[..length]).expect("a store");
    let profile = decoded.allocs.expect("allocations");
    let tid = capture::syscall::gettid();
    let is_own = |sample: &&profile::Sample| {
        sample.thread.and_then(|id| profile.thread(id)).is_some_and(|thread| thread.tid == tid)
    };
    profile.samples.iter().filter(is_own).map(|sample| sample.values[0]).sum()
}

fn recorded_after(f: impl FnOnce()) -> i64 {
    f();
    recorded()
}

#[inline(never)]
fn makes_boxes(n: u64) {
    (0..n).for_each(|i| drop(black_box(Box::new(i))));
}

#[inline(never)]
fn makes_a_string() -> String {
    black_box("x").repeat(100)
}

fn message(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("a limit was passed");
    panic.downcast_ref::<String>().expect("a message").clone()
}

#[test]
fn within_the_limit_the_value_comes_back() {
    let numbers = [1, 2, 3];
    assert_eq!(assert_max!(1, { numbers.iter().map(|n| n * 2).collect::<Vec<_>>() }), [2, 4, 6]);
    assert_eq!(assert_max!(0, { numbers.len() }), 3);
    assert_eq!(assert_max!(bytes = 100, { makes_a_string() }).len(), 100);
    assert_eq!(assert_max!(1, bytes = 100, { makes_a_string() }).len(), 100);
}

#[test]
fn beyond_the_limit_the_message_lists_who_allocated_the_largest_first() {
    let said = among_others(|| {
        message(|| {
            assert_max!(5, {
                drop(makes_a_string());
                makes_boxes(6);
            });
        })
    });
    let here = file!().strip_prefix("tests/").unwrap_or(file!());
    let place = |function: &str| format!("measured::{function} ({here}:");
    let parts: Vec<&str> = said.split("\n").collect();
    assert_eq!(
        parts[0], "too many allocations: 7 allocations, 148 bytes asked, 7 frees (alloc 7); allowed: at most 5",
        "{said}"
    );
    assert_eq!(parts[1], "6 allocations, 48 bytes:", "{said}");
    assert!(parts[2].contains("makes_boxes") && parts[2].contains(&format!("({here}:")), "{said}");
    let second = parts.iter().position(|part| *part == "1 allocation, 100 bytes:").expect(&said);
    assert!(parts[second + 1].trim_start().starts_with(&place("makes_a_string")), "{said}");
    assert!(parts[second + 2].contains("beyond_the_limit"), "who called it:\n{said}");
    let of_the_library = ["alloc::", "core::", "std::", "__rust", "RecordingAllocator", "assert_at_most"];
    assert!(
        parts[1..].iter().all(|part| !of_the_library.iter().any(|name| part.trim_start().starts_with(name))),
        "{said}"
    );
    assert!(!said.contains("among_others"), "neither other threads nor what is around the block:\n{said}");
}

#[test]
fn limits_can_be_in_bytes_and_hold_in_both() {
    let said = message(|| drop(assert_max!(bytes = 99, { makes_a_string() })));
    assert!(said.starts_with("too many allocations: 1 allocation, 100 bytes asked"), "{said}");
    assert!(said.contains("allowed: at most 99 bytes\n1 allocation, 100 bytes:\n"), "{said}");
    let said = message(|| drop(assert_max!(1, bytes = 99, { makes_a_string() })));
    assert!(said.contains("allowed: at most 1, of 99 bytes\n"), "{said}");
    let said = message(|| drop(assert_max!(0, bytes = 100, { makes_a_string() })));
    assert!(said.contains("allowed: at most 0, of 100 bytes\n"), "{said}");
}

#[test]
fn only_the_ten_largest_stacks_are_listed_and_the_others_counted() {
    let makers: [fn(); 12] = [
        || makes_boxes(1),
        || makes_boxes(2),
        || makes_boxes(3),
        || makes_boxes(4),
        || makes_boxes(5),
        || makes_boxes(6),
        || makes_boxes(7),
        || makes_boxes(8),
        || makes_boxes(9),
        || makes_boxes(10),
        || makes_boxes(11),
        || makes_boxes(12),
    ];
    let said = message(|| assert_max!(77, { makers.iter().for_each(|make| make()) }));
    assert!(said.contains("too many allocations: 78 allocations"), "{said}");
    assert_eq!(said.matches(" allocations, ").count(), 1 + 10, "{said}");
    assert!(said.ends_with("\n3 allocations in 2 other stacks"), "{said}");
}

#[test]
fn assertions_nest_and_the_outer_one_lists_what_the_inner_one_allowed() {
    let said = message(|| {
        assert_max!(3, {
            assert_max!(2, { makes_boxes(2) });
            drop(makes_a_string());
            assert_max!(2, { makes_boxes(2) });
        });
    });
    assert!(said.contains("too many allocations: 5 allocations"), "{said}");
    assert!(said.contains("\n1 allocation, 100 bytes:\n"), "{said}");
    let boxes = said.lines().filter(|line| line.ends_with(", 16 bytes:")).count();
    assert_eq!(boxes, 2, "{said}");
}

#[test]
fn a_child_after_fork_is_not_held_by_its_parents_assertion() {
    assert_max!(1, {
        // SAFETY: the child makes boxes and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let stats = measure(|| makes_boxes(100)).1;
            let nothing = capture::region::header().is_some() && stats.allocs() == 100;
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if nothing { 7 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child; the pointer lives through the call.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 7);
    });
}
