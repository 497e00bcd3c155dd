//! Programs that know nothing of the recorder, with the server that the preload library brings.

use crate::{output, profrec, scratch, text};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The preload library: the ready-made one that `PROFREC_PRELOAD_LIBRARY` names, or as `profrec` unpacks it.
///
/// # Panics
/// If it does not.
pub fn library() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Ok(path) = std::env::var("PROFREC_PRELOAD_LIBRARY") {
            return path;
        }
        let directory = scratch();
        let profile = directory.path().join("x.folded");
        let shown = output(Command::new(profrec()).args(["record", "--mode", "allocs", "-o"]).arg(&profile).args([
            "--",
            "sh",
            "-c",
            "echo LIBRARY=$LD_PRELOAD",
        ]));
        let shown = text(&shown.stdout);
        let path = shown.lines().find_map(|line| line.strip_prefix("LIBRARY=")).expect("the library's path");
        path.trim().to_owned()
    })
}

/// Has the command load the library, with sockets and the registry in that directory: `app-PID.sock`.
pub fn serve<'a>(command: &'a mut Command, directory: &Path) -> &'a mut Command {
    command
        .env("LD_PRELOAD", library())
        .env("PROFILE_RECORDER_SERVER_URL_PATTERN", format!("unix://{}/app-{{PID}}.sock", directory.display()))
        .env("XDG_RUNTIME_DIR", directory)
}

/// A running program with a server; ended when dropped.
#[derive(Debug)]
pub struct Resident {
    child: Child,
    directory: tempfile::TempDir,
}

impl Resident {
    /// Starts the command with the library, and waits until its server listens.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(command: &mut Command) -> Self {
        let directory = scratch();
        let child = serve(command, directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let resident = Self { child, directory };
        resident.wait_for_server(resident.child.id());
        resident
    }

    /// Waits until the process's server listens.
    ///
    /// # Panics
    /// After 30 seconds.
    pub fn wait_for_server(&self, pid: u32) {
        let begun = Instant::now();
        while UnixStream::connect(self.socket(pid)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "no server of process {pid}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Socket of a process.
    pub fn socket(&self, pid: u32) -> PathBuf {
        self.directory.path().join(format!("app-{pid}.sock"))
    }

    /// Where its socket is.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The program's process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The body of what the program's server answers.
    ///
    /// # Panics
    /// If that is not status 200.
    pub fn get(&self, path: &str) -> Vec<u8> {
        get(&self.socket(self.child.id()), path)
    }
}

/// The body of what the server at that socket answers.
///
/// # Panics
/// If that is not status 200.
pub fn get(socket: &Path, path: &str) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers");
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer has a head");
    assert!(answer.starts_with(b"HTTP/1.0 200"), "{path}: {}", text(&answer));
    answer.split_off(end + 4)
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
