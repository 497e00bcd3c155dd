//! Three real programs, collected by one agent into one file: redis and Python with the preload library, and a Rust service with its own.

use profile_recorder_tests::resident::Resident;
use profile_recorder_tests::service::Service;
use profile_recorder_tests::{output, profrec, programs, scratch, text};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

const PYTHON: &str = "import hashlib
while True: hashlib.pbkdf2_hmac('sha256', b'x', b'y', 1000)";

fn redis(port: u16) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"]);
    command
}

#[test]
fn three_real_programs_are_one_flame_graph() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (redis, mut python) =
        (Resident::start(&mut redis(port)), Resident::start(Command::new(programs::python()).args(["-c", PYTHON])));
    let (_service, service_socket, _directory) = Service::start_at_socket(&[]);
    let mut load = Command::new("redis-benchmark")
        .args(["-p", &port.to_string(), "-q", "-l", "-t", "set,lpush", "-P", "16"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("apt-get install redis-tools");
    let directory = scratch();
    let python_pid = python.child().id();
    let sockets = [redis.directory(), python.directory(), service_socket.parent().unwrap()]
        .map(|directory| format!("\"{}/*.sock\"", directory.display()))
        .join(", ");
    let config = directory.path().join("agent.toml");
    std::fs::write(&config, format!("registry = false\nfrequency = 99\n[[targets]]\nsockets = [{sockets}]\n")).unwrap();
    let out = directory.path().join("out");
    let ran = output(Command::new(profrec()).args(["agent", "-d", "3", "--config"]).arg(&config).arg("-o").arg(&out));
    let _ = load.kill();
    let _ = load.wait();
    assert!(ran.status.success(), "{}", text(&ran.stderr));

    let col = std::fs::read_to_string(out.join("last_profile.col")).unwrap();
    let total = |process: &str, function: &str| -> f64 {
        let of_process = |line: &&str| {
            line.split(';').nth(2).is_some_and(|comm| comm.starts_with(process)) && line.contains(function)
        };
        let values =
            col.lines().skip(1).filter(of_process).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum::<f64>() / 1e9
    };
    // Each was busy, in code that only it has.
    for (process, function) in
        [("redis-server", "aeMain"), ("axum-service", "axum"), ("python", "_PyEval_EvalFrameDefault")]
    {
        println!("{process}: {:.2} s, of which {function} {:.2} s", total(process, ""), total(process, function));
        assert!(
            total(process, "") > 0.05 && total(process, function) > 0.5 * total(process, ""),
            "{process} in\n{col}"
        );
    }
    assert!(col.contains(&format!("\"pid\":\"{python_pid}\"")), "{}", col.lines().next().unwrap_or_default());
    assert!(col.contains(";appid: native: redis-server (/usr/bin/redis-"), "{col}");
    renders(&out.join("last_profile.col"));
}

/// The flame graph of Brendan Gregg's own script.
fn renders(col: &Path) {
    let script = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl";
    assert!(Path::new(script).exists(), "apt-get install libdevel-nytprof-perl");
    let drawn = output(Command::new("perl").arg(script).arg(col));
    // The line of metadata is no stack, which the script tells.
    assert!(drawn.status.success() && text(&drawn.stderr).contains("Ignored 1 lines"), "{}", text(&drawn.stderr));
    for frame in ["redis-server", "axum-service", "aeMain"] {
        assert!(text(&drawn.stdout).contains(&format!("<title>{frame} (")), "{frame} is in no frame");
    }
}
