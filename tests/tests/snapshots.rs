//! Heap profiles of a program at work are consistent: what an allocation did is in them whole or not at all.

use profile_recorder_tests::socket::Carrier;
use profile_recorder_tests::values;
use std::io::{BufRead as _, BufReader};

const SNAPSHOTS: usize = 200;

/// Each site allocates one size, so in every stack objects times that size are bytes, and what is in use is at least nothing.
#[test]
fn in_every_snapshot_objects_and_bytes_of_a_stack_agree() {
    let mut carrier = Carrier::start("victim-sizes");
    let mut ready = String::new();
    BufReader::new(carrier.child().stdout.take().expect("piped")).read_line(&mut ready).expect("text");
    let (mut stacks, mut wrong, mut allocated) = (0, Vec::new(), 0);
    for snapshot in 0..SNAPSHOTS {
        let profile = carrier.json("/debug/pprof/heap?format=json&symbols=names");
        let mut sum = 0;
        for (names, values) in values::samples(&profile) {
            let size = names.iter().find_map(|name| name.split("::").find_map(|part| part.strip_prefix("size_")));
            let Some(size) = size.and_then(|size| size.parse::<i64>().ok()) else { continue };
            stacks += 1;
            sum += values.alloc_objects;
            let agree = values.inuse_objects >= 0
                && values.inuse_objects <= values.alloc_objects
                && values.alloc_space == size * values.alloc_objects
                && values.inuse_space == size * values.inuse_objects;
            if !agree {
                wrong.push(format!("snapshot {snapshot}, size {size}: {values:?}"));
            }
        }
        assert!(sum >= allocated, "counts never go back: {sum} after {allocated}");
        allocated = sum;
    }
    assert!(stacks >= SNAPSHOTS * 8, "the sites were seen: {stacks}");
    assert!(
        wrong.is_empty(),
        "{} of {stacks} stacks do not agree, {allocated} allocations:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}
