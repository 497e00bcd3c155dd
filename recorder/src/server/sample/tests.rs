use super::*;

fn refusal(body: &[u8]) -> String {
    match order(body) {
        Err(Problem::BadRequest(text)) => text,
        other => panic!("{}: {other:?}", String::from_utf8_lossy(body)),
    }
}

#[test]
fn the_two_required_keys_are_enough() {
    let order = order(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(order.request, Request { mode: Mode::Wall, hz: 100, seconds: Some(1.0), interval: None });
    assert_eq!((order.format, order.detail, order.thread), (Format::Perf, Detail::Full, None));
    assert_eq!(order.delivery, Delivery::Samples);
}

#[test]
fn requests_of_swift_profile_recorder_work_as_they_are() {
    let cases = [
        (
            r#"{"numberOfSamples":100,"timeInterval":"100 ms","format":"perfSymbolized","symbolizer":"native"}"#,
            Format::Perf,
        ),
        (
            r#"{"numberOfSamples":100,"timeInterval":"100ms","format":"pprofSymbolized","symbolizer":"fake"}"#,
            Format::Pprof,
        ),
        (r#"{"numberOfSamples":100,"timeInterval":"100","format":"flamegraphCollapsedSymbolized"}"#, Format::Collapsed),
        (r#"{"numberOfSamples":100,"timeInterval":100,"format":null,"unknown":[{}]}"#, Format::Perf),
    ];
    for (body, format) in cases {
        let order = order(body.as_bytes()).unwrap();
        assert_eq!((order.request.hz, order.request.seconds, order.format), (10, Some(10.0), format), "{body}");
    }
}

#[test]
fn the_optional_keys_reach_the_order() {
    let body =
        r#"{"numberOfSamples":5,"timeInterval":"1 s","mode":"heap","format":"svg","symbols":"none","thread":"w*"}"#;
    let order = order(body.as_bytes()).unwrap();
    assert_eq!(order.request, Request { mode: Mode::Heap, hz: 1, seconds: Some(5.0), interval: None });
    assert_eq!((order.format, order.detail), (Format::Svg, Detail::None));
    assert_eq!(order.thread, Some(profile::Glob::new("w*")));
}

#[test]
fn bad_counts_and_times_are_refused_by_name() {
    let counts = ["0", "-1", "1000001", "1e12", "1.5", "100.0", "9223372036854775808", "\"100\"", "true", "[]", "{}"];
    for count in counts {
        let text = refusal(format!(r#"{{"numberOfSamples":{count},"timeInterval":"10 ms"}}"#).as_bytes());
        assert!(text.contains("for \"numberOfSamples\": a whole number from 1 to 1000000"), "{count}: {text}");
    }
    let times = [
        "\"\"",
        "\"0 ms\"",
        "\"-5 ms\"",
        "\"72 min\"",
        "\"2 h\"",
        "\"1.1 s\"",
        "\"99 us\"",
        "\"10 parsecs\"",
        "\"ms\"",
        "\"1e3 us\"",
        "\"nan\"",
        "\"inf s\"",
        "\"9999999999999999999999 ns\"",
        "\"\\u0000\"",
        "0",
        "-5",
        "true",
        "[]",
        "{}",
    ];
    for time in times {
        let text = refusal(format!(r#"{{"numberOfSamples":1,"timeInterval":{time}}}"#).as_bytes());
        assert!(text.contains("for \"timeInterval\": a time from 100 us to 1 s"), "{time}: {text}");
    }
}

#[test]
fn a_session_lasts_an_hour_at_most() {
    assert!(order(br#"{"numberOfSamples":3600,"timeInterval":"1 s"}"#).is_ok());
    let text = refusal(br#"{"numberOfSamples":1000000,"timeInterval":"1 s"}"#);
    assert!(text.contains("\"numberOfSamples\" times \"timeInterval\" is 1000000 s"), "{text}");
}

#[test]
fn other_keys_must_be_strings_with_a_known_value() {
    let cases = [
        ("mode", "\"block\"", "cpu, wall, offcpu, allocs, heap"),
        ("mode", "7", "a string"),
        ("format", "\"gif\"", "pprofSymbolized"),
        ("format", "[\"perf\"]", "a string"),
        ("symbols", "\"all\"", "full, names, none"),
        ("thread", "1", "a string"),
    ];
    for (name, value, allowed) in cases {
        let text = refusal(format!(r#"{{"numberOfSamples":1,"timeInterval":"1 ms","{name}":{value}}}"#).as_bytes());
        assert!(text.contains(&format!("for \"{name}\": ")) && text.contains(allowed), "{name}={value}: {text}");
    }
}

#[test]
fn what_is_not_a_json_object_with_both_keys_is_refused_with_an_example() {
    let deep = "[".repeat(60_000);
    let bodies: [&[u8]; 14] = [
        b"",
        b" ",
        b"{",
        b"}",
        b"null",
        b"[]",
        b"100",
        b"\"numberOfSamples\"",
        b"{\"numberOfSamples\":100}",
        b"{\"timeInterval\":\"10 ms\"}",
        b"{\"numberOfSamples\":null,\"timeInterval\":\"10 ms\"}",
        b"{'numberOfSamples':100}",
        b"\x00\xff\xfe\x80\x1f\x8b",
        deep.as_bytes(),
    ];
    for body in bodies {
        assert!(refusal(body).contains(EXAMPLE), "{}", String::from_utf8_lossy(body));
    }
}
