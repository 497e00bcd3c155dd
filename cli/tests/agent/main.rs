//! What `profrec agent` and `profrec push` write and send, seen by readers that know nothing of us.

#[path = "../support/mod.rs"]
mod support;

mod engine;
mod flaky;
mod fleet;
mod received;
mod secure;
mod written;

use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use support::Place;

/// Waits until it holds, for a minute at most.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a process that was started here.
fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The account of a sink's queue in `state`, as it is on disk.
fn account(place: &Place, sink: &str) -> Value {
    let path = place.path(&format!("state/queues/{sink}/account.json"));
    let text = std::fs::read_to_string(path).unwrap_or_else(|_| "{}".to_owned());
    serde_json::from_str::<Value>(&text).unwrap()["account"].clone()
}

/// Body of what the agent's endpoint answers.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// A command of the agent that finds the fakes in its place, and nobody else.
fn agent(place: &Place, arguments: &[&str]) -> Command {
    let sockets = place.path("fake-*.sock");
    let config = format!(
        "registry = false\njitter = 0\nstate-dir = {:?}\n[[targets]]\nsockets = [{sockets:?}]\n",
        place.path("state")
    );
    std::fs::write(place.path("agent.toml"), config).unwrap();
    let mut command = place.command(&["agent", "--config", "agent.toml"]);
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> support::Ran {
    support::Ran::of(command.output().unwrap())
}
