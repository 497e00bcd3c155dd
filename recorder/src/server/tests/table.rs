//! Every endpoint with every parameter, good and bad, over the wire.

use super::*;

/// Below `/debug/pprof/`: what is recorded, and what Go's scrapers ask for besides.
const PROFILES: [&str; 11] = [
    "profile",
    "cpu",
    "wall",
    "allocs",
    "heap",
    "threads",
    "goroutine",
    "threadcreate",
    "block",
    "mutex",
    "allocs?x=1&",
];

fn target(profile: &str, query: &str) -> String {
    let mark = if profile.contains('?') { "" } else { "?" };
    format!("/debug/pprof/{profile}{mark}{query}")
}

/// Each with a value that is refused, and the parameter that the answer names.
const BAD_QUERIES: [(&str, &str); 36] = [
    // Swift Profile Recorder divides by these.
    ("rate=0", "rate"),
    ("rate=-1", "rate"),
    ("rate=-9223372036854775808", "rate"),
    ("hz=0", "hz"),
    ("hz=10001", "hz"),
    ("hz=1e3", "hz"),
    ("hz=", "hz"),
    ("hz=99999999999999999999999", "hz"),
    ("hz=1&hz=2", "hz"),
    ("hz=1&rate=2", "hz"),
    // It answers these with nothing, or for ever.
    ("seconds=0", "seconds"),
    ("seconds=-5", "seconds"),
    ("seconds=3601", "seconds"),
    ("seconds=inf", "seconds"),
    ("seconds=nan", "seconds"),
    ("seconds=1e99", "seconds"),
    ("seconds=%31%00", "seconds"),
    ("seconds=", "seconds"),
    ("seconds=1&seconds=2", "seconds"),
    ("mode=everything", "mode"),
    ("mode=", "mode"),
    ("format=exe", "format"),
    ("format=../../etc/passwd", "format"),
    ("format=%0d%0aSet-Cookie:x", "format"),
    ("interval=0&seconds=1", "interval"),
    ("interval=-1&seconds=1", "interval"),
    ("interval=2TiB&seconds=1", "interval"),
    ("interval=many&seconds=1", "interval"),
    ("symbols=maybe", "symbols"),
    ("symbols=", "symbols"),
    ("debug=3", "debug"),
    ("debug=-1", "debug"),
    ("thread=%ff%fe", "UTF-8"),
    ("debug=1&format=svg", "format"),
    ("session=", "session"),
    ("session=a&session=b", "session"),
];

#[test]
fn every_bad_value_of_every_profile_is_refused_and_named() {
    let running = Running::new();
    let mut cases = 0;
    for profile in PROFILES {
        for (query, named) in BAD_QUERIES {
            let target = target(profile, query);
            let reply = running.get(&target);
            assert_eq!((reply.status, reply.header("x-go-pprof")), (400, "1"), "{target}: {reply:?}");
            assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8", "{target}");
            assert!(reply.text().contains(named) && reply.text().lines().count() == 1, "{target}: {}", reply.text());
            cases += 1;
        }
    }
    assert!(running.fake.requests.lock().unwrap().is_empty(), "nothing was recorded");
    assert!(cases >= 200);
    assert_eq!(running.get("/health").status, 200);
}

#[test]
fn every_good_value_of_every_profile_is_answered() {
    let running = Running::new();
    let queries = [
        "",
        "seconds=1",
        "debug=1",
        "debug=2",
        "debug=0",
        "symbols=none&thread=*",
        "gc=1&unknown=x",
        "format=collapsed",
    ];
    for profile in PROFILES {
        for query in queries {
            let target = target(profile, query);
            let reply = running.get(&target);
            assert_eq!(reply.status, 200, "{target}: {reply:?}");
            assert_eq!(reply.header("x-content-type-options"), "nosniff", "{target}");
            if query.starts_with("debug=1") || query.starts_with("debug=2") {
                assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8", "{target}");
                assert!(reply.text().contains(": total "), "{target}: {}", reply.text());
            } else if !query.starts_with("format") {
                assert_eq!(reply.header("content-type"), "application/octet-stream", "{target}");
                assert_eq!(reply.body[..2], [0x1f, 0x8b], "{target}: gzipped pprof");
            }
        }
    }
}

#[test]
fn every_bad_body_of_a_sample_request_is_refused() {
    let running = Running::new();
    let mut bodies: Vec<Vec<u8>> = [
        &b""[..],
        b"{",
        b"[]",
        b"null",
        b"\"100\"",
        b"\x00\x01\xff\xfe",
        b"numberOfSamples=100&timeInterval=10ms",
        b"{\"numberOfSamples\":100}",
        b"{\"timeInterval\":\"10 ms\"}",
        b"{\"numberOfSamples\":null,\"timeInterval\":\"10 ms\"}",
        b"{\"numberOfSamples\":100,\"timeInterval\":\"10 ms\"",
        b"{\"numberOfSamples\":100,\"timeInterval\":\"10 ms\"}}",
        b"{\"numberOfSamples\":1,\"timeInterval\":\"1 ms\",\"format\":5}",
        b"{\"numberOfSamples\":1,\"timeInterval\":\"1 ms\",\"format\":\"nope\"}",
        b"{\"numberOfSamples\":1,\"timeInterval\":\"1 ms\",\"mode\":\"nope\"}",
        b"{\"numberOfSamples\":1000000,\"timeInterval\":\"1 s\"}",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    // The numbers that end, hang or crash Swift Profile Recorder, and their neighbours.
    for number in
        ["0", "-1", "-9223372036854775808", "1000001", "1000000000000", "1e12", "1.5", "\"100\"", "true", "[1]"]
    {
        bodies.push(format!("{{\"numberOfSamples\":{number},\"timeInterval\":\"10 ms\"}}").into());
    }
    for time in [
        "\"0 ms\"",
        "\"-5 ms\"",
        "\"72 min\"",
        "\"2 h\"",
        "\"4295 s\"",
        "\"99 us\"",
        "\"1 ns\"",
        "\"ten ms\"",
        "\"1e3 ms\"",
        "\"\"",
        "\"ms\"",
        "\"10 parsecs\"",
        "-10",
        "0",
        "1e400",
        "{}",
        "\"9223372036854775807 h\"",
        "\"18446744073709551616\"",
    ] {
        bodies.push(format!("{{\"numberOfSamples\":100,\"timeInterval\":{time}}}").into());
    }
    // Deep enough to overflow the stack of a parser that recurses without a bound.
    bodies.push(b"[".repeat(60_000));
    for path in ["/sample", "/samples", "/"] {
        for body in &bodies {
            let reply = running.post(path, body);
            let shown = String::from_utf8_lossy(&body[..body.len().min(100)]).into_owned();
            assert_eq!(reply.status, 400, "{path} {shown}: {reply:?}");
            assert!(reply.text().lines().count() == 1, "{path} {shown}: {}", reply.text());
        }
    }
    assert!(bodies.len() * 3 >= 130);
    assert!(running.fake.requests.lock().unwrap().is_empty());
    assert_eq!(running.get("/health").status, 200);
}

#[test]
fn every_other_endpoint_has_its_type_and_its_methods() {
    let running = Running::new();
    let cases = [
        ("/", "text/html; charset=utf-8", "GET, HEAD, POST"),
        ("/health", "text/plain; charset=utf-8", "GET, HEAD"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "GET, HEAD"),
        ("/alloc/stats", "application/json", "GET, HEAD"),
        ("/debug/pprof/", "text/html; charset=utf-8", "GET, HEAD"),
        ("/debug/pprof/cmdline", "text/plain; charset=utf-8", "GET, HEAD"),
        ("/debug/pprof/symbol", "text/plain; charset=utf-8", "GET, HEAD, POST"),
    ];
    for (target, content_type, methods) in cases {
        for query in ["", "?junk=%zz&&=&a=b=c"] {
            let reply = running.get(&format!("{target}{query}"));
            assert_eq!((reply.status, reply.header("content-type")), (200, content_type), "{target}{query}");
        }
        for method in ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
            let reply = running.client().send(method, target, &[], b"");
            assert_eq!((reply.status, reply.header("allow")), (405, methods), "{method} {target}");
        }
    }
    for target in [
        "/debug/pprof/trace",
        "/debug/pprof/heap/",
        "/debug/pprof/HEAP",
        "/debug/pprof/../../etc/passwd",
        "/metrics/",
        "/Health",
        "/sample/5",
        "/%2e%2e/x",
        "/debug/pprof/%68eap",
    ] {
        let reply = running.get(target);
        assert_eq!(reply.status, 404, "{target}");
        assert!(reply.text().contains("/sample"), "{target} helps: {}", reply.text());
    }
}
