//! Labels that other libraries' layers set: they follow async tasks from thread to thread. And the endpoints in a server of the program's own.

use super::{boxes, by_labels, by_labels_below, recorder};
use profile_recorder::labels::{SpanLayer, TowerLayer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::io::{Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;
use tracing::instrument::WithSubscriber;
use tracing::{Instrument, Level};
use tracing_subscriber::layer::SubscriberExt;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

#[test]
fn spans_of_tracing_label_what_tasks_do_inside_them() {
    recorder();
    let subscriber = tracing_subscriber::registry().with(SpanLayer::new().field("tracedroute"));
    let work = async {
        let mut tasks = Vec::new();
        for (route, n) in [("/a", 1_usize), ("/b", 2)].repeat(8) {
            let span =
                tracing::span!(Level::INFO, "request", tracedroute = route, unread = 7, late = tracing::field::Empty);
            let task = async move {
                for _ in 0..20 {
                    boxes(n);
                    tokio::task::yield_now().await;
                    tracing::span!(Level::INFO, "inner").in_scope(|| boxes(1));
                }
            };
            tasks.push(tokio::spawn(task.instrument(span).with_current_subscriber()));
        }
        for task in tasks {
            task.await.unwrap();
        }
        boxes(7);
    };
    runtime().block_on(work.with_subscriber(subscriber));
    // 8 tasks of 20 rounds each.
    let expected = [("request", "/a", 160), ("inner", "/a", 160), ("request", "/b", 320), ("inner", "/b", 160)]
        .map(|(span, route, n)| (format!(r#"{{"span":"{span}","tracedroute":"{route}"}}"#), (n, 8 * n)));
    assert_eq!(by_labels_below("labels::boxes", "allocs?format=json", "tracedroute"), BTreeMap::from(expected));
    let sets = by_labels("allocs?format=json", "tracedroute");
    assert_eq!(sets.len(), 4, "no label outlives its span: {sets:?}");
}

/// Allocates as many boxes as it is asked for, a half before its future and a half in it.
#[derive(Clone)]
struct Boxes;

impl Service<usize> for Boxes {
    type Response = ();
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<(), Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, n: usize) -> Self::Future {
        boxes(n / 2);
        Box::pin(async move {
            tokio::task::yield_now().await;
            boxes(n / 2);
            Ok(())
        })
    }
}

#[test]
fn requests_of_a_tower_service_are_labelled() {
    recorder();
    let layer = TowerLayer::new("towered", |n: &usize| format!("/{n}"));
    runtime().block_on(async {
        let mut tasks = Vec::new();
        for n in [100_usize, 1000].repeat(4) {
            let mut service = layer.layer(Boxes);
            tasks.push(tokio::spawn(async move { service.call(n).await.unwrap() }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    let expected = [100, 1000].map(|n| (format!(r#"{{"towered":"/{n}"}}"#), (4 * n, 4 * n * 8)));
    assert_eq!(by_labels_below("labels::boxes", "allocs?format=json", "towered"), BTreeMap::from(expected));
}

#[test]
fn the_endpoints_are_mounted_in_an_axum_server() {
    recorder();
    let runtime = runtime();
    let address = runtime.block_on(async {
        let app = axum::Router::new()
            .route("/", axum::routing::get(|| async { "mine" }))
            .merge(profile_recorder::router())
            .nest_service("/profiler", profile_recorder::router_with_page());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        address
    });
    let ask = |request: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(format!("{request}\r\nHost: x\r\nConnection: close\r\n").as_bytes()).unwrap();
        let body = r#"{"numberOfSamples":5,"timeInterval":"10 ms","format":"collapsed"}"#;
        let rest = if request.starts_with("POST") {
            format!("Content-Length: {}\r\n\r\n{body}", body.len())
        } else {
            "\r\n".into()
        };
        stream.write_all(rest.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        profile_recorder_tests::text(&answer)
    };
    boxes(10);
    assert!(ask("GET / HTTP/1.1").ends_with("mine"));
    assert!(ask("GET /debug/pprof/allocs?format=collapsed HTTP/1.1").contains("boxes"));
    assert!(ask("POST /sample HTTP/1.1").starts_with("HTTP/1.1 200"));
    assert!(ask("GET /debug/pprof/profile?hz=0 HTTP/1.1").starts_with("HTTP/1.1 400"));
    assert!(ask("GET /alloc/stats HTTP/1.1").contains("bytes_asked"));
    for path in ["/nothing", "/profiler/nothing", "/profilers"] {
        assert!(ask(&format!("GET {path} HTTP/1.1")).starts_with("HTTP/1.1 404"), "{path}");
    }
    for path in ["/profiler", "/profiler/", "/profiler?mode=cpu"] {
        let page = ask(&format!("GET {path} HTTP/1.1"));
        let is_page = page.to_lowercase().contains("<!doctype html>") && page.contains("content-security-policy");
        assert!(is_page, "{path}: {page:.500}");
    }
    assert!(ask("GET /profiler/page/info HTTP/1.1").contains("modes"));
    assert!(ask("GET /profiler/debug/pprof/allocs?format=collapsed HTTP/1.1").contains("boxes"));
    assert!(ask("POST /profiler/page/convert?format=json HTTP/1.1").contains("cannot read this profile"));
    assert!(ask("POST /profiler HTTP/1.1").starts_with("HTTP/1.1 200"));
    assert!(ask("GET /profiler/health HTTP/1.1").ends_with("OK"));
    assert!(ask("GET /health HTTP/1.1").starts_with("HTTP/1.1 404"), "that is the application's");
}
