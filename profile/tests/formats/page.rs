//! The flame graph page, in a real browser, comes to the model's numbers.

use crate::support::{self, encoded};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{Frame, Labels, Options, Profile, Sample, SampleType, Symbols, encode, values};
use std::path::Path;
use std::process::Command;

/// Runs `tests/page/SCENARIO.mjs`.
fn drive(scenario: &str, argument: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/page/run");
    let output =
        Command::new(script).arg(std::env::current_exe().unwrap()).arg(scenario).arg(argument).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}

/// Name, own value and total of every function, for each column; numbers as texts.
fn functions(of: &(Profile, Symbols)) -> Vec<Vec<[String; 3]>> {
    let columns = of.0.sample_types.iter().enumerate().map(|(column, sample_type)| {
        let leaf = if sample_type.is_memory() { Leaf::Caller } else { Leaf::Recorded };
        let all = top::functions(&of.0, &of.1, column, leaf).into_iter();
        all.map(|f| [f.name, f.self_value.to_string(), f.total.to_string()]).collect()
    });
    columns.collect()
}

/// Values that a double does not hold, of both signs.
fn wide() -> (Profile, Symbols) {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("odd", "things")]);
    for (frames, value) in [
        (&["main", "f"][..], (1 << 53) + 1),
        (&["main", "g"], i64::MAX / 2),
        (&["main", "g", "main"], -(1 << 60) - 1),
        (&["h"], i64::MIN / 4 + 3),
        (&[], 5),
    ] {
        let stack = profile.stacks.intern(frames.iter().map(|name| Frame::named(name)));
        profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![1, value] });
    }
    (profile, Symbols::new())
}

/// Names that try to be markup, or are hard to show.
fn odd() -> (Profile, Symbols) {
    let mut profile = Profile::new(vec![SampleType::new("alloc_space", "bytes")]);
    let long = "x".repeat(10_000);
    let cut = String::from_utf8_lossy(b"cut\xff\xc3").into_owned();
    for (i, name) in [
        "</script><script>alert(1)</script>",
        "<!--",
        "line\nbreak\r\t\0",
        "\u{2028}\u{202e}",
        &cut,
        &long,
        "'\"&amp;",
        "__proto__",
    ]
    .into_iter()
    .enumerate()
    {
        let frames = ["constructor".to_owned(), name.to_owned(), "malloc".to_owned()];
        let stack = profile.stacks.intern(frames.map(|name| Frame::Named(name.into())));
        profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![i as i64 + 1] });
    }
    (profile, Symbols::new())
}

/// What [`support::cpu`] is compared with: half of the samples of one stack, a function that went, none lost.
fn half() -> (Profile, Symbols) {
    let (mut profile, symbols) = support::cpu();
    profile.samples.truncate(4);
    profile.samples[0].values = values![4, 40_000_000];
    profile.samples.remove(1);
    let stack = profile.stacks.intern([Frame::named("only_in_base")]);
    profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: values![7, 70_000_000] });
    (profile, symbols)
}

#[test]
fn every_number_of_a_file_is_the_models_and_every_control_works() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
    for (name, of) in [("large", support::large(3000, 200)), ("odd", odd()), ("wide", wide()), ("cpu", support::cpu())]
    {
        write(&format!("{name}.html"), &encoded(encode::html::encode, &of, &Options::default()));
        write(&format!("{name}.json"), &serde_json::to_vec(&functions(&of)).unwrap());
    }
    write("half.html", &encoded(encode::html::encode, &half(), &Options::default()));
    write("half.json", &encoded(encode::json::encode, &half(), &Options::default()));
    drive("file", directory.path());
}
