//! An assertion sees every allocation of its thread whatever is recorded of the process, and leaves the recording as it was.

use alloc_hook::record;
use profile_recorder::alloc::{assert_max, measure};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

#[inline(never)]
fn boxes(n: u64) {
    (0..n).for_each(|i| drop(black_box(Box::new(i))));
}

/// Allocations recorded of this process so far, as they were weighed.
fn recorded() -> i64 {
    let mut bytes = vec![0; capture::region::used_bytes()];
    let length = capture::copy::copy(&mut bytes);
    profile::store::decode(&bytes[..length]).expect("a store").allocs.expect("allocations").total(0)
}

fn said() -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| assert_max!(2, { boxes(3) }))).expect_err("a limit was passed");
    let said = panic.downcast_ref::<String>().expect("a message").clone();
    said.lines().take(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_message_is_the_same_whatever_is_recorded() {
    const SAID: &str = "too many allocations: 3 allocations, 24 bytes asked, 3 frees (alloc 3); allowed: at most 2\n3 allocations, 24 bytes:";
    measure(|| ());
    for interval in [0, 1, 512 << 10, 0] {
        record::set_interval(interval);
        assert_eq!(said(), SAID, "interval {interval}");
        assert_eq!(record::interval(), interval);
    }
    let before = recorded();
    boxes(1000);
    assert_eq!(recorded(), before, "nothing is recorded outside");

    // A sampled recording of this thread goes on: one in 64 bytes on average, boxes of 8, so that about one of eight is recorded and stands for eight and a half.
    record::set_interval(64);
    assert_max!(1000, { boxes(1000) });
    let before = recorded();
    boxes(100_000);
    record::set_interval(0);
    let estimate = recorded() - before;
    assert!((90_000..110_000).contains(&estimate), "{estimate} of 100,000, more than ten standard deviations around");
}
