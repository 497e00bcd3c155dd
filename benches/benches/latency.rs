//! What recording does to a service's latency: `cargo bench -p profile-recorder-benches --bench latency [-- --quick]`
//!
//! The example `axum-service` answers requests on connections that are kept, at a fixed rate that leaves it idle half of the time. Windows without and with a recording take turns, and each pair of neighbours
//! gives a ratio: what happens on the machine meanwhile meets both. `recording` is a session of CPU time at 99 Hz and a scrape of the heap once a second, as a continuous profiler asks for.

use profile_recorder_benches::figures::{Rounds, is_quick};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Connections, and requests a second on each.
const CLIENTS: usize = 2;
const RATE: u32 = 200;
/// What each request asks: half a millisecond of work.
const PATH: &str = "/orders?count=300";

const PERCENTILES: [(&str, f64); 4] = [("p50", 0.50), ("p90", 0.90), ("p99", 0.99), ("p99.9", 0.999)];

fn main() {
    let (pairs, window) = if is_quick() { (1, Duration::from_secs(2)) } else { (30, Duration::from_secs(6)) };
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s");
    let service = Service::start(&socket);
    // Pages are kept and caches filled.
    latencies(&service.address, Duration::from_secs(2));
    let mut plain: [Rounds; PERCENTILES.len()] = Default::default();
    let mut recorded = plain.clone();
    let mut ratios = plain.clone();
    let mut cpu = [Rounds::default(), Rounds::default()];
    for pair in 0..pairs {
        let mut measured = [(Vec::new(), 0.0), (Vec::new(), 0.0)];
        // Which is first alternates, so that a drift of the machine favours neither.
        for turn in 0..2 {
            let records = (pair + turn) % 2;
            let before = service.cpu_ns();
            let waited = if records == 1 {
                while_recording(&socket, window, || latencies(&service.address, window))
            } else {
                latencies(&service.address, window)
            };
            measured[records] = (waited, service.cpu_ns() - before);
        }
        let [(without, cpu_without), (with, cpu_with)] = measured;
        cpu[0].push(cpu_without / without.len() as f64);
        cpu[1].push(cpu_with / with.len() as f64);
        for (i, (_, share)) in PERCENTILES.iter().enumerate() {
            let [without, with] = [&without, &with].map(|sorted| percentile(sorted, *share));
            plain[i].push(without);
            recorded[i].push(with);
            ratios[i].push(with / without);
        }
    }
    println!(
        "Latency of {PATH} at {} requests a second, without and with a CPU session at 99 Hz and a heap profile every second: {pairs} pairs of {} s.\n",
        CLIENTS as u32 * RATE,
        window.as_secs()
    );
    println!("        without us: best, median    recording: best, median    ratio of pairs, median    best to best");
    for (i, (name, _)) in PERCENTILES.iter().enumerate() {
        let [without, with] = [&plain[i], &recorded[i]];
        println!(
            "{name:6} {:14.0} {:10.0} {:16.0} {:10.0} {:22.3} {:18.3}",
            without.best() / 1e3,
            without.median() / 1e3,
            with.best() / 1e3,
            with.median() / 1e3,
            ratios[i].median(),
            with.best() / without.best()
        );
    }
    println!(
        "\nCPU time of the process a request: {:.3} of the time without, medians.",
        cpu[1].median() / cpu[0].median()
    );
}

/// A running service; ended when dropped.
struct Service {
    child: Child,
    address: String,
}

impl Service {
    fn start(socket: &Path) -> Self {
        let mut child = Command::new(example())
            .env("LISTEN", "127.0.0.1:0")
            .env("PROFILE_RECORDER_SERVER_URL", format!("unix://{}", socket.display()))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix("http://")?.split('/').next()?.to_owned()));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address.expect("the service says its address") }
    }

    /// CPU time of the process, in nanoseconds.
    fn cpu_ns(&self) -> f64 {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: the kernel's clock of a child that was not waited for yet, written to a number and a timespec.
        let told = unsafe {
            libc::clock_getcpuclockid(self.child.id() as libc::pid_t, &mut clock)
                + libc::clock_gettime(clock, &mut time)
        };
        assert_eq!(told, 0, "the process runs");
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn example() -> PathBuf {
    let own = std::env::current_exe().expect("a benchmark has a path");
    let target = own.ancestors().nth(3).expect("target directory");
    let arguments = [
        "build",
        "--quiet",
        "--release",
        "--package",
        "profile-recorder-examples",
        "--bin",
        "axum-service",
        "--target-dir",
    ];
    let status =
        Command::new(env!("CARGO")).args(arguments).arg(target).current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(status.is_ok_and(|status| status.success()), "the example cannot be built");
    target.join("release/axum-service")
}

/// Nanoseconds of each request of this time, sorted: from the moment at which it was due, so that one that waits for a slow one before it is slow as well.
fn latencies(address: &str, window: Duration) -> Vec<f64> {
    let pause = Duration::from_secs(1) / RATE;
    let client = |number: usize| {
        let mut stream = BufReader::new(TcpStream::connect(address).expect("the service listens"));
        stream.get_ref().set_nodelay(true).expect("a socket");
        let mut waited = Vec::with_capacity(window.as_millis() as usize);
        let begun = Instant::now() + pause / CLIENTS as u32 * number as u32;
        for request in 0.. {
            let due = begun + pause * request;
            if due.saturating_duration_since(begun) >= window {
                break;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            ask(&mut stream);
            waited.push(due.elapsed().as_nanos() as f64);
        }
        waited
    };
    let mut all: Vec<f64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    all.sort_by(f64::total_cmp);
    all
}

/// One request on a connection that is kept.
fn ask(stream: &mut BufReader<TcpStream>) {
    let request = format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.get_ref().write_all(request.as_bytes()).expect("the service reads");
    let (mut length, mut line) = (0, String::new());
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).expect("the service answers");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a whole answer");
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place).or(sorted.last()).copied().unwrap_or(f64::NAN)
}

/// Does the work while a CPU session runs and the heap is scraped once a second.
fn while_recording<T>(socket: &Path, window: Duration, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| scrape(socket, &format!("/debug/pprof/profile?hz=99&seconds={}", window.as_secs())));
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                scrape(socket, "/debug/pprof/heap");
                std::thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()).min(window));
            }
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        result
    })
}

fn scrape(socket: &Path, path: &str) {
    let mut stream = UnixStream::connect(socket).expect("the recorder listens");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("the recorder reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the recorder answers");
    assert!(
        answer.starts_with(b"HTTP/1.0 200"),
        "{path}: {}",
        String::from_utf8_lossy(&answer[..answer.len().min(300)])
    );
}
