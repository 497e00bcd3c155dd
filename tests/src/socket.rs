//! A program that carries the library and answers at a Unix socket, and what it is asked.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running program with a server, every allocation recorded; ended when dropped.
#[derive(Debug)]
pub struct Carrier {
    child: Child,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Carrier {
    /// Starts a victim, with pipes for its standard input and output.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(victim: &str) -> Self {
        let directory = crate::scratch();
        let socket = directory.path().join("s");
        let child = Command::new(crate::build(victim))
            .env("PROFILE_RECORDER_SERVER_URL", format!("unix://{}", socket.display()))
            .env("PROFILE_RECORDER_ALLOC_INTERVAL", "1")
            .env("XDG_RUNTIME_DIR", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {victim}: {error}"));
        Self { child, socket, _directory: directory }
    }

    /// The program's process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The JSON that the server answers, asked again as often as it says that it was asked too often.
    ///
    /// # Panics
    /// If it answers anything else.
    pub fn json(&self, path: &str) -> Value {
        loop {
            match json(&self.socket, path) {
                Ok(answer) => return answer,
                Err(TooOften) => std::thread::sleep(Duration::from_secs(1)),
            }
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// 429: as many recordings were begun as may be in a short time.
struct TooOften;

fn json(socket: &Path, path: &str) -> Result<Value, TooOften> {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers");
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {text:.500}"));
    let status = head.split_whitespace().nth(1);
    if status == Some("429") {
        assert!(head.contains("\r\nretry-after: 1\r\n"), "{path}: {text:.500}");
        return Err(TooOften);
    }
    assert!(status == Some("200"), "{path}: {text:.500}");
    Ok(serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {head}")))
}
