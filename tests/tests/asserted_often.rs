//! An assertion that holds costs no memory in the long run: its stacks are those of the times before.

use profile_recorder::alloc::assert_max;
use std::hint::black_box;

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

#[test]
fn assertions_in_a_loop_take_no_more_memory_each_time() {
    let once = |i: u64| assert_max!(2, { (0..2).for_each(|k| drop(black_box(Box::new(i + k)))) });
    (0..10).for_each(once);
    let before = capture::region::used_bytes();
    (0..20_000).for_each(once);
    assert_eq!(capture::region::used_bytes(), before);
}
