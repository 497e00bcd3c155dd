//! A plain program with threads, without any runtime: one computes, one sleeps, two wait for each other.
//!
//! ```sh
//! PROFILE_RECORDER_SERVER_URL_PATTERN='unix:///tmp/threads-{PID}.sock' cargo run --release -p profile-recorder-examples --bin threads &
//! curl --unix-socket /tmp/threads-*.sock 'http://localhost/debug/pprof/threads?debug=2'              # where each thread is
//! curl --unix-socket /tmp/threads-*.sock 'http://localhost/debug/pprof/profile?seconds=2&debug=1'    # only `computes` costs CPU time
//! curl --unix-socket /tmp/threads-*.sock -o wall.svg 'http://localhost/debug/pprof/wall?seconds=2&format=svg'
//! ```
//!
//! With `PROFILE_RECORDER_OUTPUT=/tmp/threads.svg` a flame graph is written when it ends, which it does after the seconds of its argument (60).

use std::hint::black_box;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

fn main() {
    let _server = profile_recorder::Server::from_env().start_or_warn(); // off unless the environment asks for it

    let seconds = std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (ping, pinged) = sync_channel(0);
    let (pong, ponged) = sync_channel(0);
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).expect("a thread starts")
    };
    let threads = [
        spawn("computes", Box::new(move || computes(end))),
        spawn("sleeps", Box::new(move || sleeps(end))),
        spawn("ping", Box::new(move || plays(end, &ping, &ponged))),
        spawn("pong", Box::new(move || plays(end, &pong, &pinged))),
    ];
    eprintln!("working for {seconds} s (pid {})", std::process::id());
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

#[inline(never)]
fn computes(end: Instant) {
    while Instant::now() < end {
        black_box((0..100_000_u64).fold(0, |sum, i| sum ^ i.wrapping_mul(i)));
    }
}

#[inline(never)]
fn sleeps(end: Instant) {
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Gives a ball to the other and waits until it comes back.
#[inline(never)]
fn plays(end: Instant, give: &SyncSender<Box<u64>>, take: &Receiver<Box<u64>>) {
    let wait = Duration::from_millis(50);
    while Instant::now() < end {
        let _ = give.try_send(Box::new(1));
        let _ = take.recv_timeout(wait);
    }
}
