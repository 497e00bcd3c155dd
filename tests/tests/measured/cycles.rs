//! Servers that come and go leave nothing behind: no descriptor, no thread, no block, no byte.

use profile_recorder::Server;
use profile_recorder_tests::resident::get;
use profile_recorder_tests::{output, scratch, text};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// The system's allocator, which knows how many blocks and bytes are live, whoever asked for them: the recorder's own among them.
pub(super) struct Counting;

static BLOCKS: AtomicI64 = AtomicI64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

fn count(blocks: i64, bytes: i64) {
    BLOCKS.fetch_add(blocks, Ordering::Relaxed);
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: every block comes from the system's allocator and goes back to it with its own layout.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise is passed on, here and below.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-1, -(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(0, size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// What this process holds, beside the store: that one grows with every new way through the program's own code that allocates.
#[derive(Debug, PartialEq)]
struct Held {
    descriptors: usize,
    threads: usize,
    blocks: i64,
    bytes: i64,
}

impl Held {
    fn now() -> Self {
        let entries = |path: &str| std::fs::read_dir(path).expect("/proc is mounted").count();
        // A thread that was joined may need a moment to disappear.
        let begun = Instant::now();
        while entries("/proc/self/task") > 2 && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (descriptors, threads) = (entries("/proc/self/fd"), entries("/proc/self/task"));
        let (blocks, bytes) = (BLOCKS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
        Self { descriptors, threads, blocks, bytes }
    }
}

fn cycle(number: u32, socket: &Path) {
    let server = Server::bind(&format!("unix://{}", socket.display())).start().expect("the server starts");
    // Recordings take most of the time.
    let path = if number.is_multiple_of(5) { "/debug/pprof/heap?format=json&symbols=none" } else { "/health" };
    assert!(!get(socket, path).is_empty());
    server.stop();
}

const SOCKET: &str = "CYCLES_SOCKET";

#[test]
#[ignore = "runs in a process of its own, started by the next test"]
fn cycles() {
    let socket = std::env::var_os(SOCKET).expect("a socket");
    // What is kept for ever is there after some: the store, buffers that grew to their size.
    (0..1000).for_each(|number| cycle(number, Path::new(&socket)));
    let before = Held::now();
    (0..1000).for_each(|number| cycle(number, Path::new(&socket)));
    let after = Held::now();
    println!("BEFORE {before:?}\nAFTER  {after:?}");
}

#[test]
fn a_thousand_starts_and_stops_leave_nothing() {
    let directory = scratch();
    let socket = directory.path().join("s");
    let told = output(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cycles::cycles", "--ignored", "--nocapture"])
            .env(SOCKET, &socket)
            .env("XDG_RUNTIME_DIR", directory.path()),
    );
    let told = text(&told.stdout);
    let held = |when: &str| {
        told.lines().find_map(|line| line.strip_prefix(when)).unwrap_or_else(|| panic!("{told}")).trim().to_owned()
    };
    assert_eq!(held("BEFORE"), held("AFTER"));
    let left: Vec<_> = std::fs::read_dir(directory.path().join("profile-recorder")).unwrap().flatten().collect();
    assert!(left.is_empty() && !socket.exists(), "{left:?}");
}
