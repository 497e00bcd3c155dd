//! `/alloc/stats`: the exact counters as JSON.

use layout::{Function, Live};
use profile::store::{Counters, Counts};
use serde_json::{Map, Value, json};

/// Every function that was called, and the totals of those that allocate.
pub(super) fn json(counters: &Counters) -> String {
    let counts = &counters.counts;
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
    let mut all = json!({
        "pid": std::process::id(),
        "allocations": allocations,
        "bytes_asked": bytes,
        "functions": functions,
    });
    if let Some(live) = counters.live {
        all["live_bytes"] = live.bytes.into();
        all["peak_live_bytes"] = live.peak_bytes.into();
        all["peak_after_seconds"] = (live.peak_after_ns as f64 / 1e9).into();
        all["live_bytes_are"] = if live.kind == Live::Allocated { "allocated" } else { "requested" }.into();
    }
    all.to_string()
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
    use profile::store::LiveMemory;

    #[test]
    fn functions_that_were_never_called_are_left_out() {
        let mut counters = Counters::default();
        counters.counts.calls[Function::Malloc as usize] = 3;
        counters.counts.bytes[Function::Malloc as usize] = 100;
        counters.counts.calls[Function::Free as usize] = 2;
        let json: Value = serde_json::from_str(&json(&counters)).unwrap();
        assert_eq!(json.get("live_bytes"), None);
        assert_eq!((json["allocations"].as_u64(), json["bytes_asked"].as_u64()), (Some(3), Some(100)));
        assert_eq!(json["functions"], json!({ "malloc": { "calls": 3, "bytes": 100 }, "free": { "calls": 2 } }));
    }

    #[test]
    fn live_memory_is_told_where_it_is_known() {
        let live = LiveMemory { kind: Live::Requested, bytes: 7, peak_bytes: 9, peak_after_ns: 1_500_000_000 };
        let counters = Counters { live: Some(live), ..Counters::default() };
        let json: Value = serde_json::from_str(&json(&counters)).unwrap();
        assert_eq!((&json["live_bytes"], &json["peak_live_bytes"]), (&7.into(), &9.into()));
        assert_eq!((&json["peak_after_seconds"], &json["live_bytes_are"]), (&1.5.into(), &"requested".into()));
    }
}
