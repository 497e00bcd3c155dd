//! `profrec view`: the page for files, on loopback, for its user alone.

use crate::support::{Place, Ran};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

struct Viewing {
    child: Child,
    address: String,
}

impl Viewing {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    fn end(mut self, signal: &str) -> Ran {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap();
        Ran::of(std::process::Output { status, stdout: Vec::new(), stderr: stderr.into_bytes() })
    }

    /// Status and body of a request, by the path below the secret.
    fn ask(&self, request: &str, host: &str) -> (u16, String) {
        let (authority, secret) = self.address.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut stream = TcpStream::connect(authority).unwrap();
        let request = request.replace("SECRET", secret.trim_end_matches('/'));
        write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        (status, answer)
    }
}

#[test]
fn two_files_are_compared_in_a_browser_and_others_opened() {
    let mut place = Place::new();
    let base = place.add("base.folded", "main;parse 10\nmain;old 5\n", 0o644);
    let head = place.add("head.folded", "main;parse 40\nmain;fresh 2\n", 0o644);
    let third = place.add("third.folded", "main;parse 11\n", 0o644);
    let mut command = place.command(&["view", "--no-browser"]);
    let viewing = Viewing::start(command.args([&base, &head]));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/page/run");
    let output = Command::new(script)
        .arg(std::env::current_exe().unwrap())
        .args(["viewer", &viewing.address])
        .arg(third)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    viewing.end("-INT").assert_code(0);
}

#[test]
fn only_who_knows_the_address_is_answered() {
    let mut place = Place::new();
    place.add("a.folded", "main 1\n", 0o644);
    let viewing = Viewing::start(&mut place.command(&["view", "--no-browser", "a.folded"]));
    let secret = viewing.address.trim_end_matches('/').rsplit('/').next().unwrap();
    assert!(secret.len() == 32 && viewing.address.starts_with("http://127.0.0.1:"), "{}", viewing.address);
    let (status, page) = viewing.ask("GET /SECRET/", "localhost:1");
    assert!(status == 200 && page.contains("content-security-policy: default-src 'none'"), "{page:.800}");
    assert!(page.contains("referrer-policy: no-referrer") && !page[page.find("\r\n\r\n").unwrap()..].contains(secret));
    assert_eq!(viewing.ask("GET /SECRET/page/file?index=0&format=collapsed", "127.0.0.1").0, 200);
    for (request, host) in [
        ("GET /", "127.0.0.1"),
        ("GET /SECRET", "127.0.0.1"),
        ("GET /SECRETx/", "127.0.0.1"),
        ("GET /00000000000000000000000000000000/page/info", "127.0.0.1"),
        ("GET /SECRET/", "evil.example"),
        ("GET /SECRET/../etc/passwd", "127.0.0.1"),
    ] {
        let (status, answer) = viewing.ask(request, host);
        assert!(status == 404 && !answer.contains("a.folded"), "{request} {host}: {answer}");
    }
    for query in ["index=1", "index=-1", "index=0&format=exe", ""] {
        assert_eq!(viewing.ask(&format!("GET /SECRET/page/file?{query}"), "127.0.0.1").0, 400, "{query}");
    }
    viewing.end("-TERM").assert_code(0);
}

#[test]
fn the_browser_gets_a_file_that_only_its_user_reads_and_that_goes_at_the_end() {
    let mut place = Place::new();
    place.add("a.folded", "main 1\n", 0o644);
    place.add(
        "xdg-open",
        "#!/bin/sh\nstat -c %a \"$1\" > opened && cat \"$1\" >> opened && echo \"$1\" > where\n",
        0o755,
    );
    let mut command = place.command(&["view", "a.folded"]);
    let path = std::env::join_paths(
        std::iter::once(place.path("")).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let viewing = Viewing::start(command.env("PATH", path.unwrap()));
    let mut tries = 0;
    while !place.path("where").exists() || std::fs::read_to_string(place.path("where")).unwrap().is_empty() {
        tries += 1;
        assert!(tries < 1000, "the browser is opened");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let opened = std::fs::read_to_string(place.path("opened")).unwrap();
    assert!(opened.starts_with("600\n") && opened.contains(&viewing.address), "{opened}");
    viewing.end("-INT").assert_code(0);
    let file = std::fs::read_to_string(place.path("where")).unwrap();
    assert!(!Path::new(file.trim()).exists(), "{file}");
}

#[test]
fn what_cannot_be_shown_is_told_in_a_line() {
    let mut place = Place::new();
    place.add("broken", b"\0\x01", 0o644);
    place.add("a.folded", "main 1\n", 0o644);
    place.run(&["view", "--no-browser", "broken"]).assert_refused(1, &["broken", "readable formats are"]);
    place.run(&["view", "--no-browser", "a.folded", "missing"]).assert_refused(1, &["missing"]);
    place.run(&["view", "--symbols", "nowhere", "a.folded"]).assert_refused(2, &["nowhere"]);
    place.run(&["view"]).assert_refused(2, &["FILE"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    place.run(&["view", "--no-browser", "--port", &port, "a.folded"]).assert_refused(1, &[&port, "--port"]);
}
