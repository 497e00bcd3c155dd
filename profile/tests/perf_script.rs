//! inferno's `collapse-perf` reads our `perf script` text and comes to the same numbers.

mod support;

use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options as FolderOptions};
use profile_recorder_profile::decode::{self, Limits};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{
    Frame, Labels, Options, Profile, Sample, SampleType, Symbols, Thread, ThreadId, encode, values,
};
use support::encoded;

fn collapsed(of: &(Profile, Symbols), column: usize) -> Profile {
    let text = encoded(encode::perf::encode, of, &Options { sample_type: Some(column), ..Options::default() });
    let mut folded = Vec::new();
    Folder::from(FolderOptions::default()).collapse(&text[..], &mut folded).unwrap();
    decode::collapsed::decode(&folded, SampleType::new("any", "unit"), Limits::default()).unwrap()
}

/// As inferno has a name: where perf knows none, that of the file.
fn shown(name: &str) -> String {
    match name.split_once("+0x").map(|(file, _)| file) {
        Some(file) => format!("[{file}]"),
        None => name.replace(';', ":"),
    }
}

#[test]
fn inferno_adds_our_periods_up_to_our_totals() {
    for of in [support::cpu(), support::heap(), support::large(2000, 100)] {
        for column in 0..of.0.sample_types.len() {
            assert_eq!(collapsed(&of, column).total(0), of.0.total(column), "{:?}", of.0.sample_types[column]);
        }
    }
}

/// Self and total of the heaviest functions, by both.
#[test]
fn the_top_ten_of_inferno_are_the_models() {
    for (what, of) in [("cpu", support::cpu()), ("heap", support::heap()), ("large", support::large(2000, 100))] {
        for column in 0..of.0.sample_types.len() {
            let theirs = top::functions(&collapsed(&of, column), &Symbols::new(), 0, Leaf::Recorded);
            let mut ours = top::functions(&of.0, &of.1, column, Leaf::Recorded);
            // Threads without a name are called `[unknown]` too, and inferno has a frame for each thread's name.
            ours.retain(|function| !function.name.starts_with("[unknown]"));
            let mut heaviest: Vec<_> = ours.iter().take(10).cloned().collect();
            ours.sort_by_key(|function| std::cmp::Reverse(function.total));
            heaviest.extend(ours.into_iter().take(10));
            for function in heaviest {
                let of_theirs = theirs.iter().find(|f| f.name == shown(&function.name));
                let found = of_theirs.map(|f| (f.self_value, f.total));
                assert_eq!(found, Some((function.self_value, function.total)), "{what} {column} {}", function.name);
            }
        }
    }
}

#[test]
fn readers_that_count_entries_get_the_number_of_samples() {
    let (mut profile, symbols) = support::cpu();
    profile.events.clear();
    let text =
        String::from_utf8(encoded(encode::perf::encode, &(profile.clone(), symbols), &Options::default())).unwrap();
    assert_eq!(text.lines().filter(|line| line.ends_with("cpu-clock: ")).count() as i64, profile.total(0));
}

#[test]
fn what_the_events_do_not_cover_is_written_after_them() {
    let (mut profile, symbols) = support::cpu();
    profile.events.iter_mut().for_each(|event| event.weight = 3_000_000);
    let of = (profile, symbols);
    assert_eq!(collapsed(&of, 1).total(0), of.0.total(1));
}

#[test]
fn no_thread_name_misleads_the_reader() {
    for name in ["12", "12/34", "a 3 b", "7 8", "", "# note", "tokio:worker", "x\ny", "worker é", "(comm)"] {
        let mut profile = Profile::new(vec![SampleType::new("cpu", "nanoseconds")]);
        profile.threads = vec![Thread { pid: 1, tid: 2, name: name.into(), ..Thread::default() }];
        let stack = profile.stacks.intern([Frame::named("main")]);
        profile.samples.push(Sample { stack, thread: Some(ThreadId(0)), labels: Labels::new(), values: values![5] });
        let read = collapsed(&(profile, Symbols::new()), 0);
        assert_eq!(read.total(0), 5, "{name}");
        assert_eq!(read.stacks.frame(read.samples[0].stack), Some(&Frame::named("main")), "{name}");
    }
}
