//! A Rust service with the library answers curl and `go tool pprof` while it works.

#[path = "service/agent.rs"]
mod agent;
#[path = "service/clients.rs"]
mod clients;
#[path = "service/crowd.rs"]
mod crowd;
#[path = "service/forked.rs"]
mod forked;
#[path = "service/pressure.rs"]
mod pressure;
#[path = "service/resident.rs"]
mod resident;
#[path = "service/top.rs"]
mod top;

use profile_recorder_tests::service::Service;
use profile_recorder_tests::{output, pprof, scratch, text};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn curl(socket: &Path, arguments: &[&str], path: &str) -> Vec<u8> {
    let answer = output(
        Command::new("curl")
            .args(["-sS", "--fail-with-body", "--unix-socket"])
            .arg(socket)
            .args(arguments)
            .arg(format!("http://localhost{path}")),
    );
    assert!(answer.status.success(), "{path}: {}{}", text(&answer.stderr), text(&answer.stdout));
    answer.stdout
}

fn cumulative(top: &str, name: &str) -> f64 {
    let line = top.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name} in:\n{top}"));
    let percent = line.split_whitespace().nth(4).and_then(|value| value.strip_suffix('%'));
    percent.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn curl_gets_samples_and_profiles_over_the_unix_socket() {
    // Some two megabytes are live: enough samples of them to be sure of what a profile shows.
    let (service, socket, directory) = Service::start_at_socket(&[("PROFILE_RECORDER_ALLOC_INTERVAL", "16KiB")]);

    // Long enough to see the service work and wait where processors are scarce.
    let body = r#"{"numberOfSamples":200,"timeInterval":"10 ms"}"#;
    let samples = text(&curl(&socket, &["-X", "POST", "-d", body], "/sample"));
    for name in ["tokio", "epoll_wait", "parse_json"] {
        assert!(samples.contains(name), "{name}: {samples:.3000}");
    }

    assert!(!samples.contains("frame pointer unknown"), "blocked threads are walked to their roots:\n{samples}");

    for (path, column, name) in [
        ("/debug/pprof/profile?seconds=2", "cpu", "parse_json"),
        ("/debug/pprof/allocs", "alloc_space", "make_json"),
        ("/debug/pprof/heap", "inuse_space", "keep"),
        ("/debug/pprof/allocs?seconds=1&interval=1", "alloc_objects", "render_page"),
    ] {
        let profile = directory.path().join("p.pb.gz");
        std::fs::write(&profile, curl(&socket, &[], path)).unwrap();
        let top = pprof::go(
            &["-top", "-cum", "-nodecount=500", &format!("-sample_index={column}")],
            profile.to_str().unwrap(),
        );
        assert!(cumulative(&top, name) > 5.0, "{path}:\n{top}");
        assert!(pprof::total(&profile, column) > 0, "{path}");
    }
    assert!(text(&curl(&socket, &[], "/alloc/stats")).contains("alloc"));
    assert_eq!(text(&curl(&socket, &[], "/health")).trim(), "OK");
    assert!(service.ask("/orders?count=3").contains("customer 2"), "the service still works");
    drop(service);
}

/// Another user's programs get one clear line.
#[test]
fn somebody_else_is_told_whom_the_socket_answers() {
    let (_service, socket, directory) = Service::start_at_socket(&[]);
    let allow = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let profrec = directory.path().join("profrec");
    profile_recorder_tests::place_program(profile_recorder_tests::profrec(), &profrec);
    allow(directory.path(), 0o777);
    // SAFETY: asks for a number.
    let mut command = if unsafe { libc::geteuid() } == 0 {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(&profrec);
        command
    } else {
        // Nobody but root can be somebody else; to be refused is the same.
        allow(&socket, 0);
        Command::new(&profrec)
    };
    let refused = output(command.arg("sample").arg(&socket).args(["--seconds", "1"]).current_dir(directory.path()));
    assert_eq!(refused.status.code(), Some(1));
    let line = format!(
        "error: cannot connect to {}: permission denied; a socket answers its owner and root alone; run as that user\n",
        socket.display()
    );
    assert_eq!(text(&refused.stderr), line);
}

#[test]
fn go_pprof_fetches_by_url() {
    let directory = scratch();
    let registry = directory.path().join("profile-recorder");
    let service = Service::start(&[
        ("PROFILE_RECORDER_SERVER_URL", "http://127.0.0.1:0"),
        ("PROFILE_RECORDER_ALLOC_INTERVAL", "16KiB"),
        ("XDG_RUNTIME_DIR", directory.path().to_str().unwrap()),
    ]);
    let entry = std::fs::read_to_string(registry.join(format!("{}.json", service.pid()))).expect("the registry's file");
    let entry: serde_json::Value = serde_json::from_str(&entry).unwrap();
    let url = entry["url"].as_str().unwrap();
    let top = pprof::go(&["-top", "-cum", "-nodecount=500"], &format!("{url}/debug/pprof/profile?seconds=2"));
    assert!(top.contains("Type: cpu") && cumulative(&top, "parse_json") > 5.0, "{top}");
    let top = pprof::go(
        &["-top", "-cum", "-nodecount=500", "-sample_index=alloc_objects"],
        &format!("{url}/debug/pprof/allocs"),
    );
    assert!(cumulative(&top, "make_json") > 5.0, "{top}");
    let top = pprof::go(&["-top", "-cum", "-nodecount=500"], &format!("{url}/debug/pprof/heap"));
    assert!(top.contains("Type: inuse_space") && cumulative(&top, "keep") > 5.0, "{top}");
}

#[test]
fn profrec_finds_the_service_and_asks_it_by_pid_socket_and_url() {
    let directory = scratch();
    let url = format!("unix://{}/s.sock", directory.path().display());
    let runtime = directory.path().to_str().unwrap();
    let service = Service::start(&[("PROFILE_RECORDER_SERVER_URL", &url), ("XDG_RUNTIME_DIR", runtime)]);
    let profrec = |arguments: &[&str]| {
        let mut command = Command::new(profile_recorder_tests::profrec());
        output(command.args(arguments).env("XDG_RUNTIME_DIR", runtime).current_dir(directory.path()))
    };
    let pid = service.pid().to_string();
    let list = text(&profrec(&["list"]).stdout);
    let row = list.lines().find(|line| line.ends_with(&url)).unwrap_or_else(|| panic!("{list}"));
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), [&pid, "axum-service", &url]);
    let json: serde_json::Value = serde_json::from_slice(&profrec(&["list", "--json"]).stdout).unwrap();
    assert!(
        json.as_array().unwrap().iter().any(|entry| entry["pid"] == service.pid() && entry["name"] == "axum-service")
    );
    let socket = format!("{runtime}/s.sock");
    for (number, target) in [pid.as_str(), &socket, &url].into_iter().enumerate() {
        let file = format!("{number}.folded");
        let answer = profrec(&["sample", target, "--mode", "wall", "--seconds", "1", "-o", &file]);
        assert!(answer.status.success(), "{target}: {}", text(&answer.stderr));
        assert!(std::fs::read_to_string(directory.path().join(&file)).unwrap().contains("epoll_wait"), "{target}");
    }
    let answer = profrec(&["sample", &pid, "--seconds", "1", "-o", "cpu.pb.gz"]);
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    assert!(pprof::total(&directory.path().join("cpu.pb.gz"), "cpu") > 0);
}
