//! What recording does to a service's latency: `cargo bench -p profile-recorder-benches --bench latency [-- --quick]`
//!
//! The example `axum-service` answers requests on connections that are kept, at a fixed rate that leaves it idle half of the time. Windows without a recording, without one again (the control: what the machine's noise makes of
//! nothing) and with one take turns: what happens on the machine meanwhile meets all. `recorded` is a session of CPU time at 99 Hz and a scrape of the heap once a second, as a continuous profiler asks for.

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

/// Kinds of windows, in turn.
const WITHOUT: usize = 0;
const CONTROL: usize = 1;
const RECORDED: usize = 2;

fn main() {
    let (rounds, window) = if is_quick() { (1, Duration::from_secs(2)) } else { (30, Duration::from_secs(6)) };
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s");
    let service = Service::start(&socket);
    // Pages are kept and caches filled.
    latencies(&service.address, Duration::from_secs(2));
    let mut all: [Vec<f64>; 3] = Default::default();
    // Of each percentile, the ratios of a round: of the control, and of what was recorded.
    let mut ratios: [[Rounds; 3]; PERCENTILES.len()] = Default::default();
    let mut cpu: [Rounds; 3] = Default::default();
    for round in 0..rounds {
        let mut measured: [Vec<f64>; 3] = Default::default();
        // Which is first changes, so that a drift of the machine favours none.
        for turn in 0..3 {
            let kind = (round + turn) % 3;
            let before = service.cpu_ns();
            let waited = if kind == RECORDED {
                while_recording(&socket, window, || latencies(&service.address, window))
            } else {
                latencies(&service.address, window)
            };
            cpu[kind].push((service.cpu_ns() - before) / waited.len() as f64);
            measured[kind] = waited;
        }
        for ((_, share), ratios) in PERCENTILES.iter().zip(&mut ratios) {
            let without = percentile(&measured[WITHOUT], *share);
            for kind in [CONTROL, RECORDED] {
                ratios[kind].push(percentile(&measured[kind], *share) / without);
            }
        }
        all.iter_mut().zip(measured).for_each(|(all, measured)| all.extend(measured));
    }
    all.iter_mut().for_each(|all| all.sort_by(f64::total_cmp));
    println!(
        "Latency of {PATH} at {} requests a second, without and with a CPU session at 99 Hz and a heap profile every second: {rounds} rounds of three windows of {} s.\n",
        CLIENTS as u32 * RATE,
        window.as_secs()
    );
    println!("               all requests, us                  ratio to without     median ratio of the rounds");
    println!("         without   control  recorded           control  recorded           control  recorded");
    for ((name, share), ratios) in PERCENTILES.iter().zip(&ratios) {
        let [without, control, recorded] = all.each_ref().map(|all| percentile(all, *share));
        println!(
            "{name:6} {:9.0} {:9.0} {:9.0} {:17.3} {:9.3} {:17.3} {:9.3}",
            without / 1e3,
            control / 1e3,
            recorded / 1e3,
            control / without,
            recorded / without,
            ratios[CONTROL].median(),
            ratios[RECORDED].median()
        );
    }
    let [without, control, recorded] = cpu.each_ref().map(Rounds::median);
    println!(
        "\nCPU time of the process a request, medians, of the time without: control {:.3}, recorded {:.3}.",
        control / without,
        recorded / without
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
