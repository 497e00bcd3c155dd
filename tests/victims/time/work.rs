//! Workloads that are hard to sample, each of which notes how it spent its time by the kernel's clock of the thread, read around each piece of work.
//!
//! Not within a piece: where more threads want to run than there are processors, who asks for its own CPU time has the kernel look whether its turn is over. A thread that asks all the time is taken
//! off its processor before each tick of the kernel, which finds another there, and CPU timers look at ticks: such a program measures itself.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Read;
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Nanoseconds by what they were spent on.
static SPENT: Mutex<BTreeMap<(&'static str, String), u64>> = Mutex::new(BTreeMap::new());

fn note(kind: &'static str, name: &str, nanos: u64) {
    *SPENT.lock().unwrap().entry((kind, name.to_owned())).or_insert(0) += nanos;
}

pub(crate) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn cpu() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// How long something takes at its shortest, measured once.
struct Pace(OnceLock<u64>);

impl Pace {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// How often it has to be done to take so long.
    fn times(&self, nanos: u64, mut once: impl FnMut()) -> u64 {
        let least = self.0.get_or_init(|| {
            let measured = |_| {
                let begun = cpu();
                once();
                cpu() - begun
            };
            (0..50).map(measured).min().unwrap_or(0).max(1)
        });
        nanos.div_ceil(*least)
    }
}

#[inline(always)]
fn multiply() {
    let mut x = 1_u64;
    for _ in 0..10_000 {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

static MULTIPLICATION: Pace = Pace::new();

/// Works for about so long. Inlined: the time is that of the function around it.
#[inline(always)]
fn spin(nanos: u64) {
    for _ in 0..MULTIPLICATION.times(nanos, multiply) {
        multiply();
    }
}

/// Defines functions that spend time as `spin` does, each a frame of its own.
macro_rules! functions {
    // Each has its own text in it: the compiler makes one of several that are alike.
    ($($name:ident)*) => { $(#[inline(never)] fn $name(nanos: u64) { spin(nanos); black_box(stringify!($name)); })* };
}
functions!(half third sixth rest steady slowed burns);

/// Runs `f` below so many frames more.
#[inline(never)]
fn deeper(frames: u32, f: &mut dyn FnMut()) {
    if frames == 0 {
        f()
    } else {
        deeper(frames - 1, f)
    }
    black_box(frames);
}

/// A piece of work whose time is noted under a name.
fn timed(sums: &mut [u64], index: usize, f: impl FnOnce()) {
    let begun = cpu();
    f();
    sums[index] += cpu() - begun;
}

/// 50, 30, 15 and 5 per cent in four functions, so many frames deep. Each is at work for several of the kernel's ticks, or asking for the time would matter.
fn split(depth: u32) {
    let mut sums = [0; 4];
    deeper(depth, &mut || {
        for _ in 0..10 {
            timed(&mut sums, 0, || half(100_000_000));
            timed(&mut sums, 1, || third(60_000_000));
            timed(&mut sums, 2, || sixth(30_000_000));
            timed(&mut sums, 3, || rest(10_000_000));
        }
    });
    for (name, nanos) in ["half", "third", "sixth", "rest"].into_iter().zip(sums) {
        note("function", name, nanos);
    }
}

/// Notes what the thread of this number, which began then, took and how long it was there, as late as a thread can: when what is its own goes. (To note anything takes a lock, for which it may wait.)
struct Ends(u64, Instant);

impl Drop for Ends {
    fn drop(&mut self) {
        let (spent, lived) = (cpu(), self.1.elapsed());
        let name = format!("worker-{}", self.0);
        note("thread", &name, spent);
        note("lived", &name, lived.as_nanos() as u64);
    }
}

thread_local! {
    static ENDS: Cell<Option<Ends>> = const { Cell::new(None) };
}

/// Starts threads named `worker-N`, each of which notes its time, and waits for them.
fn threads(count: u64, work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        let start = |n| {
            let work = &work;
            let created = Instant::now();
            let named = std::thread::Builder::new().name(format!("worker-{n}"));
            let thread = named.spawn_scoped(scope, move || {
                ENDS.set(Some(Ends(n, Instant::now())));
                work(n);
            });
            (n, created, thread.unwrap())
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        for (n, created, thread) in threads {
            thread.join().unwrap();
            // It is there before it first gets a processor, and after its work until it is joined.
            note("existed", &format!("worker-{n}"), created.elapsed().as_nanos() as u64);
        }
    });
}

/// Short bursts with pauses: a tick rarely falls into one.
fn bursts(run: u64, pause: u64) {
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        steady(run);
        std::thread::sleep(Duration::from_nanos(pause));
    }
}

/// Bursts that begin just after the kernel's tick (of 250 a second) and end before the next.
fn between_ticks() {
    const TICK: u64 = 4_000_000;
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let now = clock(libc::CLOCK_MONOTONIC);
        let next = (now / TICK + 1) * TICK + 300_000;
        let until = libc::timespec { tv_sec: (next / 1_000_000_000) as i64, tv_nsec: (next % 1_000_000_000) as i64 };
        // SAFETY: the kernel reads one timespec.
        unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &until, std::ptr::null_mut()) };
        steady(1_500_000);
    }
}

/// Two hundred threads of 5 to 20 ms, four at a time.
fn short_lived() {
    for _ in 0..50 {
        threads(4, |n| burns((n + 1) * 5_000_000));
    }
}

/// A thread that blocks the signal of the ticks, and works.
fn blocked() {
    threads(1, |_| {
        // SAFETY: a zeroed set is an empty one.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGPROF);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        burns(300_000_000);
    });
}

/// Sixty-four threads that sleep, two that work.
fn sleepers() {
    threads(66, |n| if n < 2 { burns(1_000_000_000) } else { std::thread::sleep(Duration::from_millis(1500)) });
}

/// So many threads that wait for eight seconds. What the process uses in the first four, when all are new, is noted as `function new`, and in the others as `function idle`: it is the recorder's.
fn idle(count: u64) {
    let (begun, end) = (Arc::new(Barrier::new(count as usize + 1)), Arc::new(Barrier::new(count as usize + 1)));
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let (begun, end) = (begun.clone(), end.clone());
            let wait = move || {
                begun.wait();
                end.wait();
            };
            std::thread::Builder::new().stack_size(64 << 10).spawn(wait).unwrap()
        })
        .collect();
    begun.wait();
    // All of them have to get to sleep.
    std::thread::sleep(Duration::from_millis(500));
    for (name, seconds) in [("new", 4), ("idle", 4)] {
        let before = clock(libc::CLOCK_PROCESS_CPUTIME_ID);
        std::thread::sleep(Duration::from_secs(seconds));
        note("function", name, clock(libc::CLOCK_PROCESS_CPUTIME_ID) - before);
    }
    end.wait();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Threads named `waiting-N`, which wait until the standard input ends. `ready` is said when all of them are there.
fn waiting(count: u64) {
    for n in 0..count {
        let thread = std::thread::Builder::new().name(format!("waiting-{n}")).stack_size(64 << 10);
        thread
            .spawn(|| {
                loop {
                    std::thread::park()
                }
            })
            .unwrap();
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Two threads that work and allocate, and name themselves `late-N` then; one of them ends, the other one is there until the process ends.
fn named_late() {
    let work = |name: &'static std::ffi::CStr| {
        move || {
            burns(100_000_000);
            black_box(vec![0_u8; 1000]);
            // SAFETY: the name ends with a zero byte.
            unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        }
    };
    std::thread::spawn(work(c"late-0")).join().unwrap();
    let (sender, named) = std::sync::mpsc::channel();
    let work = work(c"late-1");
    std::thread::spawn(move || {
        work();
        sender.send(()).unwrap();
        loop {
            std::thread::park();
        }
    });
    named.recv().unwrap();
}

/// So many rounds of the same work on each of two threads, thirty frames deep. What the process uses is noted as `function busy`.
fn busy(rounds: u64) {
    let before = clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    threads(2, |_| {
        deeper(30, &mut || {
            let mut x = 1_u64;
            for _ in 0..rounds * 100_000 {
                x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        });
    });
    note("function", "busy", clock(libc::CLOCK_PROCESS_CPUTIME_ID) - before);
}

/// Little but system calls, in pieces of 5 to 15 ms: ones of 10 ms fall, two and two, on the same five of the kernel's ticks each time.
fn calls() {
    let (mut sums, mut buffer) = ([0; 2], vec![0_u8; 64 << 10]);
    let mut zeros = std::fs::File::open("/dev/zero").unwrap();
    let mut read = || zeros.read_exact(&mut buffer).unwrap();
    let mut random = 1_u64;
    let mut piece = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        5_000_000 + (random >> 32) % 10_000_000
    };
    for _ in 0..100 {
        let (read_ns, asked_ns) = (piece(), piece());
        timed(&mut sums, 0, || reads(read_ns, &mut read));
        timed(&mut sums, 1, || asks(asked_ns));
    }
    note("function", "reads", sums[0]);
    note("function", "asks", sums[1]);
}

#[inline(never)]
fn reads(nanos: u64, read: &mut dyn FnMut()) {
    static READ: Pace = Pace::new();
    for _ in 0..READ.times(nanos, &mut *read) {
        read();
    }
    black_box(());
}

#[inline(never)]
fn asks(nanos: u64) {
    static QUESTIONS: Pace = Pace::new();
    let ask = || {
        for _ in 0..20 {
            // SAFETY: no arguments.
            black_box(unsafe { libc::getppid() });
        }
    };
    for _ in 0..QUESTIONS.times(nanos, ask) {
        ask();
    }
}

/// One of two functions takes so many per cent longer. In pieces of 10 ms, as long as a period, the shares of one run at 99 Hz spread by 2.5 points; in these by 0.5.
fn slower(percent: u64) {
    let mut sums = [0; 2];
    for _ in 0..10 {
        timed(&mut sums, 0, || steady(100_000_000));
        timed(&mut sums, 1, || slowed(1_000_000 * (100 + percent)));
    }
    note("function", "steady", sums[0]);
    note("function", "slowed", sums[1]);
}

/// Does the workload of this name. False if there is none.
pub(crate) fn work(name: &str, number: Option<u64>) -> bool {
    let number = |default: u64| number.unwrap_or(default);
    match name {
        "split" => split(number(5) as u32),
        "threads" => threads(8, |n| burns(number(4_000_000) << n)),
        "bursts" => bursts(100_000, 4_000_000),
        "bursts-often" => bursts(300_000, 700_000),
        "between-ticks" => between_ticks(),
        "short-lived" => short_lived(),
        "blocked" => blocked(),
        "sleepers" => sleepers(),
        "idle" => idle(number(1000)),
        "named-late" => named_late(),
        "waiting" => waiting(number(1000)),
        "busy" => busy(number(4000)),
        "calls" => calls(),
        "slower" => slower(number(0)),
        "crowd" => threads(16, |_| burns(number(100_000_000))),
        "many" => threads(64, |_| burns(number(60_000_000))),
        "moment" => steady(number(1_000_000)),
        _ => return false,
    }
    true
}

/// Prints what was noted, a line each: what it was, its name, nanoseconds.
pub(crate) fn print_spent() {
    for ((kind, name), nanos) in &*SPENT.lock().unwrap() {
        println!("{kind} {name} {nanos}");
    }
}
