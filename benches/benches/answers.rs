//! How long the server takes to answer: `cargo bench -p profile-recorder-benches --bench answers [-- --quick]`
//!
//! This process allocates on 10,000 different stacks, every allocation recorded, and asks its own server over its Unix socket. `first byte` is from the connection to the first byte of the answer, in which
//! the store was copied and decoded, names were found and the format was written; `CPU` is what the recorder's threads took for it.

use profile_recorder::{RecordingAllocator, Server};
use profile_recorder_benches::figures::{Rounds, is_quick};
use profile_recorder_benches::stacks::descend;
use std::hint::black_box;
use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

#[global_allocator]
static ALLOC: RecordingAllocator = RecordingAllocator::system();

const STACKS: u64 = 10_000;
/// Of the functions that call each other.
const DEPTH: u32 = 20;

/// What is asked, and the most milliseconds that the first byte may take.
const QUESTIONS: [(&str, Option<f64>); 6] = [
    ("/debug/pprof/allocs?symbols=names", Some(50.0)),
    ("/debug/pprof/allocs?symbols=none", None),
    ("/debug/pprof/allocs", None),
    ("/debug/pprof/heap?symbols=names", None),
    ("/debug/pprof/allocs?symbols=names&format=collapsed", None),
    ("/health", None),
];

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s");
    let url = format!("unix://{}", socket.display());
    let server = Server::bind(&url).register(false).alloc_interval(NonZeroU64::new(1)).start();
    let _server = server.expect("the server starts");
    let mut kept = Vec::with_capacity(STACKS as usize);
    (0..STACKS).for_each(|seed| descend(DEPTH, seed, &mut |_| kept.push(black_box(Box::new(seed)))));
    println!(
        "First byte of an answer, ms, with {STACKS} stacks of {DEPTH} functions and more: of requests in turn the best and the median.\n"
    );
    println!("{:54} {:>7} {:>7} {:>8} {:>7} {:>9}", "", "best", "median", "at most", "CPU", "bytes");
    let mut columns: [(Rounds, Rounds, usize); QUESTIONS.len()] = Default::default();
    for _ in 0..if is_quick() { 1 } else { 15 } {
        for ((path, _), (first, cpu, length)) in QUESTIONS.iter().zip(&mut columns) {
            let before = cpu_ns();
            let (nanoseconds, answer) = ask(&socket, path);
            cpu.push((cpu_ns() - before) as f64);
            first.push(nanoseconds);
            *length = answer;
            // Sessions are begun at a limited rate.
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    for ((path, most), (first, cpu, length)) in QUESTIONS.iter().zip(&columns) {
        let most = most.map(|most| most.to_string()).unwrap_or_default();
        let [best, median, cpu] = [first.best(), first.median(), cpu.median()].map(|nanoseconds| nanoseconds / 1e6);
        println!("{path:54} {best:7.1} {median:7.1} {most:>8} {cpu:7.1} {length:9}");
    }
    drop(kept);
}

/// Nanoseconds until the first byte of an answer, and the answer's length.
fn ask(socket: &Path, path: &str) -> (f64, usize) {
    let start = Instant::now();
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("the server reads");
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("the server answers");
    let nanoseconds = start.elapsed().as_nanos() as f64;
    assert_eq!(&first, b"HTTP/1.0 200", "{path}");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    (nanoseconds, rest.len())
}

/// CPU time of the process, which only waits for its server meanwhile.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
