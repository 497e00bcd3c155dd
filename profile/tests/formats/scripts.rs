//! A script in another language, which knows the formats from their descriptions, comes to the model's numbers.

use crate::support::{self, ODD, encoded};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{Format, Frame, Label, Options, Profile, Sample, SampleType, Symbols, Thread, ThreadId};
use serde_json::Value;
use std::cmp::Reverse;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What `functions.py` says of a file: one object for each column that it has.
fn said(format: Format, of: &(Profile, Symbols), column: usize) -> Vec<Value> {
    let options = Options { sample_type: Some(column), ..Options::default() };
    let file = encoded(|p, s, o, w| format.encode(p, s, o, w), of, &options);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/functions.py");
    let mut python = Command::new("python3")
        .args([script.as_os_str(), format.name().as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3: tests/run installs it");
    python.stdin.take().unwrap().write_all(&file).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{format}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// As each format names it.
fn shown(format: Format, name: &str) -> String {
    if format == Format::Json {
        return name.to_owned();
    }
    match name {
        "f 12" => "f_12".to_owned(),
        "# not a comment" => "_# not a comment".to_owned(),
        name if name.trim_matches([' ', '\0']).is_empty() => "_".to_owned(),
        name => name.replace(';', ":").replace(['\n', '\r', '\t'], " "),
    }
}

fn top_equals(what: &str, format: Format, of: &(Profile, Symbols), column: usize, said: &Value, most: usize) {
    let what = format!("{what} {format} {:?}", of.0.sample_types[column]);
    assert_eq!(said["total"].as_i64(), Some(of.0.total(column)), "{what}");
    let mut ours = top::functions(&of.0, &of.1, column, Leaf::Recorded);
    assert!(ours.len() >= most.min(4), "{what}: {ours:?}");
    // No field of a line is taken for a function.
    let theirs = said["functions"].as_object().unwrap();
    let theirs = theirs.values().filter(|sums| sums.as_array().unwrap().iter().any(|sum| sum.as_i64() != Some(0)));
    assert_eq!(theirs.count(), ours.len(), "{what}");
    for by in ["self", "total"] {
        if by == "total" {
            ours.sort_by_key(|function| Reverse(function.total));
        }
        for function in ours.iter().take(most) {
            let name = shown(format, &function.name);
            let theirs = &said["functions"][&name];
            let theirs = (theirs[0].as_i64(), theirs[1].as_i64());
            assert_eq!(theirs, (Some(function.self_value), Some(function.total)), "{what} by {by}: {name:?}");
        }
    }
}

fn every_column(what: &str, of: &(Profile, Symbols), most: usize) {
    let all = said(Format::Json, of, 0);
    assert_eq!(all.len(), of.0.sample_types.len(), "{what}");
    for (column, in_json) in all.iter().enumerate() {
        top_equals(what, Format::Json, of, column, in_json, most);
        let [in_col] = &said(Format::Col, of, column)[..] else { panic!("one column") };
        top_equals(what, Format::Col, of, column, in_col, most);
    }
}

#[test]
fn the_top_ten_of_json_and_col_are_the_models() {
    for (what, of) in [("cpu", support::cpu()), ("heap", support::heap()), ("large", support::large(3000, 200))] {
        every_column(what, &of, 10);
    }
}

#[test]
fn odd_names_deep_stacks_and_wide_values_are_the_models_too() {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
    profile.comments = ODD.map(str::to_owned).to_vec();
    profile.threads = vec![Thread { process: "od;d 7".into(), name: "t".into(), ..Thread::default() }];
    let mut add = |names: Vec<String>, values: [i64; 2]| {
        let stack = profile.stacks.intern(names.into_iter().map(|name| Frame::Named(name.into())));
        let labels = vec![Label::text("container", "web;1"), Label::text("appid", "java: a;b 3")];
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(0)),
            labels: labels.into(),
            values: values.to_vec().into(),
        });
    };
    // Of those that are blank `.col` makes one name: one of them is enough.
    for (i, name) in ODD.iter().filter(|name| !name.trim_matches([' ', '\0']).is_empty()).enumerate() {
        add(["main", name, "leaf"].map(str::to_owned).to_vec(), [1 << i, -(1 << i)]);
    }
    add(vec!["main".to_owned(), "\0".to_owned()], [5, 7]);
    add((0..1000).map(|i| format!("recurse_{}", i % 7)).collect(), [(1 << 53) + 1, i64::MAX / 4]);
    add(vec!["x".repeat(10_000)], [(1 << 60) + 1, i64::MIN / 4]);
    add(vec!["nothing".to_owned()], [0, 0]);
    every_column("odd", &(profile, Symbols::new()), usize::MAX);
}

#[test]
fn a_profile_of_nothing_has_a_total_of_zero_and_no_functions() {
    let nothing = (Profile::new(vec![SampleType::new("samples", "count")]), Symbols::new());
    for format in [Format::Json, Format::Col] {
        let said = said(format, &nothing, 0);
        assert_eq!(said, [serde_json::json!({"total": 0, "functions": {}})], "{format}");
    }
}
