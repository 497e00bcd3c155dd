//! An engine that refuses, hangs, answers 429 and 500, and cuts connections, and an agent that is killed: everything arrives once, or is accounted for.

use super::*;
use crate::engine::Engine;
use crate::fleet::{CPU_NS, Fleet};
use rustix::process::Signal;
use std::collections::BTreeMap;

/// How long they go on: some seconds, or what `FLAKY_SECONDS` says.
fn duration() -> Duration {
    let seconds =
        std::env::var("FLAKY_SECONDS").map_or(6, |seconds| seconds.parse().expect("FLAKY_SECONDS is a number"));
    Duration::from_secs(seconds)
}

#[test]
fn everything_arrives_once_or_is_accounted_for() {
    let place = Place::new();
    let _fleet = Fleet::start(&place, 4);
    let mut engine = Engine::start(&place, "taken", 0, &["--flaky"]);
    let port = engine.port;
    let start = || {
        let mut command = agent(&place, &["-c", "-d", "1"]);
        let config = std::fs::read_to_string(place.path("agent.toml")).unwrap();
        let sink = format!("[[sinks]]\nkind = 'pyroscope'\nurl = 'http://127.0.0.1:{port}'\ntimeout = 1\n");
        std::fs::write(place.path("agent.toml"), config.replace("jitter", "drain = 0\njitter") + &sink).unwrap();
        command.stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let end = Instant::now() + duration();
    let mut kills = 0;
    while Instant::now() < end {
        let mut child = start();
        std::thread::sleep(Duration::from_secs(3));
        // In the middle of whatever it does.
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        drop(engine);
        engine = Engine::start(&place, "taken", port, &["--flaky"]);
    }
    // The engine recovers, and what was kept arrives.
    drop(engine);
    let engine = Engine::start(&place, "taken", port, &[]);
    let child = start();
    let kept = || {
        let entries = std::fs::read_dir(place.path("state/queues/pyroscope")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('0')).count()
    };
    let before = account(&place, "pyroscope")["sent"].as_u64().unwrap_or(0);
    wait_until("the queue is emptied", || {
        account(&place, "pyroscope")["sent"].as_u64().unwrap_or(0) >= before + 4 && kept() == 0
    });
    signal(&child, Signal::TERM);
    let mut child = child;
    child.wait().unwrap();

    let account = account(&place, "pyroscope");
    let mut arrived: BTreeMap<String, u64> = BTreeMap::new();
    for entry in engine.taken() {
        assert_eq!(entry["profile"]["totals"][1], CPU_NS);
        *arrived.entry(entry["id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let sent = account["sent"].as_u64().unwrap();
    let twice: u64 = arrived.values().map(|count| count - 1).sum();
    let repeated = account["repeated"].as_u64().unwrap();
    println!("{kills} kills; {sent} sent, {} arrived, {twice} of them twice; {repeated} sent again", arrived.len());
    assert!(sent >= 4 && account["given_up"].as_object().unwrap().is_empty(), "{account}");
    assert_eq!(arrived.len() as u64, sent, "{account}");
    assert!(twice <= repeated, "{twice} arrived twice, {account}");
}
