//! A raw file is written front to back: what that takes beside the profile does not grow with the file.

use profile_recorder_profile::{
    Event, Frame, Label, Labels, Options, Profile, Sample, SampleType, Symbols, Thread, ThreadId, encode, values,
};
use std::hint::black_box;
use std::io::{self, Write};

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

/// Keeps nothing.
#[derive(Default)]
struct Counted {
    bytes: usize,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of the file, and most of the bytes that were allocated at once to write it.
fn written(profile: &Profile) -> (usize, usize) {
    let mut out = Counted::default();
    // Counts what is allocated from here on.
    let profiler = dhat::Profiler::builder().testing().trim_backtraces(Some(4)).build();
    encode::raw::encode(black_box(profile), &Symbols::new(), &Options::default(), &mut out).unwrap();
    let most = dhat::HeapStats::get().max_bytes;
    drop(profiler);
    (out.bytes, most)
}

fn empty() -> Profile {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count")]);
    profile.threads = vec![Thread { pid: 1, tid: 1, name: "main".into(), ..Thread::default() }];
    profile
}

/// A text that hardly compresses.
fn text(number: usize) -> String {
    let word = |salt: u64| (number as u64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    format!("{:016x}{:016x}", word(1), word(2))
}

fn of_samples(count: usize) -> Profile {
    let mut profile = empty();
    let stack = profile.stacks.intern([Frame::named("main")]);
    for i in 0..count {
        let labels = vec![Label::text("request", text(i))];
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(0)),
            labels: labels.into(),
            values: values![i as i64],
        });
    }
    profile
}

fn of_events(count: usize) -> Profile {
    let mut profile = empty();
    let stack = profile.stacks.intern([Frame::named("main")]);
    let time = |i: usize| (i as i64).wrapping_mul(0x1e37_79b9_7f4a_7c15);
    profile.events =
        (0..count).map(|i| Event { unix_ns: time(i), thread: ThreadId(0), stack, weight: time(i) }).collect();
    profile
}

/// The first sample's stack is the last, so that all others come before it.
fn of_stacks(count: usize) -> Profile {
    let mut profile = empty();
    for i in 0..count {
        let stack = profile.stacks.intern([Frame::named("main"), Frame::Named(text(i).into())]);
        profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![1] });
    }
    profile.samples.reverse();
    profile
}

fn of_comments(count: usize) -> Profile {
    Profile { comments: (0..count).map(text).collect(), ..empty() }
}

#[test]
fn writing_takes_no_more_for_ten_times_the_file() {
    for (what, profile) in [
        ("samples", of_samples as fn(usize) -> Profile),
        ("events", of_events),
        ("stacks", of_stacks),
        ("comments", of_comments),
    ] {
        let (short, at_most) = written(&profile(20_000));
        let (long, most) = written(&profile(200_000));
        assert!(short > 200_000 && long > 9 * short, "{what}: {short} bytes and {long}");
        // A chunk more or less full than another.
        assert!(most < at_most + (1 << 17), "{what}: {at_most} bytes for a file of {short}, {most} for one of {long}");
    }
}
