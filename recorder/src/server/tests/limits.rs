//! Bad input, too much input, input that does not come.

use std::time::{Duration, Instant};

use super::fake::Behaviour;
use super::*;

const QUESTION: &[u8] = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[test]
fn bad_values_are_refused_over_the_wire_and_nothing_is_recorded() {
    let running = Running::new();
    let queries = [
        "hz=0",
        "hz=-1",
        "rate=0",
        "rate=10001",
        "hz=1e9",
        "seconds=0",
        "seconds=-5",
        "seconds=inf",
        "seconds=999999999999",
        "format=exe",
        "mode=all",
        "symbols=maybe",
        "interval=0&seconds=1",
        "thread=%ff%fe",
        "seconds=1&seconds=2",
    ];
    for query in queries {
        for path in ["profile", "heap", "wall"] {
            let reply = running.get(&format!("/debug/pprof/{path}?{query}"));
            assert_eq!((reply.status, reply.header("x-go-pprof")), (400, "1"), "{path}?{query}");
            assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
        }
    }
    let bodies: [&[u8]; 8] = [
        b"",
        b"{",
        b"\x00\x01\xff",
        br#"{"numberOfSamples":1e12,"timeInterval":"1 ms"}"#,
        br#"{"numberOfSamples":-1,"timeInterval":"1 ms"}"#,
        br#"{"numberOfSamples":1,"timeInterval":"72 min"}"#,
        br#"{"numberOfSamples":1,"timeInterval":"-5 ms"}"#,
        br#"{"numberOfSamples":1000000,"timeInterval":"1 s"}"#,
    ];
    for body in bodies {
        let reply = running.post("/sample", body);
        assert_eq!(reply.status, 400, "{}", String::from_utf8_lossy(body));
    }
    assert!(running.fake.requests.lock().unwrap().is_empty());
    assert_eq!(running.get("/health").status, 200);
}

#[test]
fn bodies_over_the_limit_are_refused_announced_or_not() {
    let running = Running::new();
    let mut fits = br#"{"numberOfSamples":1,"timeInterval":"1 ms"}"#.to_vec();
    fits.resize(64 * 1024, b' ');
    assert_eq!(running.post("/sample", &fits).status, 200);
    fits.push(b' ');
    assert_eq!(running.post("/sample", &fits).status, 413);
    let announced = b"POST /sample HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{";
    let reply = running.client().send_raw(announced).unwrap();
    assert_eq!((reply.status, reply.header("connection")), (413, "close"));
    let mut chunked = b"POST /sample HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..80 {
        chunked.extend_from_slice(b"400\r\n");
        chunked.extend_from_slice(&[b' '; 1024]);
        chunked.extend_from_slice(b"\r\n");
    }
    assert_eq!(running.client().send_raw(&chunked).unwrap().status, 413);
}

#[test]
fn what_is_not_http_is_refused_and_the_server_goes_on() {
    let running = Running::new();
    let junk: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: \xfe\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /sample HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /sample HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    ];
    for bytes in junk {
        let status = running.client().send_raw(bytes).map(|reply| reply.status);
        assert!(status.is_none_or(|status| status == 400), "{}: {status:?}", String::from_utf8_lossy(bytes));
    }
    let mut long_head = b"GET /health HTTP/1.1\r\nX: ".to_vec();
    long_head.resize(100_000, b'x');
    let status = running.client().send_raw(&long_head).map(|reply| reply.status);
    assert!(status.is_none_or(|status| status == 431 || status == 414), "{status:?}");
    assert_eq!(running.get("/health").status, 200);
}

#[test]
fn a_head_that_never_ends_is_cut_off_after_ten_seconds() {
    let running = Running::new();
    let start = Instant::now();
    let mut slow = running.client();
    slow.write(b"GET /health HTTP/1.1\r\nHost:");
    let silent = running.client();
    assert!(slow.read_reply().is_none_or(|reply| reply.status == 408));
    assert!(silent.read_reply().is_none());
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(15)).contains(&elapsed), "{elapsed:?}");
}

#[test]
fn a_body_that_never_comes_is_cut_off_after_ten_seconds() {
    let running = Running::new();
    let start = Instant::now();
    let reply = running.client().send_raw(b"POST /sample HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{").unwrap();
    assert_eq!(reply.status, 408);
    assert!(start.elapsed() >= Duration::from_secs(9));
}

#[test]
fn idle_connections_keep_nobody_out() {
    let running = Running::new();
    let idle: Vec<_> = (0..200).map(|_| running.client()).collect();
    assert_eq!(running.get("/debug/pprof/profile").status, 200);
    drop(idle);
}

#[test]
fn busy_connections_are_not_evicted_and_the_next_client_is_told() {
    let running = Running::new();
    running.fake.set(Behaviour::Endless);
    let busy: Vec<_> = (0..crate::server::thread::MAX_CONNECTIONS)
        .map(|_| {
            let mut client = running.client();
            client.write(b"GET /debug/pprof/profile HTTP/1.1\r\nHost: x\r\n\r\n");
            client
        })
        .collect();
    running.fake.wait_running(busy.len());
    let reply = running.client().send_raw(QUESTION).unwrap();
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("64 connections are busy"), "{}", reply.text());
    drop(busy);
    running.fake.wait_running(0);
    assert_eq!(running.get("/health").status, 200);
}

#[test]
fn a_connection_serves_several_requests() {
    let running = Running::new();
    let requests =
        [&b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"GET /alloc/stats HTTP/1.1\r\nHost: x\r\n\r\n", QUESTION];
    let reply = running.client().send_raw(&requests.concat()).unwrap();
    // The body of the first reply is followed by the others.
    assert_eq!(reply.text().matches("HTTP/1.1 200 OK").count(), 2);
}
