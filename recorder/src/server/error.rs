//! Why a server does not start.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::config::{Address, Mistake};

/// Why a server did not start, in one line.
#[derive(Debug)]
pub struct StartError {
    reason: Reason,
    source: Option<io::Error>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    NotRequested,
    Configuration(String),
    Listen(String),
    Thread,
}

impl StartError {
    /// No address was given.
    pub(super) fn not_requested() -> Self {
        Self { reason: Reason::NotRequested, source: None }
    }

    pub(super) fn mistakes(mistakes: &[Mistake]) -> Self {
        let lines: Vec<_> = mistakes.iter().map(Mistake::to_string).collect();
        Self::configuration(lines.join("; "))
    }

    pub(super) fn configuration(text: String) -> Self {
        Self { reason: Reason::Configuration(text), source: None }
    }

    pub(super) fn listen(address: &Address, error: &io::Error) -> Self {
        // Cloned: an io::Error with a message of its own carries no code.
        let source = error.raw_os_error().map(io::Error::from_raw_os_error);
        Self { reason: Reason::Listen(format!("cannot listen on {address}: {error}")), source }
    }

    pub(super) fn needs_token(address: &Address, open: SocketAddr) -> Self {
        Self::configuration(format!(
            "{address} can be reached from other machines ({} is not loopback): set PROFILE_RECORDER_TOKEN, or listen on 127.0.0.1",
            open.ip()
        ))
    }

    pub(super) fn thread(error: io::Error) -> Self {
        Self { reason: Reason::Thread, source: Some(error) }
    }

    /// Whether the reason is just that nobody asked for a server.
    pub fn is_not_requested(&self) -> bool {
        self.reason == Reason::NotRequested
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::NotRequested => f.write_str(
                "no server was requested: set PROFILE_RECORDER_SERVER_URL_PATTERN, for example to unix:///tmp/app-{PID}.sock",
            ),
            Reason::Configuration(text) | Reason::Listen(text) => f.write_str(text),
            Reason::Thread => f.write_str("cannot start the server's thread"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}
