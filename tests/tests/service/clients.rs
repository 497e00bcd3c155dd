//! What tools ask by themselves: every request of `go tool pprof`, the paths that Grafana Alloy and Parca scrape unless told otherwise.

use crate::cumulative;
use profile_recorder_tests::pprof;
use profile_recorder_tests::service::Service;
use profile_recorder_tests::{scratch, text};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tempfile::TempDir;

/// A service with a recorder on a port of its own.
struct Listening {
    service: Service,
    url: String,
    directory: TempDir,
}

impl Listening {
    fn start() -> Self {
        let directory = scratch();
        let service = Service::start(&[
            ("PROFILE_RECORDER_SERVER_URL", "http://127.0.0.1:0"),
            ("PROFILE_RECORDER_ALLOC_INTERVAL", "16KiB"),
            ("XDG_RUNTIME_DIR", directory.path().to_str().unwrap()),
        ]);
        let entry = directory.path().join(format!("profile-recorder/{}.json", service.pid()));
        let entry: serde_json::Value =
            serde_json::from_slice(&std::fs::read(entry).expect("it is registered")).unwrap();
        let url = entry["url"].as_str().unwrap().to_owned();
        // The clients of the service need a moment to make it work.
        while !text(&get(&url, "/debug/pprof/heap?format=collapsed&symbols=names", "curl")).contains("keep") {
            std::thread::sleep(Duration::from_millis(100));
        }
        Self { service, url, directory }
    }

    fn url(&self, path: &str) -> String {
        format!("{}/debug/pprof/{path}", self.url)
    }
}

/// The body of an answer with status 200.
fn get(url: &str, path: &str, agent: &str) -> Vec<u8> {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: {agent}\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}: {}", text(&answer[..end]));
    answer.split_off(end + 4)
}

#[test]
fn go_pprof_asks_for_windows_differences_and_names() {
    let listening = Listening::start();
    let url = |path: &str| listening.url(path);
    let list = ["-top", "-cum", "-nodecount=500"];
    let with = |more: &[&'static str]| [&list[..], more].concat();

    // Seconds as an option, in which case the tool adds them to the question; and no path at all, which is that of the CPU profile.
    let top = pprof::go(&with(&["-seconds=1"]), &url("profile"));
    assert!(top.contains("Type: cpu") && cumulative(&top, "parse_json") > 5.0, "{top}");
    let top = pprof::go(&with(&["-seconds=1", "-sample_index=alloc_space"]), &url("allocs"));
    assert!(cumulative(&top, "make_json") > 5.0, "{top}");
    let address = listening.url.strip_prefix("http://").unwrap();
    let top = pprof::go(&with(&["-seconds=1"]), address);
    assert!(top.contains("Type: cpu") && cumulative(&top, "parse_json") > 5.0, "{top}");

    // What was allocated between two looks, from the server and from a file.
    let base = listening.directory.path().join("base.pb.gz");
    std::fs::write(&base, get(&listening.url, "/debug/pprof/allocs", "curl")).unwrap();
    listening.service.ask("/orders?count=3000");
    let base_option = format!("-diff_base={}", base.display());
    let options = [&list[..], &["-sample_index=alloc_space", &base_option]].concat();
    let top = pprof::go(&options, &url("allocs"));
    assert!(cumulative(&top, "make_json") > 0.0, "{top}");
    let before = pprof::total(&base, "alloc_space");
    let after = listening.directory.path().join("after.pb.gz");
    std::fs::write(&after, get(&listening.url, "/debug/pprof/allocs", "curl")).unwrap();
    assert!(pprof::total(&after, "alloc_space") > before, "counters only grow");

    // Without names in the profile, the tool asks the server for them by address.
    let bare = pprof::go(&with(&["-symbolize=none"]), &url("profile?seconds=1&symbols=none"));
    assert!(!bare.contains("parse_json"), "{bare}");
    let named = pprof::go(&with(&["-symbolize=remote"]), &url("profile?seconds=1&symbols=none"));
    assert!(cumulative(&named, "parse_json") > 5.0, "{named}");
}

/// Alloy asks for CPU time with `seconds`, one less than its interval, and for the others without; Parca with all of its interval. Both take 200 and a profile that can be read for granted.
#[test]
fn every_path_that_scrapers_ask_for_answers_a_profile() {
    let listening = Listening::start();
    let paths = [
        ("profile?seconds=1", "cpu/nanoseconds"),
        ("allocs", "inuse_space/bytes"),
        ("heap", "inuse_space/bytes"),
        ("goroutine", "threads/count"),
        ("block", "delay/nanoseconds"),
        ("mutex", "delay/nanoseconds"),
        ("threadcreate", "threadcreate/count"),
        ("block?seconds=1", "delay/nanoseconds"),
        ("mutex?seconds=1", "delay/nanoseconds"),
        ("allocs?seconds=1", "inuse_space/bytes"),
        ("goroutine?seconds=1", "threads/count"),
    ];
    let file = listening.directory.path().join("p.pb.gz");
    for agent in ["Alloy/v1.9.0", "conprof/0.1"] {
        for (path, column) in paths {
            // At once, as scrapers do: a CPU session keeps nobody else waiting.
            std::fs::write(&file, get(&listening.url, &format!("/debug/pprof/{path}"), agent)).unwrap();
            let raw = pprof::go(&["-raw"], file.to_str().unwrap());
            assert!(raw.contains(column), "{path}: {raw:.600}");
        }
    }
}

/// Names of files and functions are in profiles; what the process was told in confidence is not.
#[test]
fn nothing_of_the_environment_is_in_any_answer() {
    let listening = Listening::start();
    let mut paths: Vec<String> = [
        "/",
        "/health",
        "/metrics",
        "/alloc/stats",
        "/debug/pprof/",
        "/debug/pprof/cmdline",
        "/debug/pprof/symbol?0x1",
    ]
    .map(str::to_owned)
    .into();
    let formats = ["json", "raw", "perf", "firefox", "speedscope", "col", "html", "svg", "collapsed"];
    paths.extend(formats.map(|format| format!("/debug/pprof/heap?format={format}")));
    paths.extend(["/debug/pprof/wall?seconds=0.1&format=json".to_owned(), "/debug/pprof/threads?debug=2".to_owned()]);
    for path in paths {
        let answer = get(&listening.url, &path, "curl");
        for secret in ["16KiB", "XDG_RUNTIME_DIR", "PROFILE_RECORDER_ALLOC_INTERVAL"] {
            assert!(!answer.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "{secret} in {path}");
        }
    }
}
