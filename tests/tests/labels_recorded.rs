//! Labels that a program sets reach the recording that `profrec` makes of it.

use profile_recorder_tests::{build, output, run, scratch, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The first column by label set, of the stacks with a function of this name.
fn by_labels(profile: &Path, function: &str, column: usize) -> BTreeMap<String, i64> {
    let json: Value = serde_json::from_slice(&std::fs::read(profile).expect("the profile")).expect("JSON");
    let name = |frame: &Value| json["frames"][frame.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
    let mut sums = BTreeMap::new();
    for sample in json["samples"].as_array().expect("samples") {
        if sample["stack"].as_array().expect("a stack").iter().any(|frame| name(frame).ends_with(function)) {
            let value = sample["values"][column].as_i64().expect("a value");
            if value == 0 {
                continue;
            }
            let labels = sample.get("labels").map_or_else(|| "none".to_owned(), ToString::to_string);
            *sums.entry(labels).or_default() += value;
        }
    }
    sums
}

#[test]
fn allocations_and_cpu_time_of_all_processes_split_by_label() {
    let directory = scratch();
    let program = build("victim-labelled");
    let profile = |name: &str| directory.path().join(name);
    let recorded = output(&mut run(&[
        "record",
        "--mode",
        "allocs,cpu",
        "--hz",
        "997",
        "-o",
        profile("p.json").to_str().unwrap(),
        "--",
        program.to_str().unwrap(),
    ]));
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let expected = [
        ("none", 2 * 100 + 2 + 1),
        (r#"{"route":"/a"}"#, 2 * 300),
        (r#"{"route":"/a","tenant":"7"}"#, 2 * 500),
        (r#"{"route":"/b"}"#, 2 * 200),
        (r#"{"route":"/child"}"#, 13),
        (r#"{"route":"/parent"}"#, 11),
    ];
    let expected = expected.map(|(labels, objects)| (labels.to_owned(), objects));
    // Both in one file: objects, bytes and temporary objects, then samples and nanoseconds.
    assert_eq!(by_labels(&profile("p.json"), "::boxes", 0), BTreeMap::from(expected));
    let time = by_labels(&profile("p.json"), "::spin", 4);
    let labelled = time[r#"{"route":"/cpu"}"#];
    let all: i64 = time.values().sum();
    assert!(labelled * 20 > all * 19 && labelled > 50_000_000, "{time:?}");
}
