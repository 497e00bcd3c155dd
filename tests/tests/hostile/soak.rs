//! Sessions of all kinds at once, over and over, in a program that does everything they are known to break.

use profile_recorder_tests::carried::{Carried, headers};
use profile_recorder_tests::{programs, scratch};
use std::time::{Duration, Instant};

/// How long: a minute, or what `SOAK_SECONDS` says.
fn duration() -> Duration {
    let seconds =
        std::env::var("SOAK_SECONDS").map_or(60, |seconds| seconds.parse().expect("SOAK_SECONDS is a number"));
    Duration::from_secs(seconds)
}

#[test]
fn sessions_of_all_kinds_are_survived_while_another_profiler_runs() {
    let directory = scratch();
    let library = directory.path().join("thrown.so");
    programs::gcc(Some("time/thrown.cc"), &["-shared", "-fPIC", "-lstdc++"], &library);
    // jemalloc walks stacks itself, by libgcc, inside allocations.
    let before = "export _RJEM_MALLOC_CONF=prof:true,prof_active:true,lg_prof_sample:14;";
    let carried = Carried::start("victim-soak", library.to_str().unwrap(), before);
    let end = Instant::now() + duration();
    let mut sessions = 0;
    while Instant::now() < end {
        let queries =
            ["profile?hz=1000&seconds=2", "wall?hz=1000&seconds=2", "heap?seconds=1", "allocs?interval=1&seconds=1"];
        let asked = queries.map(|query| carried.ask(query, &format!("{}.pb.gz", &query[..4])));
        for (ask, profile) in asked {
            let answer = headers(ask);
            assert!(
                answer.contains("200 OK"),
                "{answer}: {}",
                String::from_utf8_lossy(&std::fs::read(profile).unwrap())
            );
            sessions += 1;
        }
    }
    let (said, status) = carried.end();
    assert!(status.success(), "{status}: {said}");
    println!("{sessions} sessions; {}", said.replace('\n', ", "));
    let times: Vec<u64> = said.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
    assert!(times.len() == 6 && times.iter().all(|times| *times > 10), "{said}");
}
