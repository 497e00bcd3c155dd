//! The agent's own endpoint: `/health` and `/metrics`.

use crate::stats::Stats;
use crate::{Error, reason};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How late a cycle may be until the agent is said to be stuck.
const PATIENCE: Duration = Duration::from_secs(120);
/// Most connections at one time.
const CONNECTIONS: usize = 32;
/// How long a client may take for its request.
const REQUEST: Duration = Duration::from_secs(10);

/// Listens, on a task of its own, until the runtime ends. Returns the address.
///
/// # Errors
/// If the address cannot be listened on.
pub(crate) async fn listen(address: &str, stats: Arc<Stats>) -> Result<SocketAddr, Error> {
    let cannot = |e: std::io::Error| Error::failure(format!("cannot listen on '{address}': {}", reason(&e)));
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    tokio::spawn(serve(listener, stats));
    Ok(bound)
}

async fn serve(listener: TcpListener, stats: Arc<Stats>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, perhaps.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let stats = Arc::clone(&stats);
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let answer = answer(&request, &stats);
                async { Ok::<_, Infallible>(answer) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(REQUEST).keep_alive(false);
            // A client that goes away is nobody's failure.
            let _ = server.serve_connection(TokioIo::new(stream), answer).await;
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, stats: &Stats) -> Response<Full<Bytes>> {
    let numbers = stats.numbers();
    let (status, kind, text) = match request.uri().path() {
        _ if request.method() != Method::GET => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned()),
        "/health" if numbers.is_healthy(PATIENCE) => (StatusCode::OK, "text/plain", "OK\n".to_owned()),
        "/health" => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", "the running cycle does not end\n".to_owned()),
        "/metrics" => (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", numbers.prometheus()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "there are /health and /metrics\n".to_owned()),
    };
    drop(numbers);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
