//! What each path answers.

use super::fake::Behaviour;
use super::*;
use crate::session::Request;
use profile::Mode;

#[test]
fn a_request_of_swift_profile_recorder_gets_perf_script_text() {
    let running = Running::new();
    for target in ["/sample", "/samples", "/"] {
        let reply = running.post(target, br#"{"numberOfSamples":50,"timeInterval":"10 ms"}"#);
        assert_eq!(reply.status, 200, "{target}: {reply:?}");
        assert!(reply.text().contains("parse_json"), "{target}: {reply:?}");
        assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
        let disposition = reply.header("content-disposition");
        let prefix = format!("attachment; filename=\"samples-{}-", std::process::id());
        assert!(disposition.starts_with(&prefix) && disposition.ends_with(".perf\""), "{disposition}");
        let request = Request { mode: Mode::Wall, hz: 100, seconds: Some(0.5), interval: None };
        assert_eq!(running.fake.last_request(), request);
    }
}

#[test]
fn pprof_endpoints_answer_as_those_of_go() {
    let running = Running::new();
    let cases = [
        ("profile", "profile", Request { mode: Mode::Cpu, hz: 99, seconds: Some(30.0), interval: None }),
        (
            "profile?seconds=2&hz=250",
            "profile",
            Request { mode: Mode::Cpu, hz: 250, seconds: Some(2.0), interval: None },
        ),
        ("cpu?rate=10", "cpu", Request { mode: Mode::Cpu, hz: 10, seconds: Some(30.0), interval: None }),
        ("wall?seconds=1", "wall", Request { mode: Mode::Wall, hz: 99, seconds: Some(1.0), interval: None }),
        ("profile?mode=heap", "heap", Request { mode: Mode::Heap, hz: 99, seconds: None, interval: None }),
        ("allocs", "allocs", Request { mode: Mode::Allocs, hz: 99, seconds: None, interval: None }),
        ("heap?gc=1", "heap", Request { mode: Mode::Heap, hz: 99, seconds: None, interval: None }),
        ("heap?seconds=1", "heap-delta", Request { mode: Mode::Heap, hz: 99, seconds: Some(1.0), interval: None }),
        (
            "allocs?seconds=1&interval=1",
            "allocs-delta",
            Request { mode: Mode::Allocs, hz: 99, seconds: Some(1.0), interval: Some(1) },
        ),
    ];
    for (target, name, request) in cases {
        let reply = running.get(&format!("/debug/pprof/{target}"));
        assert_eq!(reply.status, 200, "{target}: {reply:?}");
        assert_eq!(reply.header("content-type"), "application/octet-stream", "{target}");
        assert_eq!(reply.header("content-disposition"), format!("attachment; filename=\"{name}\""), "{target}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{target}");
        assert_eq!(reply.header("content-encoding"), "", "{target}");
        assert_eq!(reply.body[..2], [0x1f, 0x8b], "{target}");
        assert_eq!(running.fake.last_request(), request, "{target}");
    }
}

#[test]
fn every_format_comes_with_its_content_type() {
    let running = Running::new();
    for format in profile::Format::ALL {
        let reply = running.get(&format!("/debug/pprof/profile?format={format}"));
        assert_eq!((reply.status, reply.header("content-type")), (200, format.content_type()), "{format}");
        assert!(!reply.body.is_empty() || format == profile::Format::Html, "{format}");
    }
}

#[test]
fn the_thread_parameter_keeps_matching_threads() {
    let running = Running::new();
    for (glob, kept, gone) in [("worker-*", "parse_json", "render_page"), ("main", "render_page", "parse_json")] {
        let reply = running.get(&format!("/debug/pprof/profile?format=collapsed&thread={glob}"));
        assert!(reply.text().contains(kept) && !reply.text().contains(gone), "{glob}: {}", reply.text());
    }
    assert_eq!(running.get("/debug/pprof/profile?format=collapsed&thread=nobody").text(), "");
}

#[test]
fn small_endpoints_answer() {
    let running = Running::new();
    assert_eq!(running.get("/health").text(), "OK");
    let stats: serde_json::Value = serde_json::from_slice(&running.get("/alloc/stats").body).unwrap();
    assert_eq!(stats["functions"]["malloc"]["calls"], 3);
    let index = running.get("/debug/pprof/");
    assert_eq!(index.header("content-type"), "text/html; charset=utf-8");
    assert!(index.text().contains("href=\"heap\"") && index.text().contains("3 allocations"));
    let start = running.get("/");
    assert!(start.text().contains("/debug/pprof/") && start.text().contains("--unix-socket"));
    let redirect = running.get("/debug/pprof?x=1");
    assert_eq!((redirect.status, redirect.header("location")), (307, "/debug/pprof/?x=1"));
}

#[test]
fn the_command_line_has_arguments_only_if_they_are_to_be_shown() {
    let arguments: Vec<_> = std::env::args().collect();
    let reply = Running::with(|builder| builder.show_arguments(true)).get("/debug/pprof/cmdline");
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(reply.text(), arguments.join("\0"));
    let hidden = Running::new().get("/debug/pprof/cmdline");
    assert_eq!(hidden.text(), arguments[0]);
}

#[inline(never)]
fn looked_up_by_pprof() -> u32 {
    std::hint::black_box(std::process::id())
}

#[test]
fn addresses_are_named_for_go_tool_pprof() {
    looked_up_by_pprof();
    let running = Running::new();
    let address = looked_up_by_pprof as *const () as usize;
    let question = format!("{address:#x}+0x10+junk");
    for reply in [
        running.post("/debug/pprof/symbol", question.as_bytes()),
        running.get(&format!("/debug/pprof/symbol?{question}")),
    ] {
        let mut lines = reply.text().lines();
        assert_eq!(lines.next(), Some("num_symbols: 1"));
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with(&format!("{address:#x} ")) && line.ends_with("looked_up_by_pprof"), "{line}");
        assert_eq!(lines.next(), None);
    }
    assert_eq!(running.post("/debug/pprof/symbol", b"").text(), "num_symbols: 1\n");
}

#[test]
fn a_head_request_gets_the_headers_and_records_nothing() {
    let running = Running::new();
    for target in ["/", "/health", "/alloc/stats", "/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/heap"] {
        let reply = running.client().send("HEAD", target, &[], b"");
        assert_eq!((reply.status, reply.body.len()), (200, 0), "{target}");
    }
    let bad = running.client().send("HEAD", "/debug/pprof/profile?hz=0", &[], b"");
    assert_eq!(bad.status, 400);
    assert!(running.fake.requests.lock().unwrap().is_empty());
}

#[test]
fn an_unknown_path_gets_help() {
    let running = Running::new();
    for target in ["/debug/pprof/goroutines", "/debug/pprof/profile/", "/debug/pprof//"] {
        let reply = running.get(target);
        assert_eq!((reply.status, reply.header("x-go-pprof")), (404, "1"), "{target}");
        assert!(
            reply.text().starts_with("Unknown profile\n") && reply.text().contains("curl --unix-socket"),
            "{target}"
        );
    }
    for target in ["/nothing", "/sample/", "/health/x", "//", "/%00", "/debug"] {
        let reply = running.get(target);
        assert_eq!(reply.status, 404, "{target}");
        assert!(reply.text().starts_with("404 page not found\n") && reply.text().contains("/sample"), "{target}");
    }
}

#[test]
fn other_methods_are_told_which_are_allowed() {
    let running = Running::new();
    let cases = [
        ("GET", "/sample", "POST"),
        ("HEAD", "/samples", "POST"),
        ("PUT", "/", "GET, HEAD, POST"),
        ("POST", "/health", "GET, HEAD"),
        ("DELETE", "/alloc/stats", "GET, HEAD"),
        ("POST", "/debug/pprof/", "GET, HEAD"),
        ("POST", "/debug/pprof/profile", "GET, HEAD"),
        ("OPTIONS", "/debug/pprof/heap", "GET, HEAD"),
        ("PATCH", "/debug/pprof/symbol", "GET, HEAD, POST"),
    ];
    for (method, target, allow) in cases {
        let reply = running.client().send(method, target, &[], b"");
        assert_eq!((reply.status, reply.header("allow")), (405, allow), "{method} {target}");
    }
    assert!(running.fake.requests.lock().unwrap().is_empty());
}

#[test]
fn a_refusal_of_the_recorder_reaches_the_client() {
    let running = Running::new();
    running.fake.set(Behaviour::Busy);
    let reply = running.get("/debug/pprof/profile");
    assert_eq!((reply.status, reply.header("retry-after")), (409, "3"));
    running.fake.set(Behaviour::Unavailable);
    let reply = running.get("/debug/pprof/profile");
    assert_eq!((reply.status, reply.text()), (503, "cannot record: no timers are left\n"));
    running.fake.set(Behaviour::Panics);
    let reply = running.get("/debug/pprof/profile");
    assert_eq!((reply.status, reply.text()), (500, "failed to collect profile\n"));
    running.fake.set(Behaviour::Quick);
    assert_eq!(running.get("/debug/pprof/profile").status, 200);
}
