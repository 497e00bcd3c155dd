//! Paths of the application's own.

use std::fmt;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::Bytes;

use super::answer::{self, Answer};
use super::problem::Problem;
use super::recording;

/// A request to a path of the application's own.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RouteRequest<'a> {
    /// `GET`, `POST` ...
    pub method: &'a str,
    /// The whole path, as the client wrote it.
    pub path: &'a str,
    /// What follows the question mark, as the client wrote it.
    pub query: &'a str,
    /// The body, of at most 64 KiB.
    pub body: &'a [u8],
}

/// What such a request is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAnswer {
    status: u16,
    content_type: String,
    body: Vec<u8>,
}

impl RouteAnswer {
    /// An answer with this status (200 to 599; anything else becomes 500) and type.
    pub fn new(status: u16, content_type: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type: content_type.into(), body: body.into() }
    }

    /// A text, with status 200.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(200, "text/plain; charset=utf-8", text.into())
    }
}

type Handler = dyn Fn(&RouteRequest<'_>) -> RouteAnswer + Send + Sync;

/// A path and what answers there.
#[derive(Clone)]
pub(super) struct Route {
    path: Arc<str>,
    handler: Arc<Handler>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Route {
    pub(super) fn new(
        path: &str,
        handler: impl Fn(&RouteRequest<'_>) -> RouteAnswer + Send + Sync + 'static,
    ) -> Result<Self, &'static str> {
        if !path.starts_with('/') || path == "/" {
            return Err("a path that begins with a slash and goes on is needed");
        }
        Ok(Self { path: path.into(), handler: Arc::new(handler) })
    }

    /// Whether the path is this route's: equal, or below one that ends with a slash.
    pub(super) fn matches(&self, path: &str) -> bool {
        path == &*self.path || (self.path.ends_with('/') && path.starts_with(&*self.path))
    }

    pub(super) async fn answer(&self, method: &str, path: &str, query: &str, body: Bytes) -> Result<Answer, Problem> {
        let handler = Arc::clone(&self.handler);
        let [method, path, query] = [method, path, query].map(str::to_owned);
        let answer = recording::on_own_thread("profrec-route", move || {
            handler(&RouteRequest { method: &method, path: &path, query: &query, body: &body })
        })?;
        let answer = answer.await.map_err(|_| Problem::Failed("the handler of this path panicked"))?;
        let status = StatusCode::from_u16(answer.status).ok().filter(|status| status.as_u16() >= 200);
        Ok(answer::body(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &answer.content_type, answer.body))
    }
}
