//! A profile of each benchmark that criterion runs:
//!
//! ```sh
//! cargo bench -p profile-recorder-examples --bench criterion -- --profile-time 5 split
//! ls target/criterion/split/profile                                           # cpu.svg
//! ```
//!
//! Without `--profile-time` it measures as ever, and nothing is recorded.

use criterion::{Criterion, criterion_group, criterion_main};
use profile_recorder::{CriterionProfiler, Recorder};
use std::hint::black_box;

fn split(c: &mut Criterion) {
    let text = "to be or not to be ".repeat(100);
    c.bench_function("split", |b| {
        b.iter(|| black_box(&text).split(' ').map(str::to_owned).collect::<Vec<_>>());
    });
}

criterion_group! {
    name = words;
    config = Criterion::default().with_profiler(CriterionProfiler::new(Recorder::cpu().hz(999), "cpu.svg"));
    targets = split
}
criterion_main!(words);
