//! The recorder in front of any other allocator: every call is counted and recorded to the unit, and the allocator's promises hold.
//!
//! The programs keep books of their own in front of the recorder (`victims/wrapper`).

use profile_recorder_tests::socket::Carrier;
use profile_recorder_tests::values::{self, Values};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};

/// Calls and bytes of `alloc`, `alloc_zeroed`, `realloc`, `dealloc`.
type Books = [u64; 8];

const FUNCTIONS: [&str; 4] = ["alloc", "alloc_zeroed", "realloc (Rust)", "dealloc"];

fn recorded(stats: &Value) -> Books {
    let of = |at: usize, what: &str| stats["functions"][FUNCTIONS[at]][what].as_u64().unwrap_or(0);
    std::array::from_fn(|i| of(i / 2, if i % 2 == 0 { "calls" } else { "bytes" }))
}

fn since(books: Books, start: Books) -> Books {
    std::array::from_fn(|i| books[i] - start[i])
}

fn heap(carrier: &Carrier) -> Value {
    carrier.json("/debug/pprof/heap?format=json&symbols=names")
}

/// All allocations of a profile.
fn made_in(profile: &Value) -> i64 {
    values::samples(profile).iter().map(|(_, values)| values.alloc_objects).sum()
}

fn assert_exact(program: &str) {
    let mut carrier = Carrier::start(program);
    let mut lines = BufReader::new(carrier.child().stdout.take().expect("piped")).lines();
    let mut go_on = carrier.child().stdin.take().expect("piped");
    let mut start = None;
    let mut cases = 0;
    let last = loop {
        let line = lines.next().expect("a report").expect("text");
        let mut words = line.split('\t');
        let case = words.next().expect("a name");
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        let own: Books = numbers.try_into().expect("eight numbers");
        let theirs = recorded(&carrier.json("/alloc/stats"));
        let (own_start, their_start, _) = *start.get_or_insert_with(|| (own, theirs, made_in(&heap(&carrier))));
        assert_eq!(
            since(theirs, their_start),
            since(own, own_start),
            "{program}: recorded, and the program's own books, after {case:?}"
        );
        if case == "end" {
            break since(own, own_start);
        }
        cases += 1;
        go_on.write_all(b"\n").expect("the program reads");
    };
    assert_eq!(cases, 10, "cases");
    assert!(last.iter().enumerate().all(|(i, n)| *n > 0 || i == 7), "each function was called: {last:?}");

    let profile = heap(&carrier);
    let samples = values::samples(&profile);
    // Two calls were refused: they asked and made no allocation.
    let made = last[0] + last[2] + last[4] - 2;
    let kept = values::by_function(&profile, "kept_");
    let live = |objects, space| Values { inuse_objects: objects, inuse_space: space, ..Values::default() };
    for (name, expected) in [
        ("kept_small", Values { alloc_objects: 1_000, alloc_space: 48_000, ..live(1_000, 48_000) }),
        ("kept_aligned", Values { alloc_objects: 50, alloc_space: 250_000, ..live(50, 250_000) }),
        // A reallocation is a free and an allocation; here no other allocation lies in between.
        (
            "kept_grown",
            Values {
                alloc_objects: 900,
                alloc_space: 300 * (30 + 600 + 20_000),
                temporary_objects: 600,
                ..live(300, 300 * 20_000)
            },
        ),
    ] {
        assert_eq!(kept.get(name), Some(&expected), "{program}: {name}");
    }
    for (names, values) in samples.iter().filter(|(names, _)| names.iter().any(|name| name.contains("balanced"))) {
        assert_eq!((values.inuse_objects, values.inuse_space), (0, 0), "{program}: all of it was freed: {names:?}");
    }
    let recorded = made_in(&profile) - start.map_or(0, |(_, _, made)| made);
    assert_eq!(u64::try_from(recorded).ok(), Some(made), "{program}: the stacks' sum, and the program's own books");
}

#[test]
fn the_system_allocator_is_recorded_to_the_unit() {
    assert_exact("victim-wraps-system");
}

#[test]
fn mimalloc_is_recorded_to_the_unit() {
    assert_exact("victim-wraps-mimalloc");
}

#[test]
fn jemalloc_is_recorded_to_the_unit() {
    assert_exact("victim-wraps-jemalloc");
}
