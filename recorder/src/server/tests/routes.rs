//! What a program adds to its server, and takes away.

use super::*;
use crate::{RouteAnswer, RouteRequest};
use profile::Mode;

#[test]
fn a_program_answers_at_paths_of_its_own() {
    let echo = |request: &RouteRequest<'_>| {
        let body = String::from_utf8_lossy(request.body);
        RouteAnswer::new(201, "text/x-echo", format!("{} {} {} {body}", request.method, request.path, request.query))
    };
    let running = Running::with(|builder| {
        builder
            .route("/echo/", echo)
            .route("/version", |_| RouteAnswer::text("7"))
            .route("/broken", |_| panic!("a bug of the application"))
            .route("/odd", |_| RouteAnswer::new(7, "text/plain\n", "x"))
    });
    let reply = running.post("/echo/a?b=c", b"d");
    assert_eq!((reply.status, reply.text(), reply.header("content-type")), (201, "POST /echo/a b=c d", "text/x-echo"));
    assert_eq!(running.get("/version").text(), "7");
    assert_eq!(running.get("/version/x").status, 404);
    assert_eq!(running.get("/broken").status, 500);
    assert_eq!(running.get("/odd").status, 500);
    assert_eq!(running.post("/echo/", &[b'x'; 65 * 1024]).status, 413);
    assert_eq!(running.get("/health").status, 200);
}

#[test]
fn paths_that_nobody_can_ask_for_are_mistakes() {
    for path in ["", "/", "version"] {
        let error = Server::bind("http://127.0.0.1:0").route(path, |_| RouteAnswer::text("")).start().unwrap_err();
        assert!(error.to_string().contains("route="), "{error}");
    }
}

#[test]
fn modes_that_are_not_offered_are_refused() {
    let running = Running::with(|builder| builder.modes(&[Mode::Cpu]));
    assert_eq!(running.get("/debug/pprof/profile").status, 200);
    for target in ["/debug/pprof/heap", "/debug/pprof/profile?mode=wall", "/debug/pprof/goroutine"] {
        assert_eq!(running.get(target).status, 403, "{target}");
    }
    assert_eq!(running.post("/sample", br#"{"numberOfSamples":1,"timeInterval":"1 ms"}"#).status, 403);
    // Nothing is recorded for these: scrapers that ask for everything stay content.
    assert_eq!(running.get("/debug/pprof/mutex").status, 200);
}

#[test]
fn sessions_that_come_too_fast_are_told_to_wait() {
    let running = Running::new();
    let replies: Vec<Reply> = (0..400).map(|_| running.get("/debug/pprof/heap")).collect();
    let refused = replies.iter().find(|reply| reply.status == 429).expect("the burst is over");
    assert_eq!(refused.header("retry-after"), "1");
    assert!(replies.iter().filter(|reply| reply.status == 200).count() >= 128);
    assert_eq!(running.get("/health").status, 200, "what is no session is answered");
    let metrics = running.get("/metrics");
    assert!(metrics.text().contains("profile_recorder_http_answers_total{code=\"4xx\"}"), "{}", metrics.text());
    assert!(!metrics.text().contains("profile_recorder_sessions_total{mode=\"heap\"} 0"), "{}", metrics.text());
}
