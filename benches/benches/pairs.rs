//! CPU time of a pair of allocation and free in each state of the recorder: `cargo bench -p profile-recorder-benches --bench pairs [-- --quick]`
//!
//! A child for each state and round, all in turn, allocates 64 bytes and frees them in a loop below thirty frames, on one thread and on two. Behind the wrapper it calls the
//! `RecordingAllocator` around the C library's functions, with the preload library these functions themselves; `bare` is the same loop without either.

use alloc_hook::{RecordingAllocator, SystemAllocator, record};
use capture::region::{self, Purpose};
use capture::{modules, rules};
use layout::modes;
use profile_recorder_benches::figures::{Rounds, is_quick};
use profile_recorder_benches::recorded::{Stores, as_child, library, numbers_of};
use profile_recorder_benches::stacks::deeper;
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::process::Command;
use std::sync::Barrier;

static WRAPPED: RecordingAllocator<SystemAllocator> = RecordingAllocator::system();
static BARE: SystemAllocator = SystemAllocator;

const SAMPLED: u64 = 512 << 10;

/// Which door the loop goes through.
#[derive(Clone, Copy, PartialEq)]
enum Door {
    Bare,
    Wrapper,
    Preload,
}

/// A state of the recorder.
struct State {
    name: &'static str,
    door: Door,
    /// What is recorded (`PROFILE_RECORDER_STORE_MODES`), or [`SERVER`]; `None`: there is no store.
    modes: Option<&'static str>,
    /// Mean bytes between recorded allocations.
    interval: u64,
    /// Most nanoseconds that a pair may take more than a bare one.
    goal: Option<f64>,
}

const fn state(door: Door, name: &'static str, modes: Option<&'static str>, interval: u64, goal: Option<f64>) -> State {
    State { name, door, modes, interval, goal }
}

/// The preload library brings a server, as in production; interval 0: it samples nothing.
const SERVER: &str = "server";

const STATES: [State; 13] = [
    state(Door::Bare, "bare", None, 0, None),
    state(Door::Wrapper, "wrapper, no recorder", None, 0, Some(1.0)),
    state(Door::Wrapper, "wrapper, counting only", Some("stat"), 0, Some(1.0)),
    state(Door::Wrapper, "wrapper, 512 KiB, live", Some("heap"), SAMPLED, Some(3.0)),
    state(Door::Wrapper, "wrapper, every one", Some("allocs"), 1, Some(60.0)),
    state(Door::Wrapper, "wrapper, every one, live", Some("heap"), 1, Some(120.0)),
    state(Door::Preload, "preload, no recorder", None, 0, Some(2.0)),
    state(Door::Preload, "preload, a server, off", Some(SERVER), 0, Some(2.0)),
    state(Door::Preload, "preload, a server, 512 KiB", Some(SERVER), SAMPLED, Some(3.0)),
    state(Door::Preload, "preload, counting only", Some("stat"), 0, Some(2.0)),
    state(Door::Preload, "preload, 512 KiB, live", Some("heap"), SAMPLED, Some(3.0)),
    state(Door::Preload, "preload, every one", Some("allocs"), 1, Some(60.0)),
    state(Door::Preload, "preload, every one, live", Some("heap"), 1, Some(120.0)),
];

fn main() {
    if let Some(name) = as_child() {
        return child(STATES.iter().find(|state| state.name == name).expect("a state"));
    }
    let (stores, library) = (Stores::new(), library());
    let mut columns: [[Rounds; 2]; STATES.len()] = Default::default();
    for _ in 0..if is_quick() { 1 } else { 11 } {
        for (state, columns) in STATES.iter().zip(&mut columns) {
            let mut command = Command::new(std::env::current_exe().expect("a benchmark has a path"));
            if state.door == Door::Preload {
                command.env("LD_PRELOAD", library);
                if state.modes == Some(SERVER) {
                    let interval = if state.interval == 0 { "off".to_owned() } else { state.interval.to_string() };
                    stores.serve(&mut command);
                    command.env("PROFILE_RECORDER_ALLOC_INTERVAL", interval);
                } else if let Some(modes) = state.modes {
                    stores.name(&mut command, modes, 1);
                    command.env("PROFILE_RECORDER_STORE_INTERVAL", state.interval.max(1).to_string());
                }
            }
            let numbers = numbers_of(command, &stores, state.name);
            numbers.into_iter().zip(columns).for_each(|(number, rounds)| rounds.push(number));
        }
    }
    println!("A pair of malloc(64) and free below 30 frames, CPU ns: best and median of runs in turn.\n");
    println!(
        "                            one thread        on top of bare    at most   two threads  times one (goal 1.15)"
    );
    let bare = columns[0][0].clone();
    for (state, [one, two]) in STATES.iter().zip(&columns) {
        println!(
            "{:26} {:7.1} {:7.1} {:9.1} {:7.1} {:>8} {:8.1} {:7.1} {:7.2}",
            state.name,
            one.best(),
            one.median(),
            one.best() - bare.best(),
            one.median() - bare.median(),
            state.goal.map(|goal| format!("+{goal}")).unwrap_or_default(),
            two.best(),
            two.median(),
            two.best() / one.best(),
        );
    }
}

/// Prints nanoseconds of a pair on one thread and on two.
fn child(state: &State) {
    match state.door {
        Door::Wrapper => {
            set_up(state);
            measure(&WRAPPED);
        }
        Door::Bare | Door::Preload => measure(&BARE),
    }
}

/// What a program with the library has after its server was started, and nothing more.
fn set_up(state: &State) {
    let Some(wanted) = state.modes else { return };
    let wanted = match wanted {
        "allocs" => modes::ALLOCS,
        "heap" => modes::ALLOCS | modes::HEAP,
        _ => modes::STAT,
    };
    let purpose = Purpose { modes: wanted, budget_bytes: 64 << 20, alloc_interval_bytes: state.interval, period_ns: 0 };
    region::open(&purpose, None).expect("a private store");
    rules::set_up();
    modules::refresh();
    record::follow_frees(wanted & modes::HEAP != 0);
    record::set_interval(state.interval);
}

fn measure<A: GlobalAlloc + Sync>(allocator: &'static A) {
    let mut best = [Rounds::default(), Rounds::default()];
    for _ in 0..5 {
        for (threads, best) in [1, 2].into_iter().zip(&mut best) {
            best.push(time_of_a_pair(allocator, threads));
        }
    }
    println!("{} {}", best[0].best(), best[1].best());
}

/// CPU nanoseconds of a pair: the sum over the threads' best batches, by their number.
fn time_of_a_pair<A: GlobalAlloc + Sync>(allocator: &'static A, threads: usize) -> f64 {
    const BATCHES: usize = 20;
    const PAIRS: u32 = 20_000;
    let ready = Barrier::new(threads);
    let work = || {
        let mut batches = Rounds::default();
        deeper(30, &mut || {
            ready.wait();
            for _ in 0..BATCHES {
                let start = cpu_ns();
                pairs(allocator, PAIRS);
                batches.push((cpu_ns() - start) as f64 / f64::from(PAIRS));
            }
            // All work until the last is done.
            ready.wait();
        });
        batches.median()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum::<f64>() / threads as f64
    })
}

#[inline(never)]
fn pairs<A: GlobalAlloc>(allocator: &A, count: u32) {
    let layout = Layout::new::<[u64; 8]>();
    for _ in 0..count {
        // SAFETY: the layout is not empty, and the block goes back at once.
        unsafe { allocator.dealloc(black_box(allocator.alloc(black_box(layout))), layout) };
    }
}

/// CPU time of the calling thread in nanoseconds.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
