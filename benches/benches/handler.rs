//! Time of a tick at a depth of 50 frames, on top of an empty handler: `cargo bench -p profile-recorder-benches --bench handler [-- --quick]`
//!
//! A child sends itself the signals that its timers would send, without and with the preload library. Each round trip is the system call, the kernel's delivery and return,
//! and the handler.

use profile_recorder_benches::figures::{Rounds, is_quick, time};
use profile_recorder_benches::recorded::{Stores, as_child, numbers};
use profile_recorder_benches::stacks::descend;

/// Different stacks.
const STACKS: u64 = 200;
/// Of the functions that call each other; the benchmark's own and the C library's come on top.
const DEPTH: u32 = 41;

fn main() {
    match as_child().as_deref() {
        Some("plain") => {
            install_empty_handler();
            child();
        }
        Some(_) => child(),
        None => parent(),
    }
}

fn parent() {
    let stores = Stores::new();
    let mut columns: [[Rounds; 4]; 2] = Default::default();
    for _ in 0..if is_quick() { 1 } else { 9 } {
        for ((what, modes), column) in [("plain", None), ("recorded", Some("cpu"))].into_iter().zip(&mut columns) {
            numbers(&stores, what, modes).into_iter().zip(column).for_each(|(number, rounds)| rounds.push(number));
        }
    }
    println!("A tick at 50 frames, ns: the round trip of a signal, of runs in turn the best and the median.\n");
    println!("                           empty handler        ours            on top");
    let names = ["the same stack again, p50", "the same stack again, p99", "another stack, p50", "another stack, p99"];
    for (i, name) in names.into_iter().enumerate() {
        let [plain, ours] = [&columns[0][i], &columns[1][i]];
        println!(
            "{name:26} {:7.0} {:7.0} {:8.0} {:7.0} {:8.0} {:7.0}",
            plain.best(),
            plain.median(),
            ours.best(),
            ours.median(),
            ours.best() - plain.best(),
            ours.median() - plain.median(),
        );
    }
}

/// Prints p50 and p99 of both kinds.
fn child() {
    for again in [true, false] {
        let mut all = Vec::new();
        for warm in [false, true] {
            for seed in 0..STACKS {
                descend(DEPTH, if again { 7 } else { seed }, &mut |_| {
                    for _ in 0..if again { 20 } else { 1 } {
                        let nanoseconds = time(tick);
                        all.extend(warm.then_some(nanoseconds));
                    }
                });
            }
        }
        if !again {
            // Each stack once a round, and so a few more rounds.
            for seed in (0..10 * STACKS).map(|i| i % STACKS) {
                descend(DEPTH, seed, &mut |_| all.push(time(tick)));
            }
        }
        all.sort_by(f64::total_cmp);
        println!("{} {}", all[all.len() / 2], all[all.len() * 99 / 100]);
    }
}

/// Sends this thread the signal of a timer of ours.
fn tick() {
    /// What the handler knows its own signals by.
    const MAGIC: u64 = 0x7072_6f66 << 32;
    // struct siginfo of a timer: signo, errno, code, padding, timer, overrun, value.
    let mut info = [0_u32; 32];
    info[0] = libc::SIGPROF as u32;
    info[2] = libc::SI_TIMER as u32;
    info[7] = (MAGIC >> 32) as u32;
    // SAFETY: the kernel reads one siginfo; the signal has a handler.
    unsafe {
        let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGPROF, info.as_ptr());
    }
}

fn install_empty_handler() {
    extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
    // SAFETY: zeroed is a valid `sigaction`; the handler has the type that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut());
    }
}
