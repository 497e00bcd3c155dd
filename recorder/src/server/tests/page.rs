//! The flame graph page: what it is answered, and a browser that uses it.

use std::path::Path;
use std::process::Command;

use profile::{Format, Frame, Options, Profile, Sample, SampleType, Symbols};

use super::fake::Behaviour;
use super::*;

/// A server at a port of loopback, as browsers reach it.
fn tcp(fake: &Arc<Fake>, token: Option<&str>) -> Server {
    let builder = Server::bind("http://127.0.0.1:0").register(false).recording(fake.clone());
    token.into_iter().fold(builder, |builder, token| builder.token(token)).start().unwrap()
}

/// Runs `tests/page/recorder.mjs`.
fn drive(arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/page/run");
    let output =
        Command::new(script).arg(std::env::current_exe().unwrap()).arg("recorder").args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}

fn pprof() -> Vec<u8> {
    let mut profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
    for (leaf, nanos) in [("parse_json", 1_000_000), ("of_the_file", 5_000_000)] {
        let stack = profile.stacks.intern(["start", leaf].map(Frame::named));
        profile.samples.push(Sample {
            stack,
            thread: None,
            labels: profile::Labels::new(),
            values: profile::values![1, nanos],
        });
    }
    let mut bytes = Vec::new();
    Format::Pprof.encode(&profile, &Symbols::new(), &Options::default(), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_browser_records_compares_and_downloads_with_the_token() {
    let fake = Arc::new(Fake::default());
    let server = tcp(&fake, Some("s3cret"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("old.pb.gz");
    std::fs::write(&file, pprof()).unwrap();
    drive(&["records", &server.info().url, "s3cret", file.to_str().unwrap()]);
    assert_eq!(fake.last_request().seconds, Some(0.5));
}

#[test]
fn a_browser_gives_a_recording_up() {
    let fake = Arc::new(Fake::default());
    fake.set(Behaviour::Endless);
    let server = tcp(&fake, None);
    drive(&["cancels", &server.info().url, ""]);
    fake.wait_running(0);
    assert_eq!(fake.cancelled.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[test]
fn the_page_may_ask_this_server_and_nobody_else() {
    let reply = Running::new().get("/");
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = reply.header("content-security-policy");
    for part in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert_eq!((reply.header("referrer-policy"), reply.header("x-frame-options")), ("no-referrer", "DENY"));
    for request in ["src=", "href=\"", "http://www", "https://", "url(http", "@import"] {
        assert!(!reply.text().contains(request), "{request}");
    }
}

#[test]
fn without_the_token_a_browser_gets_the_page_that_asks_for_it_and_nothing_else() {
    let fake = Arc::new(Fake::default());
    let server = tcp(&fake, Some("s3cret"));
    let get = |target: &str, accept: &str| {
        Client::tcp(&server.info().url).send("GET", target, &[("Accept", accept), ("Host", "pod.example")], b"")
    };
    let page = get("/", "text/html,*/*;q=0.8");
    assert_eq!((page.status, page.header("www-authenticate")), (401, "Bearer"));
    assert!(page.text().contains("id=\"token\"") && !page.text().contains("s3cret"));
    assert!(!page.text().contains(&format!("{}", std::process::id())), "nothing of the process");
    for (target, accept) in
        [("/", "*/*"), ("/page/info", "text/html"), ("/debug/pprof/", "text/html"), ("/?token=s3cret", "*/*")]
    {
        let reply = get(target, accept);
        assert_eq!((reply.status, reply.text().lines().count()), (401, 1), "{target}");
    }
    assert_eq!(Client::tcp(&server.info().url).send("POST", "/page/convert?format=svg", &[], &pprof()).status, 401);
}

#[test]
fn a_profile_that_is_sent_comes_back_in_any_format() {
    let running = Running::new();
    for format in Format::ALL {
        let reply = running.post(&format!("/page/convert?format={format}&title=a%20b"), &pprof());
        assert_eq!((reply.status, reply.header("content-type")), (200, format.content_type()), "{format}");
        assert!(reply.header("content-disposition").starts_with("attachment"), "{format}: a page is not run here");
        let again = running.post("/page/convert?format=page", &reply.body);
        let readable =
            !matches!(format, Format::Svg | Format::Html | Format::Json | Format::Firefox | Format::Speedscope);
        assert_eq!(again.status == 200, readable, "{format}: {}", again.status);
    }
    let page = running.post("/page/convert", &pprof());
    let data: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!(data["schema"], "profile-recorder.page");
    assert!(running.fake.requests.lock().unwrap().is_empty(), "nothing is recorded for it");
}

#[test]
fn what_is_sent_to_be_converted_is_bounded_and_checked() {
    let running = Running::new();
    for (query, body, status) in [
        ("?format=exe", &pprof()[..], 400),
        ("?format=svg&format=perf", &pprof(), 400),
        ("?title=%ff", &pprof(), 400),
        ("", b"", 400),
        ("", b"\x00\x01\xff", 400),
        ("", b"PROFREC\0\x09", 400),
        ("", b"{\"dhatFileVersion\":", 400),
    ] {
        let reply = running.post(&format!("/page/convert{query}"), body);
        assert_eq!((reply.status, reply.text().lines().count()), (status, 1), "{query} {body:.20?}: {}", reply.text());
    }
    let announced = b"POST /page/convert HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{";
    assert_eq!(running.client().send_raw(announced).unwrap().status, 413);
    // Someone who holds the turn and sends nothing does not hold it for ever, nor does it keep other requests waiting.
    let mut slow = running.client();
    slow.write(b"POST /page/convert HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(running.get("/health").status, 200);
    drop(slow);
    assert_eq!(running.post("/page/convert", &pprof()).status, 200);
    for method in ["GET", "PUT"] {
        assert_eq!(running.client().send(method, "/page/convert", &[], b"").status, 405);
    }
    assert_eq!(running.post("/page/info", b"").status, 405);
}

#[test]
fn the_page_offers_the_modes_that_the_server_offers() {
    let running = Running::with(|builder| builder.modes(&[crate::Mode::Heap]));
    let info: serde_json::Value = serde_json::from_slice(&running.get("/page/info").body).unwrap();
    assert_eq!(info["modes"], serde_json::json!(["heap"]));
    assert_eq!(info["formats"].as_array().unwrap().len(), Format::ALL.len());
}
