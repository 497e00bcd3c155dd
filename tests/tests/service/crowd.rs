//! Many clients and slow clients: the real recorder behind a real socket.

use profile_recorder_tests::service::Service;
use profile_recorder_tests::{scratch, text};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) fn ask(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers");
    text(&answer)
}

/// The clients of the service need a moment to make it work, and to leave something in its memory.
fn wait_for_work(socket: &Path) {
    while !ask(socket, "/debug/pprof/heap?format=collapsed&symbols=names").contains("keep") {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// How many stacks an answer in collapsed form has.
fn stacks(answer: &str) -> usize {
    let body = answer.split_once("\r\n\r\n").expect("a head and a body").1;
    body.lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn profiles_arrive_while_a_thousand_clients_idle_or_dawdle() {
    let (service, socket, _directory) = Service::start_at_socket(&[]);
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
    let profile = ask(&socket, "/debug/pprof/profile?seconds=2&hz=499&format=collapsed");
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
    let (_service, socket, _directory) = Service::start_at_socket(&[("PROFILE_RECORDER_ALLOC_INTERVAL", "16KiB")]);
    wait_for_work(&socket);
    std::thread::scope(|scope| {
        let paths = ["profile?seconds=2&", "wall?seconds=1&", "allocs?seconds=1&", "heap?"];
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
            // What lives can all be of one place, and that one is known.
            let is_whole = if path.contains("/heap") { answer.contains("keep") } else { stacks(&answer) > 1 };
            assert!(is_whole, "{path}: {answer:.500}");
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

/// An orderly end: the program returns from `main`, and its server goes with it.
#[test]
fn who_asks_while_the_process_ends_gets_what_was_recorded() {
    let directory = scratch();
    let socket = directory.path().join("s");
    let service = Service::start(&[("PROFILE_RECORDER_SERVER_URL", &format!("unix://{}", socket.display()))]);
    let answer = std::thread::scope(|scope| {
        let asking =
            scope.spawn(|| ask(&socket, "/debug/pprof/profile?seconds=600&hz=499&format=collapsed&symbols=names"));
        while !ask(&socket, "/metrics").contains("sessions_running 1\n") {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(500));
        // SAFETY: interrupts a child of this process, as a terminal would.
        assert_eq!(unsafe { libc::kill(service.pid() as libc::pid_t, libc::SIGINT) }, 0);
        asking.join().unwrap()
    });
    assert!(answer.starts_with("HTTP/1.0 200") && answer.contains("parse_json"), "{answer:.1000}");
    assert!(!socket.exists(), "the server's file is gone");
}

/// A violent end: nobody can answer any more, and the client sees that at once.
#[test]
fn who_asks_while_the_process_is_killed_sees_the_end() {
    let directory = scratch();
    let socket = directory.path().join("s");
    let service = Service::start(&[("PROFILE_RECORDER_SERVER_URL", &format!("unix://{}", socket.display()))]);
    let mut stream = UnixStream::connect(&socket).expect("the server listens");
    stream.write_all(b"GET /debug/pprof/profile?seconds=600 HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
    while !ask(&socket, "/metrics").contains("sessions_running 1\n") {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(service);
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).map_err(|error| error.kind());
    assert!(answer.is_empty() && matches!(end, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{end:?}");
}
