//! Sessions of several clients, and sessions that end before their time.

use super::truth::{below, by_label};
use profile_recorder_tests::carried::{Carried, headers};
use profile_recorder_tests::pprof;
use std::time::{Duration, Instant};

fn pause() {
    std::thread::sleep(Duration::from_millis(500));
}

#[test]
fn clients_share_a_session_of_one_rate_and_others_are_told_when_to_come_again() {
    let mut carried = Carried::start("victim-spends", "split 5", "");
    let (long, long_profile) = carried.ask("profile?seconds=4&hz=99", "long.pb.gz");
    pause();
    carried.go();
    let (short, short_profile) = carried.ask("profile?seconds=1&hz=99", "short.pb.gz");
    // Elapsed time is another matter, and can be had at the same time at a rate of its own.
    let (wall, wall_profile) = carried.ask("wall?seconds=1&hz=50", "wall.pb.gz");
    let (refused, _) = carried.ask("profile?seconds=1&hz=100", "refused");
    let refused = headers(refused);
    assert!(refused.contains("409"), "{refused}");
    let retry = refused.lines().find_map(|line| line.to_lowercase().strip_prefix("retry-after: ").map(str::to_owned));
    let retry: u64 = retry.unwrap_or_else(|| panic!("{refused}")).trim().parse().expect("seconds");
    assert!((1..=4).contains(&retry), "{retry}");
    for (ask, profile, column) in
        [(short, short_profile, "cpu"), (wall, wall_profile, "wall"), (long, long_profile, "cpu")]
    {
        let answer = headers(ask);
        assert!(answer.contains("200 OK"), "{answer}");
        assert!(pprof::total(&profile, column) > 0, "{column}");
        assert!(below(&profile, column, "::half") > 0.0, "{column}");
    }
    // At another rate, once nobody samples.
    let (later, _) = carried.ask("profile?seconds=0.2&hz=100", "later");
    assert!(headers(later).contains("200 OK"));
}

/// Threads that sleep have turns to be looked at, of some seconds if there are thousands: who comes in the middle of another's session has their time up to that moment left out, and at the end counted.
#[test]
fn whoever_shares_a_session_sees_the_time_of_its_own_window() {
    const THREADS: usize = 5000;
    let mut carried = Carried::start("victim-spends", &format!("waiting {THREADS}"), "");
    carried.go();
    assert_eq!(carried.line(), "ready\n");
    let (mut long, _) = carried.ask("wall?seconds=60&hz=20", "long.pb.gz");
    // Until they are known to sleep.
    std::thread::sleep(Duration::from_secs(3));
    let asked = Instant::now();
    let (short, profile) = carried.ask("wall?seconds=1&hz=20", "short.pb.gz");
    let answer = headers(short);
    let most = asked.elapsed().as_nanos() as f64;
    assert!(answer.contains("200 OK"), "{answer}");
    let threads = by_label(&profile, "wall", "thread");
    for n in 0..THREADS {
        let time = threads.get(&format!("waiting-{n}")).copied().unwrap_or(0.0);
        assert!(time > 0.98e9 && time <= most, "waiting-{n}: {time} ns of a second, within {most}");
    }
    drop(carried);
    let _ = long.wait();
}

#[test]
fn a_process_ends_in_the_middle_of_a_session_as_it_always_does() {
    for query in ["profile?seconds=60&hz=1000", "wall?seconds=60&hz=1000"] {
        let mut carried = Carried::start("victim-waits", "", "");
        assert_eq!(carried.line(), "ready\n");
        let (mut ask, _) = carried.ask(query, "p.pb.gz");
        pause();
        let (printed, status) = carried.end();
        assert!(status.success(), "{query}: {status}");
        assert_eq!(printed.lines().count(), 19, "{printed}");
        let _ = ask.wait();
    }
}

/// Whoever looks at time does not have allocations sampled that were switched off.
#[test]
fn sessions_of_time_leave_the_sampling_of_allocations_off() {
    for (interval, expected) in [("off", 0), ("64KiB", 64 << 10)] {
        let before = format!("export PROFILE_RECORDER_ALLOC_INTERVAL={interval};");
        let carried = Carried::start("victim-spends", "split 5", &before);
        for query in ["profile?seconds=0.2", "wall?seconds=0.2"] {
            let (time, _) = carried.ask(query, "time.pb.gz");
            assert!(headers(time).contains("200 OK"));
        }
        let (allocs, profile) = carried.ask("allocs?format=json", "allocs.json");
        assert!(headers(allocs).contains("200 OK"));
        let profile: serde_json::Value =
            serde_json::from_slice(&std::fs::read(profile).expect("an answer")).expect("JSON");
        assert_eq!(profile["period"], expected, "{interval}: {profile}");
    }
}
