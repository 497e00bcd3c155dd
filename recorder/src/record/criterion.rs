//! Profiles of criterion's benchmarks.

use super::{RecordError, Recorder, Session};
use crate::log::log;
use criterion::profiler::Profiler;
use std::io;
use std::path::Path;

/// Writes a profile of each benchmark that criterion runs with `--profile-time`:
///
/// ```no_run
/// use criterion::{Criterion, criterion_group, criterion_main};
/// use profile_recorder::{CriterionProfiler, Recorder};
///
/// fn split(c: &mut Criterion) {
///     c.bench_function("split", |b| b.iter(|| "a b c".split(' ').map(str::to_owned).collect::<Vec<_>>()));
/// }
///
/// criterion_group! {
///     name = words;
///     config = Criterion::default().with_profiler(CriterionProfiler::new(Recorder::cpu().hz(999), "cpu.svg"));
///     targets = split
/// }
/// criterion_main!(words);
/// ```
///
/// `cargo bench --bench words -- --profile-time 10 split` then writes `target/criterion/split/profile/cpu.svg`; the file's extension says the format. With `Recorder::allocs().interval(1)` it
/// is every allocation, if the benchmark's global allocator is a [`RecordingAllocator`](crate::RecordingAllocator). Without `--profile-time` nothing is recorded.
///
/// What goes wrong is said on stderr in a line, and the benchmarks go on.
#[derive(Debug)]
pub struct CriterionProfiler {
    recorder: Recorder,
    file_name: String,
    session: Option<Session>,
}

impl CriterionProfiler {
    /// Records each benchmark so, into a file of that name in the folder that criterion has for it.
    pub fn new(recorder: Recorder, file_name: impl Into<String>) -> Self {
        Self { recorder, file_name: file_name.into(), session: None }
    }

    fn finish(&mut self, directory: &Path) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let profile = session.stop().map_err(|error: RecordError| io::Error::other(error.to_string()))?;
        std::fs::create_dir_all(directory)?;
        profile.write_to(directory.join(&self.file_name))
    }
}

impl Profiler for CriterionProfiler {
    fn start_profiling(&mut self, benchmark_id: &str, _benchmark_dir: &Path) {
        match self.recorder.clone().start() {
            Ok(session) => self.session = Some(session),
            Err(error) => log!(Error, "{benchmark_id}: {error}"),
        }
    }

    fn stop_profiling(&mut self, benchmark_id: &str, benchmark_dir: &Path) {
        if let Err(error) = self.finish(benchmark_dir) {
            log!(Error, "{benchmark_id}: {} was not written: {error}", self.file_name);
        }
    }
}
