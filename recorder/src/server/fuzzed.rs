//! A server without a socket and without a process to record, for the fuzz target `http`. Not for applications.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::access::Access;
use super::connection::{self, Admission};
use super::routes::Service;
use super::slots::Slots;
use crate::config::Token;
use crate::{RouteAnswer, ServerBuilder};

#[path = "tests/fake.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod fake;

/// The token of [`Rules::Token`].
pub const TOKEN: &str = "s3cret";

/// Whom the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Whoever reached it: a Unix socket.
    Everybody,
    /// Who calls it by a local name: a TCP port without a token.
    Local,
    /// Who knows [`TOKEN`].
    Token,
}

/// Serves one connection to its end as a server with these rules does. Recordings answer at once.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, rules: Rules) {
    let access = Access {
        token: (rules == Rules::Token).then(|| Token::new(TOKEN).ok()).flatten(),
        tcp_host: (rules != Rules::Everybody).then(|| "127.0.0.1".to_owned()),
    };
    let offer = ServerBuilder::new()
        .route("/echo/", |request| RouteAnswer::new(201, "text/x-echo", [b"sent: ", request.body].concat()))
        .into_offer();
    // It lives as long as this function, so that no stop is requested.
    let (_stopper, stop) = watch::channel(false);
    let recording = Arc::new(fake::Fake::default());
    let url = "http://127.0.0.1:1".to_owned();
    let service = Arc::new(Service::new(recording, access, url, offer, stop.clone()));
    let Some(slot) = Slots::new(1).take() else { return };
    connection::run(stream, Admission::Served { service, slot }, stop).await;
}
