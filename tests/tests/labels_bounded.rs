//! However many different labels there are, memory is bounded, and what is lost is said.

use profile_recorder::labels;
use std::hint::black_box;

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

fn profile() -> profile::Profile {
    let mut bytes = vec![0; capture::region::used_bytes()];
    let length = capture::copy::copy(&mut bytes);
    profile::store::decode(&bytes[..length]).expect("a store").allocs.expect("allocations")
}

#[test]
fn beyond_the_limit_the_labels_around_stay_and_the_loss_is_told() {
    profile_recorder::alloc::measure(|| ());
    labels::with("route", "/orders", || {
        (0..65_600).for_each(|id| labels::with("id", id, || ()));
        let before = capture::region::used_bytes();
        (65_600..200_000).for_each(|id| labels::with("id", id, || ()));
        assert_eq!(capture::region::used_bytes(), before);
        let record = |n: usize| {
            profile_recorder::alloc::assert_max!(1_000, { (0..n).for_each(|i| drop(black_box(Box::new(i)))) });
        };
        labels::with("id", 65_000, || record(3));
        labels::with("id", 199_999, || record(5));
        labels::with("too long", 0, || labels::with("value", "x".repeat(2000), || record(7)));
    });
    let profile = profile();
    let of = |labels: &[profile::Label]| -> i64 {
        profile.samples.iter().filter(|sample| *sample.labels == *labels).map(|sample| sample.values[0]).sum()
    };
    let (id, route) = (profile::Label::text("id", "65000"), profile::Label::text("route", "/orders"));
    assert_eq!(of(&[id, route.clone()]), 3);
    // The set around: 5 and, since no other fits any more, 7.
    assert_eq!(of(&[route]), 12);
    let comment = profile.comments.iter().find(|comment| comment.contains("too many labels")).expect("a comment");
    let lost: u64 =
        comment.split("lost: ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect(comment);
    assert_eq!(lost, 200_000 - 65_535 + 3, "one set is the route's own; the last three as well");
}
