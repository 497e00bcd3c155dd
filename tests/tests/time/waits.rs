//! Waiting in system calls goes on as if nobody looked.

use profile_recorder_tests::carried::{Carried, headers};
use std::time::{Duration, Instant};

/// What came of one call: waits, waits that ended with EINTR, early ones, and times that a handler changed errno.
fn rows(printed: &str) -> Vec<(&str, [u64; 4])> {
    printed
        .lines()
        .filter(|line| *line != "ready")
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default();
            let numbers: Vec<u64> = words.map(|word| word.parse().unwrap_or_else(|_| panic!("{printed}"))).collect();
            (name, [numbers[0], numbers[1], numbers[2], numbers[3]])
        })
        .collect()
}

/// Seconds of each session; `WAITS_SECONDS` makes it a minute, or an hour.
fn seconds() -> u64 {
    std::env::var("WAITS_SECONDS").map_or(3, |seconds| seconds.parse().expect("WAITS_SECONDS is a number"))
}

fn tids(pid: i32) -> Vec<i32> {
    let names = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

#[test]
fn no_call_is_broken_off_by_a_session_of_any_kind() {
    for query in ["wall", "cpu", "offcpu"] {
        let mut carried = Carried::start("victim-waits", "", "");
        assert_eq!(carried.line(), "ready\n");
        // The first session takes the signal; before it, one from outside ends the process, as it does without the recorder.
        let (first, _) = carried.ask("cpu?seconds=0.1", "first");
        assert!(headers(first).contains("200 OK"));
        let (ask, _) = carried.ask(&format!("{query}?hz=1000&seconds={}", seconds()), "p.pb.gz");
        // Signals of the same number from outside, which nobody expects, to each thread in turn. (One to the process wakes a thread from its call, and another may take it meanwhile:
        // some calls end with EINTR then without any handler, and nobody can do anything about it.)
        let end = Instant::now() + Duration::from_secs(seconds());
        for turn in 0.. {
            let tids = tids(carried.pid());
            // SAFETY: the victim is a child that was not waited for.
            unsafe { libc::syscall(libc::SYS_tgkill, carried.pid(), tids[turn % tids.len()], libc::SIGPROF) };
            std::thread::sleep(Duration::from_millis(20));
            if Instant::now() > end {
                break;
            }
        }
        assert!(headers(ask).contains("200 OK"));
        let (printed, status) = carried.end();
        assert!(status.success(), "{status}");
        let rows = rows(&printed);
        assert_eq!(rows.len(), 19, "{printed}");
        for (name, [waits, interrupted, early, broken_errno]) in rows {
            assert!(waits > 5, "{name} under {query}: {printed}");
            assert_eq!((interrupted, early, broken_errno), (0, 0, 0), "{name} under {query}: {printed}");
        }
    }
}
