//! The workloads of the tests (`tests/victims/time/work.rs`) under pprof-rs: `accuracy WORKLOAD NUMBER HZ`.
//!
//! Prints what the workload noted, the process's CPU time while it was sampled, and a line `sampled FUNCTION NANOSECONDS` for each function that stacks contain, `sampled - NANOSECONDS` for all.

#[path = "../../../tests/victims/time/work.rs"]
mod work;

use std::collections::{BTreeMap, BTreeSet};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, name, number, hz] = &arguments[..] else { std::process::exit(2) };
    let hz: i32 = hz.parse().unwrap();
    let guard = pprof::ProfilerGuardBuilder::default().frequency(hz).build().unwrap();
    let before = work::clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    assert!(work::work(name, number.parse().ok()));
    let process = work::clock(libc::CLOCK_PROCESS_CPUTIME_ID) - before;
    let report = guard.report().build().unwrap();
    work::print_spent();
    println!("process - {process}");
    let period = 1_000_000_000 / hz as i64;
    let mut sampled: BTreeMap<String, i64> = BTreeMap::new();
    for (frames, count) in &report.data {
        let names = frames.frames.iter().flatten().map(|symbol| symbol.name());
        let functions: BTreeSet<String> =
            names.map(|name| name.rsplit("::").next().unwrap_or_default().to_owned()).collect();
        for function in functions.into_iter().chain(["-".to_owned()]) {
            *sampled.entry(function).or_insert(0) += *count as i64 * period;
        }
        *sampled.entry(format!("thread:{}", frames.thread_name)).or_insert(0) += *count as i64 * period;
    }
    for (function, nanos) in sampled {
        println!("sampled {function} {nanos}");
    }
}
