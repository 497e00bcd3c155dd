//! `profrec diff`: what it reads, says and ends with.

mod support;

use support::Place;

const BASE: &str = "main;parse 100\nmain;print 50\n";

/// A place with collapsed stacks before and after.
fn place(head: &str) -> Place {
    let mut place = Place::new();
    place.add("base.folded", BASE, 0o644);
    place.add("head.folded", head, 0o644);
    place
}

/// Counters as `stat --json` writes them.
fn counters(allocations: u64) -> String {
    let malloc = serde_json::json!({"calls": allocations, "bytes": 10 * allocations});
    let report = serde_json::json!({
        "version": 1, "command": ["app"], "exit_code": 0, "processes": 1, "allocations": allocations, "bytes": 10 * allocations,
        "functions": {"malloc": malloc}, "elapsed_seconds": 0.1, "user_seconds": 0.1, "system_seconds": 0.0,
    });
    report.to_string()
}

fn with_counters(base: u64, head: u64) -> Place {
    let mut place = Place::new();
    place.add("base.json", counters(base), 0o644);
    place.add("head.json", counters(head), 0o644);
    place
}

#[test]
fn the_exit_code_is_that_of_the_limits() {
    for (base, head, limits, code, said) in [
        (1000, 1000, &["--fail-on", "allocs=+0"][..], 0, "no change"),
        (1000, 1001, &["--fail-on", "allocs=+0"], 3, "limit exceeded: allocs +1 (+0.10%)"),
        (1000, 1001, &[], 0, "changed: allocs +1 (+0.10%)"),
        (1000, 1001, &["--warn-on", "allocs=+0"], 0, "soft limit exceeded: allocs +1 (+0.10%)"),
        (1000, 1001, &["--fail-on", "allocs=+1%"], 0, "within limits: allocs +1 (+0.10%)"),
        (1000, 1011, &["--fail-on", "allocs=+1%"], 3, "limit exceeded"),
        (1000, 1011, &["--fail-on", "allocs=+1%|+20"], 0, "within limits"),
        (1000, 1011, &["--fail-on", "allocs=1011", "--fail-on", "malloc=+10"], 3, "limit exceeded: malloc +11"),
        (1000, 900, &["--fail-on", "allocs=+0", "--fail-on", "bytes=+0"], 0, "within limits: allocs -100 (-10.00%)"),
        (0, 5, &["--fail-on", "allocs=+100%"], 3, "limit exceeded: allocs +5"),
    ] {
        let place = with_counters(base, head);
        let ran = place.run(&[&["diff", "base.json", "head.json"], limits].concat());
        ran.assert_code(code);
        assert!(ran.stdout.lines().next().unwrap().starts_with(said), "{limits:?}: {}", ran.stdout);
    }
}

#[test]
fn what_cannot_be_compared_is_refused_in_a_line() {
    let mut place = with_counters(1, 1);
    place.add("stacks.folded", BASE, 0o644);
    place.add("empty.pb.gz", "", 0o644);
    place.add("broken.pb.gz", b"\x1f\x8b\x08\x00\x00garbage", 0o644);
    place.add("other.json", "{\"a\": 1}", 0o644);
    place.add("thresholds.json", "{\"schema\": \"x\", \"version\": 1, \"cases\": {}}", 0o644);
    for (arguments, code, said) in [
        (&["base.json", "missing.json"][..], 1, "cannot read 'missing.json': no such file or directory"),
        (&["base.json", "stacks.folded"], 1, "compare two of a kind"),
        (&["base.json", "empty.pb.gz"], 1, "the file is empty"),
        (&["stacks.folded", "broken.pb.gz"], 1, "cannot read 'broken.pb.gz': damaged gzip data"),
        (&["base.json", "other.json"], 1, "not what 'profrec stat --json' writes"),
        (&["base.json", "."], 1, "name two of a kind"),
        (&["base.json", "head.json", "--fail-on", "peak=+1"], 1, "no metric 'peak'; it has allocs, bytes, malloc"),
        (&["base.json", "head.json", "--metric", "cpu"], 1, "no metric 'cpu'"),
        (&["base.json", "head.json", "--fail-on", "allocs"], 2, "'allocs' for '--fail-on <LIMIT>'"),
        (&["base.json", "head.json", "--format", "svg"], 1, "counters have no stacks to draw"),
        (&["base.json", "head.json", "-o", "a.bmp"], 2, ".md, .json"),
        (&["base.json", "head.json", "-o", "a.md", "-o", "a.md"], 2, "'a.md' is given twice"),
        (&["base.json", "head.json", "-o", "no/a.md"], 1, "its directory does not exist"),
        (&["base.json", "head.json", "--update"], 2, "--thresholds"),
        (
            &["base.json", "head.json", "--thresholds", "thresholds.json"],
            1,
            "not 'profile-recorder.thresholds' version 1",
        ),
        (&["base.json", "head.json", "--thresholds", "none.json"], 1, "--update makes it"),
        (&["base.json"], 2, "name BASE and HEAD, or --thresholds"),
        (&[], 2, "BASE"),
    ] {
        let ran = place.run(&[&["diff"], arguments].concat());
        ran.assert_refused(code, &[said]);
    }
    assert_eq!(place.new_files(), [""; 0], "nothing half-written");
}

#[test]
fn every_format_says_the_same() {
    let place = place("main;parse 400\nmain;print 50\nmain;log 30\n");
    let arguments = ["diff", "base.folded", "head.folded", "--fail-on", "samples=+10%", "--quiet"];
    let in_format = |format: &str| {
        let ran = place.run(&[&arguments[..], &["--format", format]].concat());
        ran.assert_code(3);
        assert_eq!(ran.stderr, "");
        ran.stdout
    };
    let text = in_format("text");
    assert!(
        text.starts_with("limit exceeded: samples +330 (+220.00%)\n") && text.contains("+300  grown  parse"),
        "{text}"
    );
    let markdown = in_format("markdown");
    assert!(
        markdown.starts_with("<!-- profile-recorder-diff:diff -->\n❌ **Limit exceeded: samples +330"),
        "{markdown}"
    );
    assert!(
        markdown.contains("| samples | 150 | 480 | +330 ± 49 | +220.00% | samples=+10% | limit exceeded |"),
        "{markdown}"
    );
    let json: serde_json::Value = serde_json::from_str(&in_format("json")).unwrap();
    assert_eq!(
        (&json["schema"], &json["version"], &json["severity"]),
        (&"profile-recorder.diff".into(), &1.into(), &"exceeded".into())
    );
    let metric = &json["cases"][0]["metrics"][0];
    assert_eq!((&metric["base"], &metric["head"], &metric["delta"]), (&150.into(), &480.into(), &330.into()));
    let blame = &json["cases"][0]["blame"];
    assert_eq!((&blame["grown"], &blame["new"], &blame["same"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(blame["stacks"][0]["site"]["name"], "parse");
    let action: serde_json::Value = serde_json::from_str(&in_format("benchmark-action")).unwrap();
    let entry = serde_json::json!([{"name": "profile/samples", "unit": "count", "value": 480, "range": "± 49", "extra": "base: 150"}]);
    assert_eq!(action, entry);
    let bmf: serde_json::Value = serde_json::from_str(&in_format("bmf")).unwrap();
    assert_eq!(bmf["profile"]["samples"]["value"], 480.0);
    assert!(bmf["profile"]["samples"]["lower_value"].as_f64() < Some(480.0));
    let svg = in_format("svg");
    assert!(svg.contains("<svg") && svg.contains("<title>parse (400 count"), "{svg}");
    let html = in_format("html");
    assert!(
        html.contains("<h2 class=\"bad\">limit exceeded: samples +330") && html.contains("profile-recorder.comparison"),
        "{html}"
    );
}

#[test]
fn files_take_the_reports_by_their_extensions() {
    let place = with_counters(10, 12);
    let ran = place.run(&[
        "diff",
        "base.json",
        "head.json",
        "--fail-on",
        "allocs=+0",
        "-o",
        "a.md",
        "-o",
        "a.json",
        "-o",
        "a.txt",
        "-o",
        "a.html",
    ]);
    ran.assert_code(3);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "warning: limit exceeded: allocs +2 (+20.00%)\n"));
    assert_eq!(place.new_files(), ["a.html", "a.json", "a.md", "a.txt"]);
}

#[test]
fn sampled_values_within_chance_exceed_nothing() {
    let place = place("main;parse 105\nmain;print 50\n");
    let ran = place.run(&["diff", "base.folded", "head.folded", "--fail-on", "samples=+0"]);
    ran.assert_code(0);
    assert!(ran.stdout.starts_with("beyond a limit, but within noise: samples +5"), "{}", ran.stdout);
}

#[test]
fn a_comment_fits_whatever_there_is_to_say() {
    let mut head = String::from(BASE);
    for i in 0..300 {
        let deep = (0..40).map(|d| format!("a::long::name::of::a::function<T{i}|`{d}`>")).collect::<Vec<_>>().join(";");
        head.push_str(&format!("main;{deep} {}\n", 1000 + i));
    }
    let place = place(&head);
    let ran = place.run(&["diff", "base.folded", "head.folded", "--format", "markdown"]);
    ran.assert_code(0);
    let characters = ran.stdout.chars().count();
    assert!(characters < 65_536, "{characters}");
    assert_eq!(ran.stdout.matches("<details>").count(), ran.stdout.matches("</details>").count());
    assert_eq!(ran.stdout.matches("```").count() % 2, 0);
    assert!(ran.stdout.contains("stacks: 300 new"), "{}", &ran.stdout[..2000]);
}

#[test]
fn directories_are_compared_file_by_file() {
    let mut place = Place::new();
    for (side, parse, only) in [("base", 10, "old"), ("head", 12, "new")] {
        std::fs::create_dir_all(place.path(side)).unwrap();
        place.add(&format!("{side}/parse.json"), counters(parse), 0o644);
        place.add(&format!("{side}/print.json"), counters(7), 0o644);
        place.add(&format!("{side}/{only}.json"), counters(1), 0o644);
    }
    let ran = place.run(&["diff", "base", "head", "--fail-on", "allocs=+0"]);
    ran.assert_code(3);
    assert!(ran.stdout.starts_with("limit exceeded: parse: allocs +2 (+20.00%)\n"), "{}", ran.stdout);
    assert_eq!(
        ran.stderr,
        "warning: only in the base, not compared: old\nwarning: only in the head, not compared: new\n"
    );
}

#[test]
fn thresholds_are_written_kept_and_told_when_they_are_stale() {
    let mut place = with_counters(100, 100);
    let run = |place: &Place, more: &[&str]| {
        place.run(&[&["diff", "head.json", "--name", "orders", "--thresholds", "limits.json"], more].concat())
    };
    run(&place, &["--update"]).assert_code(0);
    let written: serde_json::Value = serde_json::from_str(&support::text(place.path("limits.json"))).unwrap();
    let expected = serde_json::json!({"schema": "profile-recorder.thresholds", "version": 1,
        "cases": {"orders": {"allocs": 100, "bytes": 1000}}});
    assert_eq!(written, expected);
    let ran = run(&place, &[]);
    ran.assert_code(0);
    assert_eq!((ran.stderr.as_str(), ran.stdout.lines().next()), ("", Some("within limits")));

    place.add("head.json", counters(101), 0o644);
    let ran = run(&place, &[]);
    ran.assert_code(3);
    assert!(ran.stdout.starts_with("limit exceeded: allocs 101, bytes 1,010\n"), "{}", ran.stdout);

    place.add("head.json", counters(90), 0o644);
    let ran = run(&place, &[]);
    ran.assert_code(0);
    assert!(
        ran.stderr.contains("the threshold of orders allocs is stale: it allows 100, the head takes 90"),
        "{}",
        ran.stderr
    );
    run(&place, &["--update", "--quiet"]).assert_code(0);
    let written: serde_json::Value = serde_json::from_str(&support::text(place.path("limits.json"))).unwrap();
    assert_eq!(written["cases"]["orders"]["allocs"], 90);
    assert_eq!(run(&place, &[]).stderr, "");
    let soft = written.to_string().replace("\"allocs\":90", "\"allocs\":{\"soft\":80,\"hard\":95}");
    place.add("limits.json", soft, 0o644);
    let ran = run(&place, &[]);
    ran.assert_code(0);
    assert!(ran.stdout.starts_with("soft limit exceeded: allocs 90"), "{}", ran.stdout);
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    use std::process::Stdio;
    let stacks: String = (0..3000).map(|i| format!("main;function_{i} 1000\n")).collect();
    let place = place(&stacks);
    let mut command = place.command(&["diff", "base.folded", "head.folded", "--format", "json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_said_and_leaves_nothing() {
    let place = with_counters(1, 2);
    let output =
        place.command(&["diff", "base.json", "head.json"]).stdout(std::fs::File::create("/dev/full").unwrap()).output();
    let ran = support::Ran::of(output.unwrap());
    ran.assert_refused(1, &["cannot write to standard output: no space left on device"]);
}

#[test]
fn profiles_without_names_are_compared_by_those_that_are_found_in_the_builds() {
    let mut place = Place::new();
    let source = |times: u32| {
        format!(
            "#include <stdlib.h>\n__attribute__((noinline)) void fill(void) {{ for (int i = 0; i < {times}; i++) \
             {{ void *volatile p = malloc(8); free(p); }} }}\nint main(void) {{ fill(); return 0; }}\n"
        )
    };
    std::fs::create_dir(place.path("builds")).unwrap();
    for (side, times) in [("base", 100), ("head", 130)] {
        // Another length of the code before it: other addresses, and another build id.
        let padding = if side == "head" { "-DPAD -falign-functions=256" } else { "-DNONE" };
        let options: Vec<&str> = ["-O1", "-g", "-Wl,--build-id"].into_iter().chain(padding.split(' ')).collect();
        place.compile(side, &source(times), &options);
        std::fs::rename(place.path(side), place.path("program")).unwrap();
        let file = format!("{side}.profrec");
        let record = ["record", "--quiet", "--mode", "allocs", "--symbols", "none", "-o", &file, "--", "./program"];
        place.run(&record).assert_code(0);
        std::fs::create_dir(place.path("builds").join(side)).unwrap();
        std::fs::rename(place.path("program"), place.path("builds").join(side).join("program")).unwrap();
    }
    let bare = place.run(&["diff", "base.profrec", "head.profrec", "--metric", "allocs"]);
    assert!(bare.stdout.contains("program+0x") && !bare.stdout.contains("fill"), "{}", bare.stdout);
    let sides = ["--symbols", "builds/base", "--symbols", "builds/head"];
    let named = place.run(&[&["diff", "base.profrec", "head.profrec", "--metric", "allocs"], &sides[..]].concat());
    named.assert_code(0);
    assert!(named.stdout.contains("+30  grown  fill (") && named.stdout.contains("head.c:2)"), "{}", named.stdout);
    assert!(!named.stdout.contains("program+0x"), "{}", named.stdout);
    place
        .run(&["diff", "base.profrec", "head.profrec", "--symbols", "none"])
        .assert_refused(2, &["'none'", "directory"]);
}
