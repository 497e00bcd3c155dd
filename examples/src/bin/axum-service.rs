//! A small web service that can be profiled while it works.
//!
//! Start it with a recorder on a Unix socket, and give it something to do:
//!
//! ```sh
//! PROFILE_RECORDER_SERVER_URL_PATTERN='unix:///tmp/app-{PID}.sock' cargo run --release -p profile-recorder-examples --bin axum-service &
//! while curl -s -o /dev/null 'http://127.0.0.1:8080/orders?count=500'; do :; done &
//! ```
//!
//! Look at what it does, on all threads, for a second; at its CPU time; at what it has allocated and what is live:
//!
//! ```sh
//! curl --unix-socket /tmp/app-*.sock -X POST -d '{"numberOfSamples":100,"timeInterval":"10 ms"}' http://localhost/sample
//! curl --unix-socket /tmp/app-*.sock -o cpu.svg 'http://localhost/debug/pprof/profile?seconds=5&format=svg'
//! curl --unix-socket /tmp/app-*.sock -o allocs.svg 'http://localhost/debug/pprof/allocs?format=svg'
//! curl --unix-socket /tmp/app-*.sock -o heap.pb.gz http://localhost/debug/pprof/heap
//! ```
//!
//! Over TCP `go tool pprof` asks by itself. The port is printed at the log level `info`:
//!
//! ```sh
//! PROFILE_RECORDER_SERVER_URL=http://127.0.0.1:6060 cargo run --release -p profile-recorder-examples --bin axum-service &
//! go tool pprof 'http://127.0.0.1:6060/debug/pprof/profile?seconds=5'
//! go tool pprof -sample_index=alloc_objects http://127.0.0.1:6060/debug/pprof/allocs
//! ```
//!
//! Without these variables the recorder is off. `LISTEN` is the service's own address (`127.0.0.1:8080`).

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Query, State};
use axum::response::Html;
use axum::routing::get;
use serde::{Deserialize, Serialize};

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

/// Pages that stay in memory, so that a heap profile has something to show.
const PAGES_KEPT: usize = 100;

#[derive(Debug, Deserialize)]
struct Question {
    #[serde(default = "default_count")]
    count: u32,
}

fn default_count() -> u32 {
    100
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u32,
    customer: String,
    items: Vec<Item>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Item {
    name: String,
    price_cents: u64,
}

type Pages = Arc<Mutex<Vec<String>>>;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let _server = profile_recorder::Server::from_env().start_or_warn(); // off unless the environment asks for it

    let app = Router::new()
        .route("/", get(async || "try /orders?count=500\n"))
        .route("/orders", get(orders))
        .with_state(Pages::default());
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    eprintln!("http://{}/orders?count=500 (pid {})", listener.local_addr()?, std::process::id());
    axum::serve(listener, app)
        .with_graceful_shutdown(async {
            let _ = tokio::signal::ctrl_c().await;
        })
        .await
}

async fn orders(State(pages): State<Pages>, Query(question): Query<Question>) -> Html<String> {
    let json = make_json(question.count.min(100_000));
    let orders = parse_json(&json);
    let page = render_page(&orders);
    keep(&pages, &page);
    Html(page)
}

#[inline(never)]
fn make_json(count: u32) -> String {
    let item = |i: u32| Item { name: format!("item {i}"), price_cents: u64::from(i) * 99 };
    let order =
        |id| Order { id, customer: format!("customer {}", id % 17), items: (0..id % 5 + 1).map(item).collect() };
    let orders: Vec<Order> = (0..count).map(order).collect();
    serde_json::to_string(&orders).unwrap_or_default()
}

#[inline(never)]
fn parse_json(json: &str) -> Vec<Order> {
    serde_json::from_str(json).unwrap_or_default()
}

#[inline(never)]
fn render_page(orders: &[Order]) -> String {
    let mut page = String::from("<!DOCTYPE html><title>Orders</title><table>\n");
    for order in orders {
        let total: u64 = order.items.iter().map(|item| item.price_cents).sum();
        let names: Vec<&str> = order.items.iter().map(|item| item.name.as_str()).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}.{:02}</td></tr>",
            order.id,
            order.customer,
            names.join(", "),
            total / 100,
            total % 100
        );
    }
    page + "</table>\n"
}

#[inline(never)]
fn keep(pages: &Pages, page: &str) {
    let mut pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
    if pages.len() == PAGES_KEPT {
        pages.remove(0);
    }
    pages.push(page.to_owned());
}
