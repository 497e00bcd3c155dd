//! The work: parses a document to `Value`s and drops them, as often as the argument says.

use serde_json::{Value, json};
use std::hint::black_box;

/// Does the work.
///
/// # Panics
/// If the argument is no number.
pub fn work() {
    let rounds: u32 = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).expect("how many rounds");
    let text = document();
    for _ in 0..rounds {
        let value: Value = serde_json::from_str(black_box(&text)).expect("the document is valid");
        drop(black_box(value));
    }
}

fn document() -> String {
    let item = |i: usize| json!({"id": i, "name": format!("item {i}"), "tags": ["a", "b", i.to_string()], "nested": {"x": [1, 2, {"y": null}], "label": "deeper"}});
    Value::from((0..9_600).map(item).collect::<Vec<_>>()).to_string()
}
