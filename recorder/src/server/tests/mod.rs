//! Real servers on real sockets, with a recorder that answers at once or never.

mod client;
mod endpoints;
mod fake;
mod lifecycle;
mod limits;
mod page;
mod routes;
mod security;
mod table;
mod tcp;

pub(super) use client::{Client, Reply};
pub(super) use fake::Fake;

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use super::{Server, ServerBuilder};

/// A server on a Unix socket, with the recorder behind it.
pub(super) struct Running {
    pub(super) server: Server,
    pub(super) fake: Arc<Fake>,
    pub(super) socket: PathBuf,
    _directory: TempDir,
}

impl Running {
    pub(super) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(super) fn with(configure: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("a.sock");
        let fake = Arc::new(Fake::default());
        let builder = Server::bind(&format!("unix://{}", socket.display())).register(false).recording(fake.clone());
        let server = configure(builder).start().unwrap();
        Self { server, fake, socket, _directory: directory }
    }

    pub(super) fn client(&self) -> Client {
        Client::unix(&self.socket)
    }

    pub(super) fn get(&self, target: &str) -> Reply {
        self.client().send("GET", target, &[], b"")
    }

    pub(super) fn post(&self, target: &str, body: &[u8]) -> Reply {
        self.client().send("POST", target, &[], body)
    }
}
