//! Many clients, slow clients, and servers that come and go: the real recorder behind a real socket.

use profile_recorder_tests::service::Service;
use profile_recorder_tests::{output, scratch, text};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn ask(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers");
    text(&answer)
}

#[test]
fn profiles_arrive_while_a_thousand_clients_idle_or_dawdle() {
    let directory = scratch();
    let pattern = format!("unix://{}/app-{{PID}}.sock", directory.path().display());
    let service = Service::start(&[("PROFILE_RECORDER_SERVER_URL_PATTERN", &pattern)]);
    let socket = directory.path().join(format!("app-{}.sock", service.pid()));
    // Half of them say nothing at all, the others begin a head that they never end.
    let crowd: Vec<UnixStream> = (0..1000)
        .map(|i| {
            let mut stream = UnixStream::connect(&socket).expect("a connection");
            if i % 2 == 1 {
                // The server may have closed it by now to make room.
                let _ = stream.write_all(b"GET /health HTTP/1.1\r\nX-Slow: ");
            }
            stream
        })
        .collect();
    let begun = Instant::now();
    let profile = ask(&socket, "/debug/pprof/profile?seconds=0.5&format=collapsed");
    assert!(profile.starts_with("HTTP/1.0 200") && profile.contains("parse_json"), "{profile:.1000}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(ask(&socket, "/health").ends_with("OK"));
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap().count();
    assert!(descriptors < 200, "{descriptors} descriptors: a crowd cannot use them up");
    drop(crowd);
    assert!(service.ask("/orders?count=3").contains("customer 2"), "the service still works");
}

#[test]
fn sixteen_clients_at_once_each_get_their_profile() {
    let directory = scratch();
    let pattern = format!("unix://{}/app-{{PID}}.sock", directory.path().display());
    let service = Service::start(&[
        ("PROFILE_RECORDER_SERVER_URL_PATTERN", &pattern),
        ("PROFILE_RECORDER_ALLOC_INTERVAL", "16KiB"),
    ]);
    let socket = directory.path().join(format!("app-{}.sock", service.pid()));
    std::thread::scope(|scope| {
        let paths = ["profile?seconds=0.5&", "wall?seconds=0.4&", "allocs?seconds=0.3&", "heap?"];
        let clients: Vec<_> = (0..16)
            .map(|i| {
                let path = format!("/debug/pprof/{}format=collapsed&symbols=names", paths[i % paths.len()]);
                let socket = &socket;
                (path.clone(), scope.spawn(move || ask(socket, &path)))
            })
            .collect();
        for (path, client) in clients {
            let answer = client.join().unwrap();
            assert!(answer.starts_with("HTTP/1.0 200"), "{path}: {answer:.500}");
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            assert!(body.lines().filter(|line| !line.starts_with('#')).count() > 1, "{path}: {answer:.500}");
        }
    });
    // Another rate cannot share the running one.
    std::thread::scope(|scope| {
        let long = scope.spawn(|| ask(&socket, "/debug/pprof/profile?seconds=2&hz=50"));
        while !ask(&socket, "/metrics").contains("sessions_running 1\n") {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(100));
        let refused = ask(&socket, "/debug/pprof/profile?seconds=1&hz=77");
        assert!(
            refused.starts_with("HTTP/1.0 409") && refused.to_lowercase().contains("retry-after: "),
            "{refused:.500}"
        );
        assert!(ask(&socket, "/debug/pprof/profile?seconds=0.1&hz=50").starts_with("HTTP/1.0 200"));
        assert!(ask(&socket, "/debug/pprof/heap").starts_with("HTTP/1.0 200"), "readers never wait");
        assert!(long.join().unwrap().starts_with("HTTP/1.0 200"));
    });
}

/// What this process holds: descriptors, threads, bytes of the heap.
fn held() -> [i64; 3] {
    let count = |path: &str| std::fs::read_dir(path).map_or(0, Iterator::count) as i64;
    // SAFETY: asks the allocator for its own counters.
    let heap = unsafe { libc::mallinfo2() };
    [count("/proc/self/fd"), count("/proc/self/task"), (heap.uordblks + heap.hblkhd) as i64]
}

fn cycle(socket: &Path) {
    let server =
        profile_recorder::Server::bind(&format!("unix://{}", socket.display())).start().expect("the server starts");
    assert!(ask(socket, "/debug/pprof/heap?format=collapsed").starts_with("HTTP/1.0 200"));
    server.stop();
}

const SOCKET: &str = "CYCLES_SOCKET";

#[test]
#[ignore = "runs in a process of its own, started by the next test"]
fn cycles() {
    let socket = std::env::var_os(SOCKET).expect("a socket");
    // What is kept for ever (the store, arenas of the allocator, symbols) is there after some.
    (0..300).for_each(|_| cycle(Path::new(&socket)));
    let before = held();
    (0..1000).for_each(|_| cycle(Path::new(&socket)));
    let after = held();
    println!("HELD {} {} {}", after[0] - before[0], after[1] - before[1], after[2] - before[2]);
}

#[test]
fn a_thousand_starts_and_stops_leave_nothing() {
    let directory = scratch();
    let socket = directory.path().join("s");
    let told = output(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crowd::cycles", "--ignored", "--nocapture"])
            .env(SOCKET, &socket)
            .env("XDG_RUNTIME_DIR", directory.path())
            .env("MALLOC_ARENA_MAX", "2"),
    );
    let told = text(&told.stdout);
    let line = told.lines().find_map(|line| line.split_once("HELD ")).unwrap_or_else(|| panic!("{told}")).1;
    let numbers: Vec<i64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [descriptors, threads, bytes] = numbers[..] else { panic!("{told}") };
    assert_eq!((descriptors, threads), (0, 0), "{told}");
    // What is kept grows with its logarithm; a leak of two small blocks a cycle would be 48,000.
    assert!(bytes < 40_000, "{bytes} bytes more in use");
    let left: Vec<_> = std::fs::read_dir(directory.path().join("profile-recorder")).unwrap().flatten().collect();
    assert!(left.is_empty() && !socket.exists(), "{left:?}");
}
