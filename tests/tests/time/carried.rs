//! Programs that carry the library, and sessions that are asked of them.

use profile_recorder_tests::{build, scratch, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// A running victim; ended when dropped.
pub(super) struct Carried {
    child: Child,
    stdout: BufReader<ChildStdout>,
    directory: tempfile::TempDir,
}

impl Carried {
    /// Starts a victim by a shell, which first does what `before` says (`ulimit` is the shell's own).
    pub(super) fn start(victim: &str, arguments: &str, before: &str) -> Self {
        let directory = scratch();
        let program = build("profile-recorder-tests", victim);
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

    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Begins to ask for a profile, by curl; its answer goes to the file, its status and headers to the child's standard output.
    pub(super) fn ask(&self, query: &str, name: &str) -> (Child, PathBuf) {
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
    pub(super) fn go(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("the victim reads");
    }

    /// Waits for a line of the victim.
    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the victim writes");
        line
    }

    /// Ends the victim's input; what it printed, and how it ended.
    pub(super) fn end(mut self) -> (String, ExitStatus) {
        drop(self.child.stdin.take());
        let mut printed = String::new();
        self.stdout.read_to_string(&mut printed).expect("the victim writes");
        (printed, self.child.wait().expect("the victim ends"))
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("s")
}

/// The headers of an answer, once it is there.
pub(super) fn headers(ask: Child) -> String {
    let output = ask.wait_with_output().expect("curl ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs `victim-spends` during one session of a mode; what it says, and the profile.
///
/// The work takes as long as the machine lets it take. A session that ended before it is done again, longer.
pub(super) fn spends(arguments: &str, before: &str, query: &str) -> (super::truth::Truth, PathBuf, Carried) {
    for seconds in [4, 12, 40] {
        let mut carried = Carried::start("victim-spends", arguments, before);
        let (ask, profile) = carried.ask(&format!("{query}&seconds={seconds}"), "p.pb.gz");
        let begun = std::time::Instant::now();
        // The session begins before the work.
        std::thread::sleep(std::time::Duration::from_millis(600));
        carried.go();
        let mut said = String::new();
        loop {
            let line = carried.line();
            said.push_str(&line);
            if line.starts_with("process") || line.is_empty() {
                break;
            }
        }
        let within = begun.elapsed() < std::time::Duration::from_secs(seconds);
        let answer = headers(ask);
        assert!(answer.contains("200 OK"), "{answer}");
        if within {
            return (super::truth::Truth::of(&said), profile, carried);
        }
    }
    panic!("the work took more than 40 seconds");
}
