//! Allocations on every occasion that there is are counted to the unit: as the program's own book says, and as an independent counter does.

use profile_recorder_tests::counter::{self, Counts};
use profile_recorder_tests::{output, programs, run, scratch, text};
use serde_json::Value;
use std::path::Path;

const ALLOCATORS: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"];

fn calls(json: &Value, function: &str) -> u64 {
    json["functions"][function]["calls"].as_u64().unwrap_or(0)
}

/// What the program's book says of `aligned_alloc` and `reallocarray`.
fn book(path: &Path) -> [u64; 2] {
    let bytes = std::fs::read(path).unwrap();
    [0, 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
}

/// Counts of a run, compared with its book.
fn counted(directory: &Path, name: &str, preload: &str) -> (Value, Counts) {
    let program = programs::compile_c("occasions", directory);
    let [json, own, counted] = ["json", "book", "counted"].map(|part| directory.join(format!("{name}.{part}")));
    let arguments = ["stat", "--json", "-o", json.to_str().unwrap(), "--", program.to_str().unwrap()];
    let ran = output(run(&arguments).arg(&own).env("LD_PRELOAD", preload).env("COUNTER_FILE", &counted));
    assert!(ran.status.success() && ran.stdout.is_empty() && ran.stderr.is_empty(), "{}", text(&ran.stderr));
    let json: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let counts = if counted.exists() { counter::read(&counted) } else { Counts::default() };
    let [aligned, arrays] = book(&own);
    assert_eq!((calls(&json, "aligned_alloc"), calls(&json, "reallocarray")), (aligned, arrays), "{preload}: {json}");
    // Three processes that run the whole program, two of them its beginning and end alone; the rest is on occasions.
    assert!(aligned > 3 * 126 + 20 * 2 + 20 * 2 + 210 && arrays == 21, "{aligned}, {arrays}");
    (json, counts)
}

#[test]
fn constructors_handlers_jumps_thread_exits_and_children_are_counted_to_the_unit() {
    let directory = scratch();
    let counter = counter::compile(directory.path());
    let (json, counted) = counted(directory.path(), "counter", counter.to_str().unwrap());
    let ours = Counts {
        malloc: calls(&json, "malloc"),
        calloc: calls(&json, "calloc"),
        // An array that is too large does not come to the next allocator.
        realloc: calls(&json, "realloc") + calls(&json, "reallocarray") - 1,
        posix_memalign: calls(&json, "posix_memalign"),
        aligned_alloc: calls(&json, "aligned_alloc"),
        free: calls(&json, "free"),
    };
    assert_eq!(ours, counted, "ours, and the independent counter's");
}

#[test]
fn the_same_on_other_allocators() {
    let directory = scratch();
    for (i, allocator) in ALLOCATORS.iter().enumerate() {
        counted(directory.path(), &i.to_string(), allocator);
    }
}

#[test]
fn the_stacks_of_all_occasions_sum_to_the_book() {
    let directory = scratch();
    let program = programs::compile_c("occasions", directory.path());
    let [profile, own] = ["p.folded", "book"].map(|name| directory.path().join(name));
    let arguments = ["record", "--quiet", "--mode", "allocs", "-o", profile.to_str().unwrap(), "--"];
    let ran = output(run(&arguments).arg(&program).arg(&own));
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let folded = std::fs::read_to_string(profile).unwrap();
    let of = |leaf: &str| {
        let lines = folded.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(stack, _)| stack.ends_with(leaf));
        lines.map(|(_, count)| count.parse::<u64>().unwrap()).sum::<u64>()
    };
    // An array that is too large is not allocated.
    let [aligned, arrays] = book(&own);
    assert_eq!([of(";aligned_alloc"), of(";reallocarray")], [aligned, arrays - 1], "{folded}");
}
