//! What engines receive, field by field.

use super::*;
use crate::engine::Engine;
use crate::fleet::{CPU_NS, Fleet, SAMPLES, profile};
use profile::{Format, Options};
use serde_json::json;
use std::fs;

#[test]
fn pyroscope_gets_series_with_labels_and_profiles_with_exact_values() {
    let place = Place::new();
    let _fleet = Fleet::start(&place, 2);
    let engine = Engine::start(&place, "taken", 0, &[]);
    let mut command = agent(&place, &["-d", "1", "--service-name", "shop"]);
    let config = fs::read_to_string(place.path("agent.toml")).unwrap();
    let sink = format!(
        "[[sinks]]\nkind = 'pyroscope'\nurl = 'http://127.0.0.1:{}'\ntenant = 'team-a'\nusername = 'u'\npassword = 'p'\nlabels = {{ env = 'prod' }}\n",
        engine.port
    );
    fs::write(place.path("agent.toml"), config + &sink).unwrap();
    let ran = run(&mut command);
    ran.assert_code(0);
    assert!(ran.stderr.contains("pyroscope: 2 sent, 0 kept"), "{}", ran.stderr);
    let taken = engine.taken();
    assert_eq!(taken.len(), 2);
    assert_ne!(taken[0]["id"], taken[1]["id"]);
    for entry in taken {
        let (labels, profile) = (&entry["labels"], &entry["profile"]);
        for (name, value) in
            [("__name__", "process_cpu"), ("__delta__", "false"), ("service_name", "shop"), ("env", "prod")]
        {
            assert_eq!(labels[name], value, "{labels}");
        }
        assert!(labels["hostname"].is_string() && labels["pid"].as_str().unwrap().parse::<u32>().is_ok(), "{labels}");
        assert_eq!(profile["types"], json!(["samples/count", "cpu/nanoseconds"]));
        assert_eq!(profile["totals"], json!([SAMPLES, CPU_NS]));
        assert_eq!(
            (&profile["time"], &profile["duration"]),
            (&json!(1_700_000_000_000_000_000_i64), &json!(1_000_000_000))
        );
        assert_eq!((&profile["period"], &profile["build_ids"]), (&json!(90_909_090), &json!(["abcd"])));
        // Threads are added up; what the program says of itself stays.
        let mut samples = profile["samples"].as_array().unwrap().clone();
        samples.sort_by_key(ToString::to_string);
        let expected = json!([
            {"names": ["parse", "main"], "values": [5, 500_000_000], "labels": {}},
            {"names": ["write", "main"], "values": [2, 200_000_000], "labels": {"route": "/orders"}},
        ]);
        let mut expected = expected.as_array().unwrap().clone();
        expected.sort_by_key(ToString::to_string);
        assert_eq!(samples, expected);
        let headers = &entry["headers"];
        assert_eq!((&headers["x-scope-orgid"], &headers["authorization"]), (&json!("team-a"), &json!("Basic dTpw")));
    }
}

#[test]
fn opentelemetry_gets_a_profile_for_each_sample_type() {
    let place = Place::new();
    let _fleet = Fleet::start(&place, 1);
    let engine = Engine::start(&place, "taken", 0, &[]);
    let ran =
        run(&mut agent(&place, &["-d", "1", "--sink", &engine.sink("otlp"), "--label", "deployment.environment=prod"]));
    ran.assert_code(0);
    let taken = engine.taken();
    let totals: Vec<(&str, i64)> =
        taken.iter().map(|entry| (entry["type"].as_str().unwrap(), entry["total"].as_i64().unwrap())).collect();
    assert_eq!(totals, [("samples/count", SAMPLES), ("cpu/nanoseconds", CPU_NS)]);
    let resource = &taken[0]["resource"];
    assert_eq!((&resource["service.name"], &resource["deployment.environment"]), (&json!("recorders"), &json!("prod")));
    assert!(resource["process.pid"].as_i64().unwrap() > 0 && resource["host.name"].is_string(), "{resource}");
    let mut names: Vec<&Value> = taken[0]["names"].as_array().unwrap().iter().collect();
    names.sort_by_key(|names| names.to_string());
    assert_eq!(names, [&json!(["parse", "main"]), &json!(["write", "main"])]);
    assert_eq!(taken[0]["build_ids"], json!(["abcd"]));
}

#[test]
fn parca_gets_normalized_addresses_in_the_form_that_its_own_client_reads() {
    let place = Place::new();
    let _fleet = Fleet::start(&place, 1);
    let engine = Engine::start(&place, "taken", 0, &[]);
    let ran = run(&mut agent(&place, &["-d", "1", "--sink", &engine.sink("parca"), "--label", "env=prod"]));
    ran.assert_code(0);
    assert!(ran.stderr.contains("parca: 1 sent, 0 kept"), "{}", ran.stderr);
    let taken = engine.taken();
    let [entry] = &taken[..] else { panic!("{taken:?}") };
    let (labels, profile) = (&entry["labels"], &entry["profile"]);
    for (name, value) in [("__name__", "process_cpu"), ("service_name", "recorders"), ("env", "prod")] {
        assert_eq!(labels[name], value, "{labels}");
    }
    assert_eq!((&entry["normalized"], &profile["totals"]), (&json!(true), &json!([SAMPLES, CPU_NS])));
    assert_eq!((&profile["build_ids"], &profile["duration"]), (&json!(["abcd"]), &json!(1_000_000_000)));
    let mut addresses: Vec<u64> = serde_json::from_value(profile["addresses"].clone()).unwrap();
    addresses.sort_unstable();
    assert_eq!(addresses, [0x10, 0x20, 0x30], "those of the file, wherever it was mapped");
}

#[test]
fn files_of_any_format_are_pushed_with_their_times() {
    let place = Place::new();
    let engine = Engine::start(&place, "taken", 0, &[]);
    let (profile, symbols) = profile();
    for (name, format) in [("p.pb.gz", Format::Pprof), ("p.col", Format::Col), ("p.folded", Format::Collapsed)] {
        let mut bytes = Vec::new();
        format.encode(&profile, &symbols, &Options::default(), &mut bytes).unwrap();
        fs::write(place.path(name), bytes).unwrap();
    }
    let sink = engine.sink("pyroscope");
    let push =
        |arguments: &[&str]| place.run(&[&["push", "--sink", &sink, "--label", "from=test"], arguments].concat());
    push(&["p.pb.gz", "p.col"]).assert_code(0);
    push(&["p.folded", "--service", "old", "--start", "2023-11-14T22:13:20Z", "--end", "2023-11-14T22:13:50Z"])
        .assert_code(0);
    let taken = engine.taken();
    let described: Vec<Value> = taken
        .iter()
        .map(|e| {
            json!([e["labels"]["service_name"], e["profile"]["totals"], e["profile"]["time"], e["profile"]["duration"]])
        })
        .collect();
    let start = 1_700_000_000_000_000_000_i64;
    let expected = [
        json!(["p", [SAMPLES, CPU_NS], start, 1_000_000_000]),
        json!(["shop", [CPU_NS], start, 1_000_000_000]),
        json!(["old", [CPU_NS], start, 30_000_000_000_i64]),
    ];
    assert_eq!(described, expected);
    push(&["none.pb.gz"]).assert_refused(1, &["cannot read 'none.pb.gz'"]);
    place.run(&["push", "p.col"]).assert_refused(2, &["nothing says where to"]);
    drop(engine);
    let failed = push(&["p.col", "--wait", "1"]);
    assert_eq!(failed.code, Some(1));
    assert!(
        failed.stderr.contains("pyroscope: 0 sent, 1 kept") && failed.stderr.contains("not everything arrived"),
        "{}",
        failed.stderr
    );
}

#[test]
fn a_directory_gets_files_that_every_tool_reads() {
    let place = Place::new();
    let _fleet = Fleet::start(&place, 2);
    run(&mut agent(&place, &["-d", "1", "--sink", "directory=files", "--service-name", "a/b"])).assert_code(0);
    let files: Vec<_> = fs::read_dir(place.path("files")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2);
    for file in files {
        assert!(file.file_name().unwrap().to_string_lossy().starts_with("a_b.cpu.1700000000000."), "{file:?}");
        place.run(&["convert", file.to_str().unwrap(), "-o", "x.folded"]).assert_code(0);
        assert_eq!(support::collapsed_total(place.path("x.folded"), "main"), CPU_NS);
    }
    assert_eq!(account(&place, "directory")["sent"], 2);
}
