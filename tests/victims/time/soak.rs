//! Does everything that sampling is known to break, on a thread for each, until its standard input ends, and says how often: `NAME TIMES` on a line each. It ends itself where something is not
//! what it would be without a recorder.
//!
//! The argument is a library (`thrown.cc`). Its allocator is jemalloc, which samples allocations too if its environment says so.

use profile_recorder::{RecordingAllocator, Server};
use std::ffi::{CString, c_char, c_long, c_void};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOC: RecordingAllocator<Jemalloc> = RecordingAllocator::new(Jemalloc);

static STOP: AtomicBool = AtomicBool::new(false);

/// Opens the library, calls it, and closes it.
fn opens(library: &CString, n: u64) {
    // SAFETY: the path ends with a zero byte.
    let opened = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    assert!(!opened.is_null());
    const NAME: *const c_char = c"thrown".as_ptr();
    // SAFETY: the handle is open.
    let found: *mut c_void = unsafe { libc::dlsym(opened, NAME) };
    assert!(!found.is_null());
    // SAFETY: the function of that name has this type.
    let thrown = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_long) -> c_long>(found) };
    let depth = (n % 50) as c_long;
    assert_eq!(thrown(depth), depth);
    // SAFETY: the handle is open, and nothing of the library is used any more.
    assert_eq!(unsafe { libc::dlclose(opened) }, 0);
}

#[inline(never)]
fn deep(depth: u64) -> u64 {
    if depth == 0 {
        std::panic::panic_any(7_u64);
    }
    let below = deep(depth - 1);
    std::hint::black_box(below) + 1
}

fn panics(n: u64) {
    let caught = std::panic::catch_unwind(|| deep(n % 50)).expect_err("it panics");
    assert_eq!(caught.downcast_ref::<u64>(), Some(&7));
}

fn allocates(n: u64) {
    let blocks: Vec<Vec<u8>> = (0..100).map(|i| vec![i as u8; (1 + (n * 37 + i * 101) % 5000) as usize]).collect();
    for (i, block) in blocks.iter().enumerate() {
        assert!(block.iter().all(|byte| usize::from(*byte) == i));
    }
}

/// Dropped at the end of each thread.
struct Noted(u64);

static NOTED: AtomicU64 = AtomicU64::new(0);

impl Drop for Noted {
    fn drop(&mut self) {
        NOTED.fetch_add(self.0, Ordering::Relaxed);
    }
}

thread_local! {
    static NOTE: Noted = Noted(u64::from(Vec::<u8>::with_capacity(100).is_empty()));
}

/// A thread's first touch of its variables, and their ends.
fn begins(_: u64) {
    let before = NOTED.load(Ordering::Relaxed);
    std::thread::spawn(|| NOTE.with(|note| assert_eq!(note.0, 1))).join().expect("it ends");
    assert_eq!(NOTED.load(Ordering::Relaxed), before + 1);
}

fn forks(n: u64) {
    // SAFETY: the child allocates, which jemalloc's and the recorder's fork handlers make possible, and ends.
    unsafe {
        let child = libc::fork();
        assert_ne!(child, -1);
        if child == 0 {
            allocates(n);
            libc::_exit(7);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child, "{}", std::io::Error::last_os_error());
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }
}

fn sleeps(n: u64) {
    let wait = Duration::from_micros(n % 3000);
    let begun = Instant::now();
    let asked = libc::timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
    // SAFETY: the kernel reads one timespec.
    assert_eq!(unsafe { libc::nanosleep(&raw const asked, std::ptr::null_mut()) }, 0, "interrupted");
    assert!(begun.elapsed() >= wait);
}

/// What a thread does over and over; it is told how often it did so.
type Kind = Box<dyn Fn(u64) + Send>;

fn main() {
    let library = std::env::args_os().nth(1).expect("a library");
    let library = CString::new(library.into_vec()).expect("a path");
    let _server = Server::from_env().start_or_warn();
    std::panic::set_hook(Box::new(|info| {
        if info.payload().downcast_ref::<u64>().is_none() {
            eprintln!("{info}");
            std::process::abort();
        }
    }));
    let opens = move |n: u64| opens(&library, n);
    let kinds: [(&str, Kind); 6] = [
        ("opens", Box::new(opens)),
        ("panics", Box::new(panics)),
        ("allocates", Box::new(allocates)),
        ("begins", Box::new(begins)),
        ("forks", Box::new(forks)),
        ("sleeps", Box::new(sleeps)),
    ];
    let threads: Vec<_> = kinds
        .into_iter()
        .map(|(name, kind)| {
            let work = move || {
                let mut times = 0;
                while !STOP.load(Ordering::Relaxed) {
                    kind(times);
                    times += 1;
                }
                (name, times)
            };
            std::thread::Builder::new().name(name.to_owned()).spawn(work).expect("a thread")
        })
        .collect();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    STOP.store(true, Ordering::Relaxed);
    for thread in threads {
        let (name, times) = thread.join().expect("it ends");
        println!("{name} {times}");
    }
}
