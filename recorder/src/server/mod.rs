//! The HTTP server: any tool asks, this process answers.
//!
//! It lives on a thread of its own with a private single-threaded runtime, so that it answers when every thread of the
//! application is stuck. Each recording runs on a further thread. Nothing here is started before a server is asked for.

mod access;
mod address_space;
mod answer;
mod builder;
mod connection;
mod error;
#[cfg(fuzzing)]
pub mod fuzzed;
mod inherited;
mod listen;
mod meter;
mod metrics;
mod order;
mod page;
mod pages;
mod problem;
mod query;
mod recording;
mod route;
#[cfg(feature = "axum")]
mod router;
mod routes;
mod sample;
mod sessions;
mod slots;
mod socket_file;
mod stacks_text;
mod stats;
mod stop;
#[cfg(test)]
mod tests;
mod thread;

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{Notify, watch};

pub use builder::ServerBuilder;
pub use error::StartError;
pub use route::{RouteAnswer, RouteRequest};
#[cfg(feature = "axum")]
pub use router::{router, router_with_page};

/// A running server. It stops when this is dropped: what is being recorded is cut off, clients get a clear end, the socket's
/// file goes.
///
/// ```no_run
/// let _server = profile_recorder::Server::from_env().start_or_warn(); // off unless the environment asks for it
/// ```
///
/// In a child after fork the server does not exist: dropping it there does nothing, and the child may start its own.
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct Server {
    info: ServerInfo,
    /// Taken when the server is stopped.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    stop: watch::Sender<bool>,
    wake: Arc<Notify>,
    thread: JoinHandle<()>,
}

/// Where a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// `unix:///path`, or `http://address:port` with the port that was chosen.
    pub url: String,
    /// The process it belongs to.
    pub pid: u32,
}

impl Server {
    /// A server as the environment asks for it: `PROFILE_RECORDER_SERVER_URL` or `PROFILE_RECORDER_SERVER_URL_PATTERN`, with
    /// `PROFILE_RECORDER_TOKEN`. Nothing starts if neither is set.
    pub fn from_env() -> ServerBuilder {
        ServerBuilder::from_env()
    }

    /// A server that is configured by the program alone.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }

    /// A server at this URL: `unix:///path/app.sock`, `http+unix://%2Fpath%2Fapp.sock` or `http://127.0.0.1:0`.
    pub fn bind(url: &str) -> ServerBuilder {
        Self::builder().bind(url)
    }

    /// Where it is reached.
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Has its thread repeat what changed the rights of the process's ([`crate::rights`]). On a thread of the recorder's: it is woken by a descriptor.
    pub(crate) fn repeat_rights(&self) {
        if let Some(running) = &self.running {
            running.wake.notify_one();
        }
    }

    /// Stops the server and waits for its end: at once if nobody asks, five seconds at most for the answers that are under way. The same as dropping it.
    pub fn stop(self) {}
}

/// Closes the parent's sockets, in a child after fork.
///
/// # Safety
/// The process has one thread, which does not use a server at the moment.
#[allow(unsafe_code)]
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the function's own contract.
    unsafe { inherited::close_in_child() };
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if std::process::id() != self.info.pid {
            // A forked child has neither the thread nor a right to the socket; its copy of the channel may be locked for ever.
            std::mem::forget(running);
            return;
        }
        let _ = running.stop.send(true);
        // The server's thread itself cannot wait for its end.
        if running.thread.thread().id() != std::thread::current().id() {
            let _ = running.thread.join();
        }
    }
}
