//! Programs that carry the library, and sessions that are asked of them.

use crate::{build, scratch, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// A running victim; ended when dropped.
#[derive(Debug)]
pub struct Carried {
    child: Child,
    stdout: BufReader<ChildStdout>,
    directory: tempfile::TempDir,
}

impl Carried {
    /// Starts a victim by a shell, which first does what `before` says (`ulimit` is the shell's own).
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(victim: &str, arguments: &str, before: &str) -> Self {
        let directory = scratch();
        let program = build(victim);
        let mut child = Command::new("bash")
            .args(["-c", &format!("{before} exec {} {arguments}", program.display())])
            .env("PROFILE_RECORDER_SERVER_URL", format!("unix://{}", socket(directory.path()).display()))
            .env("XDG_RUNTIME_DIR", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let carried = Self { child, stdout, directory };
        while !socket(carried.directory.path()).exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        carried
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Begins to ask for a profile, by curl; its answer goes to the file, its status and headers to the child's standard output.
    ///
    /// # Panics
    /// If curl cannot be started.
    pub fn ask(&self, query: &str, name: &str) -> (Child, PathBuf) {
        let to = self.directory.path().join(name);
        let child = Command::new("curl")
            .args(["-sS", "-D", "-", "--unix-socket"])
            .arg(socket(self.directory.path()))
            .arg("-o")
            .arg(&to)
            .arg(format!("http://localhost/debug/pprof/{query}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("curl runs");
        (child, to)
    }

    /// Tells the victim to begin.
    ///
    /// # Panics
    /// If it does not read any more.
    pub fn go(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("the victim reads");
    }

    /// Waits for a line of the victim.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the victim writes");
        line
    }

    /// Ends the victim's input; what it printed, and how it ended.
    ///
    /// # Panics
    /// If its output cannot be read.
    pub fn end(mut self) -> (String, ExitStatus) {
        drop(self.child.stdin.take());
        let mut printed = String::new();
        self.stdout.read_to_string(&mut printed).expect("the victim writes");
        (printed, self.child.wait().expect("the victim ends"))
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            println!("the victim has ended: {status}");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("s")
}

/// The headers of an answer, once it is there.
///
/// # Panics
/// If curl failed.
pub fn headers(ask: Child) -> String {
    let output = ask.wait_with_output().expect("curl ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}
