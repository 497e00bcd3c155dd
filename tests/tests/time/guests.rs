//! Threads that `clone` makes and the C library does not know.

use super::truth::{Truth, below, below_where, by_label};
use profile_recorder_tests::resident::{Resident, get};
use profile_recorder_tests::{output, pprof, programs, run, scratch, text};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Kinds of thread in the victim, the first thread last.
const KINDS: [&str; 4] = ["shared", "own", "bare", "guests"];

/// CPU time of the threads of a kind.
fn spent(truth: &Truth, kind: &str) -> f64 {
    truth.all("thread").iter().filter(|(name, _)| name.split('-').next() == Some(kind)).map(|(_, nanos)| nanos).sum()
}

/// The function in which threads of a kind work.
fn function(kind: &str) -> String {
    format!(" {}_burns", if kind == "guests" { "main" } else { kind })
}

/// Each thread has its CPU time, at its own functions: whoever was found late has a bit less.
fn assert_cpu(profile: &Path, truth: &Truth, kinds: &[&str], part: f64) {
    let threads = by_label(profile, "cpu", "thread");
    for (name, nanos) in truth.all("thread").into_iter().filter(|(name, _)| kinds.iter().any(|k| name.starts_with(k))) {
        let found = threads.get(name).copied().unwrap_or(0.0);
        assert!(found > nanos * part - 5e6 && found < nanos * 1.02 + 5e6, "{name}: {found} of {nanos} ns: {threads:?}");
    }
    for kind in kinds {
        let (found, spent) = (below(profile, "cpu", &function(kind)), spent(truth, kind));
        assert!(found > spent * part * 0.97 - 5e6 && found < spent * 1.02 + 5e6, "{kind}: {found} of {spent} ns");
    }
}

/// Threads are on the CPU where they work, for as long as they do.
fn assert_wall(profile: &Path, truth: &Truth) {
    let threads = by_label(profile, "wall", "thread");
    for (name, _) in truth.all("thread") {
        assert!(threads.contains_key(name), "{name}: {threads:?}");
    }
    for kind in KINDS {
        let found = below_where("state=on-cpu", profile, "wall", &function(kind));
        let spent = spent(truth, kind);
        assert!(found > spent * 0.8 - 20e6 && found < spent * 1.1 + 20e6, "{kind}: {found} of {spent} ns");
    }
}

#[test]
fn threads_that_the_c_library_did_not_make_are_recorded_from_their_beginning() {
    let directory = scratch();
    let program = programs::compile_c("guests", directory.path());
    let profile = directory.path().join("p.pb.gz");
    for (mode, hz) in [("cpu", "99"), ("cpu", "1000"), ("wall", "1000"), ("cpu,wall", "1000"), ("cpu,heap", "1000")] {
        let record = ["record", "--mode", mode, "--hz", hz, "-o", profile.to_str().unwrap(), "--"];
        let recorded = output(run(&record).arg(&program));
        assert_eq!(recorded.status.code(), Some(0), "{mode}: {}", text(&recorded.stderr));
        let truth = Truth::of(&text(&recorded.stdout));
        if mode.contains("cpu") {
            let sum = pprof::total(&profile, "cpu") as f64;
            // The process's clock has the recorder's own thread in it, where there is one.
            let threads: f64 = truth.all("thread").iter().map(|(_, nanos)| nanos).sum();
            assert!(sum > threads * 0.99 && sum < truth.process() * 1.01 + 5e6, "{mode}: {sum} of {threads} ns");
            assert_cpu(&profile, &truth, &["shared", "own", "guests"], 0.99);
            // Nobody saw the system call that made the others: whoever looks at all threads finds them.
            let (found, bare) = (below(&profile, "cpu", " [unsampled]"), spent(&truth, "bare"));
            let expected = if mode.contains("wall") { 0.0..bare * 0.2 } else { bare * 0.97..bare * 1.05 + 10e6 };
            assert!(expected.contains(&found), "{mode}: {found} of {bare} ns");
        }
        if mode.contains("wall") {
            assert_wall(&profile, &truth);
        }
    }
}

/// Asks for these profiles at the same time of a process whose threads then begin to work; what it says.
fn asked(program: &Path, queries: &[(&str, &Path)]) -> Truth {
    for seconds in [4, 12, 40] {
        let mut running = Resident::start(Command::new(program).arg("wait"));
        let pid = running.child().id();
        let socket = running.socket(pid);
        let mut stdin = running.child().stdin.take().expect("piped");
        let mut stdout = BufReader::new(running.child().stdout.take().expect("piped"));
        let begun = Instant::now();
        let within = std::thread::scope(|scope| {
            for (query, to) in queries {
                let path = format!("/debug/pprof/{query}&seconds={seconds}");
                let socket = &socket;
                scope.spawn(move || std::fs::write(to, get(socket, &path)).expect("a file"));
            }
            std::thread::sleep(Duration::from_millis(600));
            stdin.write_all(b"\n").expect("the victim reads");
            let mut said = String::new();
            while !said.contains("process") {
                assert_ne!(stdout.read_line(&mut said).expect("the victim writes"), 0, "{said}");
            }
            (begun.elapsed() < Duration::from_secs(seconds)).then(|| Truth::of(&said))
        });
        if let Some(truth) = within {
            drop(stdin);
            let mut rest = String::new();
            stdout.read_to_string(&mut rest).expect("the victim ends");
            assert!(running.child().wait().is_ok_and(|status| status.code() == Some(1)), "{rest}");
            return truth;
        }
    }
    panic!("the work took more than 40 seconds");
}

#[test]
fn sessions_find_threads_that_the_c_library_did_not_make() {
    let directory = scratch();
    let program = programs::compile_c("guests", directory.path());
    let [cpu, wall] = ["cpu.pb.gz", "wall.pb.gz"].map(|name| directory.path().join(name));
    for queries in [
        &[("profile?hz=1000", cpu.as_path())][..],
        &[("wall?hz=1000", wall.as_path())],
        &[("profile?hz=250", cpu.as_path()), ("wall?hz=250", wall.as_path())],
    ] {
        let truth = asked(&program, queries);
        for (query, profile) in queries {
            if query.starts_with("profile") {
                // Those that begin in a session without the C library's function are found when threads are listed.
                assert_cpu(profile, &truth, &["shared", "own", "guests"], 0.95);
                assert_cpu(profile, &truth, &["bare-0"], 0.9);
            } else {
                assert_wall(profile, &truth);
            }
        }
    }
}
