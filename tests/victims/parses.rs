//! Parses JSON, searches text, and does both in tasks of an asynchronous runtime: Rust as services are made of it.

use regex::Regex;
use serde_json::Value;
use tokio::sync::mpsc;

fn document(items: usize) -> String {
    let items: Vec<Value> = (0..items)
        .map(|i| serde_json::json!({"id": i, "name": format!("item {i}"), "tags": ["a", "b", i.to_string()], "nested": {"x": [1, 2, {"y": null}]}}))
        .collect();
    Value::from(items).to_string()
}

/// Calls `f` below as many frames.
#[inline(never)]
fn deeper(frames: usize, f: &mut dyn FnMut() -> usize) -> usize {
    let result = if frames == 0 { f() } else { deeper(frames - 1, f) };
    std::hint::black_box(result)
}

fn parse(text: &str) -> usize {
    let value: Value = serde_json::from_str(text).expect("the document is valid");
    value.as_array().map_or(0, Vec::len)
}

fn search(text: &str) -> usize {
    let pattern = Regex::new(r#""name":"item (\d+)".*?"tags":\[("[a-z]",?)+"#).expect("the pattern is valid");
    pattern.captures_iter(text).map(|found| found[1].to_owned().len()).sum()
}

async fn serve(text: String, tasks: usize) -> usize {
    let (send, mut receive) = mpsc::channel(16);
    for _ in 0..tasks {
        let (send, text) = (send.clone(), text.clone());
        tokio::spawn(async move {
            let parsed = parse(&text);
            tokio::task::yield_now().await;
            let found = search(&text);
            let _ = send.send(parsed + found).await;
        });
    }
    drop(send);
    let mut sum = 0;
    while let Some(result) = receive.recv().await {
        sum += result;
    }
    sum
}

fn main() {
    let text = document(500);
    let mut sum = 0;
    for frames in [0, 50, 100] {
        for _ in 0..10 {
            sum += deeper(frames, &mut || parse(&text) + search(&text));
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime starts");
    sum += runtime.block_on(serve(document(100), 200));
    println!("{sum}");
}
