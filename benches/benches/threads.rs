//! Many threads walking at once: `cargo bench -p profile-recorder-benches --bench threads [-- --quick]`
//!
//! Each walks stacks of its own and enters them into its own tree. If warm walks wrote to memory that they share, a walk would take more of a processor's time the more threads there are.

use capture::rules::InHandler;
use capture::stack::{Bounds, StackMemory};
use capture::thread::{self, Recording};
use capture::walk;
use layout::Root;
use profile_recorder_benches::figures::{Rounds, is_quick};
use profile_recorder_benches::stacks::descend;
use profile_recorder_benches::walkers;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use unwind::FrameAddress;

const DEPTH: u32 = 40;

fn main() {
    let (rounds, length) = if is_quick() { (1, 50) } else { (5, 400) };
    drop(walkers::all());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "Threads walking stacks of {DEPTH} functions and entering them, on {processors} processors: the best of {rounds} rounds.\n"
    );
    println!("threads  CPU ns a walk  times one thread");
    let mut all: [Rounds; 3] = Default::default();
    for _ in 0..rounds {
        for (threads, walks) in [1, processors, 64].into_iter().zip(&mut all) {
            walks.push(time_of_a_walk(threads, Duration::from_millis(length)));
        }
    }
    let [one, ..] = &all;
    for (threads, walks) in [1, processors, 64].into_iter().zip(&all) {
        println!("{threads:7} {:14.0} {:17.2}", walks.best(), walks.best() / one.best());
    }
}

/// CPU time of the calling thread in nanoseconds.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU nanoseconds of a walk, over all threads.
fn time_of_a_walk(threads: usize, length: Duration) -> f64 {
    let (ready, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let (walks, cpu) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (ready, stop, walks, cpu) = (&ready, &stop, &walks, &cpu);
            scope.spawn(move || {
                let here = 0_u64;
                let stack = Bounds::of_current_thread(&raw const here as u64);
                let record = thread::record_for(number as u32 + 1, b"bench").expect("a store has room");
                let mut recording = Box::<Recording>::default();
                let mut walked = 0;
                let mut walk = |seed: u64, times: u32| {
                    descend(DEPTH, seed, &mut |registers| {
                        for _ in 0..times {
                            let memory = StackMemory::new(stack, registers.sp);
                            let at = FrameAddress::Instruction(registers.pc);
                            walk::capture_from::<InHandler>(&mut recording, memory, at, registers, None);
                            walk::intern(&mut recording, Root::Cpu, record);
                            walked += 1;
                        }
                    });
                };
                (0..16).for_each(|seed| walk(seed, 1));
                ready.wait();
                let start = cpu_ns();
                while !stop.load(Ordering::Relaxed) {
                    (0..16).for_each(|seed| walk(seed, 10));
                }
                cpu.fetch_add(cpu_ns() - start, Ordering::Relaxed);
                walks.fetch_add(walked, Ordering::Relaxed);
            });
        }
        ready.wait();
        std::thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
    });
    cpu.load(Ordering::Relaxed) as f64 / walks.load(Ordering::Relaxed) as f64
}
