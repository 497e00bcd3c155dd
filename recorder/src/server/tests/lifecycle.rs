//! Clients that go away, servers that stop, processes that fork.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::fake::{Behaviour, wait_for};
use super::*;

const ENDLESS: &[u8] = b"GET /debug/pprof/profile?seconds=3600 HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn a_client_that_goes_away_ends_its_recording_within_a_second() {
    let running = Running::new();
    running.fake.set(Behaviour::Endless);
    let mut client = running.client();
    client.write(ENDLESS);
    running.fake.wait_running(1);
    let gone = Instant::now();
    drop(client);
    wait_for("cancelled", || running.fake.cancelled.load(Ordering::SeqCst) == 1);
    assert!(gone.elapsed() < Duration::from_secs(1), "{:?}", gone.elapsed());
}

#[test]
fn a_poster_that_goes_away_ends_its_recording_too() {
    let running = Running::new();
    running.fake.set(Behaviour::Endless);
    let mut client = running.client();
    let body = r#"{"numberOfSamples":3600,"timeInterval":"1 s"}"#;
    client
        .write(format!("POST /sample HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    running.fake.wait_running(1);
    drop(client);
    wait_for("cancelled", || running.fake.cancelled.load(Ordering::SeqCst) == 1);
}

#[test]
fn the_server_answers_while_recordings_run() {
    let running = Running::new();
    running.fake.set(Behaviour::Endless);
    let mut clients: Vec<_> = (0..16).map(|_| running.client()).collect();
    for client in &mut clients {
        client.write(ENDLESS);
    }
    running.fake.wait_running(16);
    let start = Instant::now();
    assert_eq!(running.get("/health").status, 200);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_stop_ends_recordings_early_and_their_clients_get_what_there_is() {
    let running = Running::new();
    running.fake.set(Behaviour::Endless);
    let mut client = running.client();
    client.write(ENDLESS);
    running.fake.wait_running(1);
    let start = Instant::now();
    running.server.stop();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let reply = client.read_reply().unwrap();
    assert_eq!((reply.status, &reply.body[..2]), (200, &[0x1f, 0x8b][..]));
    assert!(!running.socket.exists());
}

#[test]
fn recordings_of_a_name_are_ended_by_it_and_answer_what_there_is() {
    let running = Running::new();
    running.fake.set(Behaviour::Endless);
    let body = r#"{"numberOfSamples":3600,"timeInterval":"1 s","session":"a b"}"#;
    let posted = format!("POST /sample HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let named =
        |name: &str| format!("GET /debug/pprof/profile?seconds=3600&session={name} HTTP/1.1\r\nHost: x\r\n\r\n");
    let requests = [posted, named("a%20b"), named("other"), String::from_utf8(ENDLESS.to_vec()).unwrap()];
    let clients = requests.map(|request| {
        let mut client = running.client();
        client.write(request.replace("Host: x", "Host: x\r\nConnection: close").as_bytes());
        client
    });
    running.fake.wait_running(4);
    let finish = |query: &str| running.post(&format!("/debug/pprof/finish{query}"), b"");
    for (query, status) in [("", 400), ("?session=", 400), ("?session=%0a", 400), ("?session=a", 404)] {
        assert_eq!(finish(query).status, status, "{query}");
    }
    let reply = finish("?session=a+b");
    assert_eq!((reply.status, reply.text()), (200, "2 finished\n"));
    running.fake.wait_running(2);
    let [first, second, third, fourth] = clients;
    for client in [first, second] {
        let reply = client.read_reply().unwrap();
        assert!(reply.status == 200 && !reply.body.is_empty(), "{reply:?}");
    }
    // Who was answered is not known any more, and those of another name or none go on.
    assert_eq!(finish("?session=a+b").status, 404);
    assert_eq!(finish("?session=other").text(), "1 finished\n");
    assert_eq!(third.read_reply().unwrap().status, 200);
    running.fake.wait_running(1);
    drop(fourth);
    wait_for("cancelled", || running.fake.cancelled.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_stop_does_not_wait_for_idle_clients() {
    let running = Running::new();
    let (unused, mut idle) = (running.client(), running.client());
    idle.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(running.get("/health").status, 200);
    let start = Instant::now();
    running.server.stop();
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    assert!(unused.read_reply().is_none());
    assert_eq!(idle.read_reply().unwrap().status, 200);
}

#[test]
fn allocation_sampling_begins_with_the_server() {
    assert_eq!(Running::new().fake.prepared.load(Ordering::SeqCst), 1);
}

#[test]
fn starting_and_stopping_leaks_nothing() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let directory = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", directory.path().join("a.sock").display());
    let cycle = || Server::bind(&url).register(false).recording(Arc::new(Fake::default())).start().unwrap().stop();
    cycle();
    let before = descriptors();
    for _ in 0..200 {
        cycle();
    }
    // Other tests open descriptors at the same time; a leak would be 200 at least.
    assert!(descriptors() < before + 150, "{before} {}", descriptors());
}

#[test]
fn mistakes_and_refusals_do_not_start_a_server() {
    let start = |url: &str| Server::bind(url).register(false).start();
    assert!(start("junk").unwrap_err().to_string().starts_with("URL=\"junk\": not a URL"));
    assert!(start("http://0.0.0.0:0").unwrap_err().to_string().contains("PROFILE_RECORDER_TOKEN"));
    let missing = start("unix:///does/not/exist/a.sock").unwrap_err();
    assert!(missing.to_string().starts_with("cannot listen on unix:///does/not/exist/a.sock: "), "{missing}");
    assert!(Server::builder().start().unwrap_err().is_not_requested());
    assert!(Server::bind("http://127.0.0.1:0").token("two words").start().is_err());
    let running = Running::new();
    let error = start(&running.server.info().url).unwrap_err().to_string();
    assert!(error.contains("another process listens there") && error.contains("{PID}"), "{error}");
    assert!(Server::bind("junk").start_or_warn().is_none());
}

#[test]
fn a_server_of_the_environment_is_off_unless_asked_for() {
    // The test runner's environment asks for none.
    assert!(Server::from_env().start().unwrap_err().is_not_requested());
    assert!(Server::from_env().start_or_warn().is_none());
}

#[test]
fn a_guard_that_came_over_a_fork_stops_nothing() {
    let mut running = Running::new();
    // What a child sees: the guard of another process.
    running.server.info.pid = 1;
    let Running { server, socket, fake: _, _directory } = running;
    drop(server);
    assert!(socket.exists());
    assert_eq!(Client::unix(&socket).send("GET", "/health", &[], b"").status, 200);
}
