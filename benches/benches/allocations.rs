//! Time of an allocation with its stack, every one recorded: `cargo bench -p profile-recorder-benches --bench allocations [-- --quick]`
//!
//! A child runs four workloads without and with the preload library (`allocs`, interval 1). What a recorded allocation takes more is the hook with all it does: counting, the
//! verified walk, the call tree, the values; and the free is counted too.

use profile_recorder_benches::figures::{Rounds, is_quick, time};
use profile_recorder_benches::recorded::{Stores, as_child, numbers};
use profile_recorder_benches::stacks::deeper;
use serde_json::Value;
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts allocations, in both columns alike.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.store(ALLOCATIONS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.store(ALLOCATIONS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// Name, frames below the benchmark's own, and what a prototype took on another machine (ns).
const WORKLOADS: [(&str, u32, &str); 4] = [
    ("malloc(64) in a loop", 30, "27-29"),
    ("the same, 70 frames deeper", 100, "66-75"),
    ("serde_json parse and drop", 0, "43-53"),
    ("the same, 50 frames deeper", 50, "41-92"),
];

fn main() {
    if as_child().is_some() {
        return child();
    }
    let stores = Stores::new();
    let mut columns: [[Rounds; 4]; 2] = Default::default();
    for _ in 0..if is_quick() { 1 } else { 9 } {
        for (modes, column) in [None, Some("allocs")].into_iter().zip(&mut columns) {
            numbers(&stores, "run", modes).into_iter().zip(column).for_each(|(number, rounds)| rounds.push(number));
        }
    }
    println!("An allocation, ns: best and median of runs in turn.\n");
    println!("                                  plain           recorded         on top       prototype");
    for (i, (name, _, prototype)) in WORKLOADS.into_iter().enumerate() {
        let [plain, ours] = [&columns[0][i], &columns[1][i]];
        println!(
            "{name:28} {:7.1} {:7.1} {:9.1} {:7.1} {:8.1} {:7.1}   {prototype}",
            plain.best(),
            plain.median(),
            ours.best(),
            ours.median(),
            ours.best() - plain.best(),
            ours.median() - plain.median(),
        );
    }
}

/// Prints nanoseconds an allocation of each workload, the best of some rounds.
fn child() {
    let text = document();
    for (i, (_, frames, _)) in WORKLOADS.into_iter().enumerate() {
        let mut best = Rounds::default();
        deeper(frames, &mut || {
            for _ in 0..30 {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                let nanoseconds = time(|| match i {
                    0 | 1 => (0..20_000).for_each(|_| drop(black_box(Box::new([0_u64; 8])))),
                    _ => (0..20).for_each(|_| {
                        let value: Value = serde_json::from_str(black_box(&text)).expect("the document is valid");
                        drop(black_box(value));
                    }),
                });
                best.push(nanoseconds / (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64);
            }
        });
        println!("{}", best.best());
    }
}

fn document() -> String {
    let row =
        |i: usize| serde_json::json!({"id": i, "name": format!("item {i}"), "tags": ["a", "b"], "value": {"x": 0.5}});
    Value::from((0..100).map(row).collect::<Vec<_>>()).to_string()
}
