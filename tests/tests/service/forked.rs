//! A program that carries the library forks: the child has no part of its parent's server, and may have one of its own.

use crate::crowd::ask;
use profile_recorder::Server;
use profile_recorder_tests::{output, scratch, text};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const DIRECTORY: &str = "FORKED_DIRECTORY";

#[inline(never)]
fn burns_in_the_child(until: Instant) {
    while Instant::now() < until {
        black_box((0..10_000_u64).fold(0, |sum, i| sum ^ black_box(i)));
    }
}

/// Descriptors of this process that are sockets of TCP, listening or connected. (A runtime may have a pair of others for itself.)
fn sockets() -> usize {
    let connections = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let inodes: Vec<String> =
        connections.lines().filter_map(|line| Some(format!("socket:[{}]", line.split_whitespace().nth(9)?))).collect();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    files
        .filter(|file| {
            std::fs::read_link(file.path()).is_ok_and(|to| inodes.iter().any(|inode| to.as_os_str() == inode.as_str()))
        })
        .count()
}

/// What the child finds, and does on its own; the code that it ends with.
fn child(directory: &Path, sockets_without_server: usize, server: Server) -> i32 {
    if sockets() != sockets_without_server {
        eprintln!("{} sockets, and {sockets_without_server} are the program's own", sockets());
        return 2;
    }
    // The guard came over the fork; it stops nothing.
    drop(server);
    let socket = directory.join("child.sock");
    let own = Server::bind(&format!("unix://{}", socket.display())).start().expect("a server of its own");
    let worker = std::thread::spawn(|| burns_in_the_child(Instant::now() + Duration::from_millis(1500)));
    // At the rate of the session that runs in the parent, and at another one.
    for hz in [50, 99] {
        let profile = ask(&socket, &format!("/debug/pprof/profile?seconds=0.5&hz={hz}&format=collapsed&symbols=names"));
        if !profile.starts_with("HTTP/1.0 200") || !profile.contains("burns_in_the_child") {
            eprintln!("{hz} Hz: {profile:.1500}");
            return 3;
        }
    }
    let entry = directory.join(format!("profile-recorder/{}.json", std::process::id()));
    if !entry.exists() {
        eprintln!("the child's server has another name in the registry");
        return 4;
    }
    worker.join().expect("no panic");
    own.stop();
    0
}

#[test]
#[ignore = "runs in a process of its own, started by the next test"]
fn forks() {
    let directory = std::path::PathBuf::from(std::env::var_os(DIRECTORY).expect("a directory"));
    let without_server = sockets();
    let server = Server::bind("http://127.0.0.1:0").start().expect("the server starts");
    let url = server.info().url.clone();
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let mut busy = TcpStream::connect(&address).unwrap();
    busy.write_all(b"GET /debug/pprof/profile?hz=50&seconds=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    // The session's own connection is the second socket that the parent has of the server's; its client's is the program's.
    while metrics(&address).is_none_or(|metrics| !metrics.contains("sessions_running 1\n")) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: the child uses what a child of a program with threads may use: its own memory, its C library.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = child(&directory, without_server + 1, server);
        // SAFETY: ends the child without what the test runner does at its end.
        unsafe { libc::_exit(code) };
    }
    // The parent's port is free as soon as its own server is gone, while the child lives.
    server.stop();
    drop(TcpListener::bind(&address).expect("nobody else listens there"));
    let mut status = 0;
    // SAFETY: waits for the child, and writes its status to a number.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    println!("CHILD {status}");
}

fn metrics(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn a_child_has_a_server_of_its_own_or_none() {
    let directory = scratch();
    let told = output(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "forked::forks", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .env("XDG_RUNTIME_DIR", directory.path()),
    );
    assert!(text(&told.stdout).contains("CHILD 0\n"), "{}{}", text(&told.stdout), text(&told.stderr));
    let left: Vec<_> = std::fs::read_dir(directory.path().join("profile-recorder")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}
