//! `/alloc/stats`: the exact counters as JSON.

use layout::Function;
use profile::store::Counts;
use serde_json::{Map, Value, json};

/// Every function that was called, and the totals of those that allocate.
pub(super) fn json(counts: &Counts) -> String {
    let functions: Map<String, Value> = Function::ALL
        .into_iter()
        .filter(|function| counts.calls_of(*function) > 0)
        .map(|function| {
            let mut values = json!({ "calls": counts.calls_of(function) });
            if !function.releases() {
                values["bytes"] = counts.bytes_of(function).into();
            }
            (function.name().to_owned(), values)
        })
        .collect();
    let (allocations, bytes) = totals(counts);
    json!({
        "pid": std::process::id(),
        "allocations": allocations,
        "bytes_asked": bytes,
        "functions": functions,
    })
    .to_string()
}

/// Calls of the functions that allocate, and the bytes they were asked for.
pub(super) fn totals(counts: &Counts) -> (u64, u64) {
    let allocating = Function::ALL.into_iter().filter(|function| !function.releases());
    allocating.fold((0, 0), |(calls, bytes), function| {
        (calls.saturating_add(counts.calls_of(function)), bytes.saturating_add(counts.bytes_of(function)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_were_never_called_are_left_out() {
        let mut counts = Counts::default();
        counts.calls[Function::Malloc as usize] = 3;
        counts.bytes[Function::Malloc as usize] = 100;
        counts.calls[Function::Free as usize] = 2;
        let json: Value = serde_json::from_str(&json(&counts)).unwrap();
        assert_eq!((json["allocations"].as_u64(), json["bytes_asked"].as_u64()), (Some(3), Some(100)));
        assert_eq!(json["functions"], json!({ "malloc": { "calls": 3, "bytes": 100 }, "free": { "calls": 2 } }));
    }
}
