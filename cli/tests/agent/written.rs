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
fn without_anybody_to_record_the_exit_code_says_so() {
    let place = Place::new();
    let ran = run(&mut agent(&place, &["-d", "1", "-o", "out"]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("nothing was recorded"), "{}", ran.stderr);
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
