//! A terminal that a test types into and reads from, as a person does: tmux, with a server of its own.

use crate::output;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Marks the shell's prompt.
pub const PROMPT: &str = "ready>";

/// A terminal with a shell in it; ended when dropped.
#[derive(Debug)]
pub struct Terminal {
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Terminal {
    /// A terminal of this many columns and lines, whose shell has these variables besides.
    ///
    /// # Panics
    /// If there is no tmux.
    pub fn start(width: u16, height: u16, variables: &[(&str, &str)]) -> Self {
        let directory = crate::scratch();
        let terminal = Self { socket: directory.path().join("tmux"), _directory: directory };
        let (width, height) = (width.to_string(), height.to_string());
        let mut tmux = terminal.tmux();
        tmux.args(["-u", "-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height]);
        let all = [("PS1", PROMPT), ("LANG", "C.UTF-8"), ("NO_COLOR", ""), ("ENV", "")];
        for (name, value) in all.iter().chain(variables) {
            tmux.args(["-e", &format!("{name}={value}")]);
        }
        tmux.args(["--", "sh", "-i"]);
        let made = output(&mut tmux);
        assert!(made.status.success(), "{}", crate::text(&made.stderr));
        terminal.wait_for("the prompt", |screen| screen.contains(PROMPT));
        terminal
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(&self.socket).env_remove("TMUX");
        tmux
    }

    fn run(&self, arguments: &[&str]) -> String {
        let ran = output(self.tmux().args(arguments));
        assert!(ran.status.success(), "tmux {arguments:?}: {}", crate::text(&ran.stderr));
        crate::text(&ran.stdout)
    }

    /// Types a text and Enter.
    pub fn enter(&self, text: &str) {
        self.run(&["send-keys", "-l", "--", text]);
        self.key("Enter");
    }

    /// Presses a key by tmux's name of it: `q`, `C-c`, `Down`.
    pub fn key(&self, key: &str) {
        self.run(&["send-keys", "--", key]);
    }

    /// Gives the terminal another size.
    pub fn resize(&self, width: u16, height: u16) {
        self.run(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// Closes the terminal under whatever runs in it.
    pub fn close(&self) {
        self.run(&["kill-session"]);
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// What is on the screen, with the escape sequences of its colours and styles.
    pub fn styled_screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen is as it should be, and returns it.
    ///
    /// # Panics
    /// With the screen, after 30 seconds.
    pub fn wait_for(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if condition(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "no {what} on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this is on the screen.
    ///
    /// # Panics
    /// With the screen, after 30 seconds.
    pub fn see(&self, text: &str) -> String {
        self.wait_for(text, |screen| screen.contains(text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux().arg("kill-server").output();
    }
}
