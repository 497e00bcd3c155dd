//! One connection: its limits in size and time, and its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;

use super::problem::Problem;
use super::routes::Service;
use super::slots::Slot;
use super::stop;
use crate::log::log;

/// Within this time a request's head must have arrived; it also ends connections that nobody uses.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of a request.
const MAX_HEAD: usize = 16 * 1024;
/// A client that is not served gets so long to read why.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// What a connection may expect.
pub(super) enum Admission {
    Served { service: Arc<Service>, slot: Slot },
    Refused(Problem),
}

/// Serves one connection to its end. A client that goes away drops the future of its request.
pub(super) async fn run<S>(stream: S, admission: Admission, stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let ended = match admission {
        Admission::Served { service, slot } => {
            let answer = async |request: Request<Incoming>| {
                let _busy = slot.busy();
                Ok::<_, Infallible>(service.answer(request).await)
            };
            drive(stream, true, answer, stop).await
        }
        Admission::Refused(problem) => {
            let answer = async |_: Request<Incoming>| Ok(problem.clone().into_answer());
            timeout(REFUSAL_TIMEOUT, drive(stream, false, answer, stop)).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        log!(Debug, "a connection ended: {error}");
    }
}

async fn drive<S, F>(stream: S, keep_alive: bool, answer: F, mut stop: watch::Receiver<bool>) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: AsyncFn(Request<Incoming>) -> Result<super::answer::Answer, Infallible>,
{
    let answer = &answer;
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .keep_alive(keep_alive)
        .serve_connection(TokioIo::new(stream), service_fn(async move |request| answer(request).await));
    let mut connection = pin!(connection);
    tokio::select! {
        ended = &mut connection => return ended,
        () = stop::requested(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}
