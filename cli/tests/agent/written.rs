//! Files on this machine.

use super::*;
use crate::fleet::{CPU_NS, Fleet};
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;

#[test]
fn a_cycle_leaves_all_processes_in_one_file_and_one_page() {
    let place = Place::new();
    let _fleet = Fleet::start(&place, 3);
    let ran = run(&mut agent(&place, &["-d", "1", "-o", "out", "--label", "env=prod"]));
    ran.assert_code(0);
    let col = fs::read_to_string(place.path("out/last_profile.col")).unwrap();
    let (head, lines) = col.split_once('\n').unwrap();
    let head: Value = serde_json::from_str(head.strip_prefix("# ").unwrap()).unwrap();
    assert_eq!(head["metadata"]["sampling_frequency"], 11);
    assert_eq!(head["metadata"]["sample_type"], "cpu");
    assert!(head["metadata"]["hostname"].is_string() && head["metadata"]["processors"].as_u64().unwrap() > 0, "{head}");
    assert!(head["metrics"]["mem_avg"].as_f64().unwrap() > 0.0, "{head}");
    // The fakes are one process of this machine, which is known by its socket.
    let application = &head["application_metadata"][1];
    assert!(application["exe"].as_str().unwrap().contains("python") && application["env"] == "prod", "{head}");
    let stacks: Vec<(&str, i64)> = lines
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(stack, value)| (stack, value.parse().unwrap()))
        .collect();
    assert_eq!(stacks.iter().map(|(_, value)| value).sum::<i64>(), 3 * CPU_NS, "{lines}");
    for (stack, value) in [("main;parse", 500_000_000), ("main;write", 200_000_000)] {
        let (found, of) = stacks.iter().find(|(found, _)| found.ends_with(stack)).unwrap();
        assert_eq!(*of, 3 * value);
        let fields: Vec<&str> = found.split(';').collect();
        assert!(fields[0] == "1" && fields[1].is_empty() && fields[2].starts_with("python"), "{found}");
        assert!(fields[3].starts_with("appid: python: ") && fields[3].contains("recorders.py"), "{found}");
    }
    assert!(fs::read_to_string(place.path("out/last_flamegraph.html")).unwrap().contains("</html>"));
    // What was written is read again, in the window in which it was recorded.
    place.run(&["convert", "out/last_profile.col", "-o", "again.json"]).assert_code(0);
    let again: Value = serde_json::from_str(&fs::read_to_string(place.path("again.json")).unwrap()).unwrap();
    assert_eq!(again["duration_ns"], 1_000_000_000, "{again}");
}

#[test]
fn an_agent_that_is_to_end_writes_what_recorders_answer_in_time() {
    let place = Place::new();
    let _fleet = Fleet::start_partly_old(&place, 3, 1);
    let mut command =
        agent(&place, &["-c", "-d", "3600", "-o", "out", "--sink", "directory=sent", "--listen", "127.0.0.1:0"]);
    let config = fs::read_to_string(place.path("agent.toml")).unwrap();
    fs::write(place.path("agent.toml"), format!("drain = 2\n{config}")).unwrap();
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut said).unwrap();
    let (_, address) = said.trim_end().rsplit_once("address=").unwrap();
    wait_until("three processes are recorded", || {
        get(address, "/metrics").is_some_and(|metrics| metrics.contains("profrec_agent_processes 3\n"))
    });
    signal(&child, Signal::TERM);
    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains("some recorders did not answer in time"), "{said}");
    let col = fs::read_to_string(place.path("out/last_profile.col")).unwrap();
    let values = col.lines().skip(1).map(|line| line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap());
    assert_eq!(values.sum::<i64>(), 2 * CPU_NS, "{col}");
    assert_eq!(fs::read_dir(place.path("sent")).unwrap().count(), 2);
}

#[test]
fn a_sample_that_is_to_end_is_what_the_recorder_has_by_then() {
    use std::os::unix::process::ExitStatusExt;
    let place = Place::new();
    let _fleet = Fleet::start_partly_old(&place, 2, 1);
    let start = |socket: &str, file: &str| {
        let socket = place.path(socket);
        let sample = place.command(&["sample", socket.to_str().unwrap(), "--seconds", "3600", "-o", file]);
        // Who starts the tests in the background may have had SIGINT ignored for them.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT", "--unset=LD_PRELOAD"])
            .arg(sample.get_program())
            .args(sample.get_args())
            .stdin(Stdio::null());
        command.envs(sample.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = command.current_dir(sample.get_current_dir().unwrap()).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        wait_until("it waits for signals", || {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
            u64::from_str_radix(caught, 16).unwrap() & 1 << (Signal::INT.as_raw() - 1) != 0
        });
        signal(&child, Signal::INT);
        child
    };
    // The fakes answer in one format.
    assert_eq!(start("fake-0002.sock", "a.profrec").wait().unwrap().code(), Some(0));
    assert_eq!(fs::read(place.path("a.profrec")).unwrap(), fs::read(place.path("fake.profrec")).unwrap());
    // Of one that cannot be told, a second signal ends the wait, and there is no file.
    let mut waiting = start("fake-0001.sock", "b.profrec");
    std::thread::sleep(Duration::from_millis(200));
    assert!(waiting.try_wait().unwrap().is_none());
    signal(&waiting, Signal::INT);
    assert_eq!(waiting.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
    assert!(!place.path("b.profrec").exists());
}

#[test]
fn without_anybody_to_record_the_exit_code_says_so() {
    let place = Place::new();
    let ran = run(&mut agent(&place, &["-d", "1", "-o", "out"]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("nothing was recorded"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("cannot"), "{}", ran.stderr);
}

#[test]
fn a_configuration_is_checked_and_read_again_and_the_agent_tells_how_it_is() {
    let place = Place::new();
    let _fleet = Fleet::start(&place, 2);
    let checked = run(&mut agent(&place, &["-o", "out", "--sink", "directory=d", "--check"]));
    checked.assert_code(0);
    assert!(checked.stdout.contains("2 processes could be recorded now\n  fake-0001 at /"), "{}", checked.stdout);
    assert!(!place.path("out").exists() && !place.path("state").exists(), "nothing is made by a check");
    run(&mut agent(&place, &[])).assert_refused(2, &["profiles would go nowhere"]);

    let mut command = agent(&place, &["-c", "-d", "1", "--listen", "127.0.0.1:0", "--log-json"]);
    let config = fs::read_to_string(place.path("agent.toml")).unwrap();
    let with = |directory: &str| format!("{config}\n[output]\ndirectory = '{directory}'\nrotating = true\n");
    fs::write(place.path("agent.toml"), with("first")).unwrap();
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let (sender, lines) = std::sync::mpsc::channel::<Value>();
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let reader = std::thread::spawn(move || {
        for line in std::io::BufRead::lines(stderr).map_while(Result::ok) {
            let Ok(message) = serde_json::from_str(&line) else { break };
            drop(sender.send(message));
        }
    });
    let said = |text: &str| loop {
        let message = lines.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("'{text}' was not said"));
        if message["message"].as_str().is_some_and(|said| said.contains(text)) {
            return message;
        }
    };
    let address = said("health and metrics")["address"].as_str().unwrap().to_owned();
    said("saved");
    assert_eq!(get(&address, "/health").as_deref(), Some("OK\n"));
    wait_until("the first cycle is counted", || {
        let metrics = get(&address, "/metrics").unwrap();
        let received = metrics.lines().find_map(|line| line.strip_prefix("profrec_agent_profiles_total "));
        received.and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count >= 2)
    });
    fs::write(place.path("agent.toml"), "frequency = 0").unwrap();
    signal(&child, Signal::HUP);
    assert!(said("is not used")["error"].as_str().unwrap().contains("frequency 0"));
    fs::write(place.path("agent.toml"), with("second")).unwrap();
    signal(&child, Signal::HUP);
    said("was read again");
    wait_until("files in the new place", || place.path("second/last_profile.col").exists());
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    reader.join().unwrap();
    let profiles = |directory: &str| {
        let names = fs::read_dir(place.path(directory)).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("profile_")).count()
    };
    assert_eq!(profiles("first"), 2, "of many cycles the last is kept: stacks and page");
}
