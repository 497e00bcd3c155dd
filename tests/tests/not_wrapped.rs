//! In a program whose allocator records nothing, `measure` says so: zero would be a lie.

use profile_recorder::alloc::{assert_max, measure};

fn message(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(f).expect_err("nothing counts here");
    panic.downcast_ref::<&str>().expect("a message").to_string()
}

#[test]
fn nothing_is_measured_where_nothing_counts() {
    const SAID: &str = "the program's #[global_allocator] is not a profile_recorder::RecordingAllocator";
    for said in [message(|| _ = measure(|| 1)), message(|| assert_max!(5, {}))] {
        assert!(said.ends_with(SAID), "{said}");
    }
}

#[test]
fn labels_need_no_allocator() {
    let _outer = profile_recorder::labels::enter("a", 1);
    assert_eq!(profile_recorder::labels::with("b", 2, || 3), 3);
}
