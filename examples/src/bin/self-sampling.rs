//! A web service that samples itself: `GET /sample/SECONDS` on its own port answers with what all of its threads did meanwhile.
//!
//! ```sh
//! cargo run --release -p profile-recorder-examples --bin self-sampling &
//! examples/self-sampling/load http://127.0.0.1:8080 30 &
//! curl -o sampled.perf http://127.0.0.1:8080/sample/5                     # perf script text: flamegraph.pl, speedscope, Firefox Profiler
//! curl -o sampled.svg 'http://127.0.0.1:8080/sample/5?format=svg'         # a flame graph
//! ```
//!
//! `examples/self-sampling/Dockerfile` builds a container of it. The endpoints of the recorder are part of the service's own router here, so whoever reaches the service reaches them:
//! put them behind what guards your administration, or use `Server` with a socket of its own as `axum-service` does.
//!
//! `LISTEN` is the service's address (`127.0.0.1:8080`).

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::collections::BTreeMap;
use tower_service::Service;

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/words/{count}", get(words))
        .route("/sample/{seconds}", get(sample))
        .merge(profile_recorder::router());
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    eprintln!("http://{}/sample/5 (pid {})", listener.local_addr()?, std::process::id());
    let end = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app).with_graceful_shutdown(end).await
}

/// The recorder's answer to the same question by its own path.
async fn sample(Path(seconds): Path<String>, RawQuery(query): RawQuery) -> Response {
    let query = query.filter(|query| !query.is_empty()).unwrap_or_else(|| "format=perf".to_owned());
    match Request::get(format!("/debug/pprof/wall?seconds={seconds}&{query}")).body(Body::empty()) {
        Ok(request) => profile_recorder::router().call(request).await.into_response(),
        Err(_) => (StatusCode::BAD_REQUEST, "a number of seconds is needed\n").into_response(),
    }
}

/// Something to do: counts made-up words.
async fn words(Path(count): Path<u32>) -> String {
    let text = write(count.min(1_000_000));
    let counted = count_words(&text);
    format!("{} different words\n", counted.len())
}

#[inline(never)]
fn write(count: u32) -> String {
    let words = (0..count).map(|i| format!("w{} ", i.wrapping_mul(2_654_435_761) % 4096));
    words.collect()
}

#[inline(never)]
fn count_words(text: &str) -> BTreeMap<&str, u32> {
    let mut counted = BTreeMap::new();
    for word in text.split_whitespace() {
        *counted.entry(word).or_insert(0) += 1;
    }
    counted
}
