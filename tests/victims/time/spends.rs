//! Spends CPU time in ways that are hard to sample, and says how it was spent: by function and by thread, by the kernel's clock of the thread, which is read around each piece of work.
//!
//! The first argument names the workload, the second is a number that it takes. Prints one line each: `function NAME NANOSECONDS`, `thread NAME NANOSECONDS`, `elapsed NANOSECONDS`, and
//! last `process NANOSECONDS`. With `PROFILE_RECORDER_SERVER_URL` set it waits for a line on its standard input, works, prints, and waits for the end of the input.

mod work;

use std::io::Read;
use std::time::Instant;
use work::clock;

#[global_allocator]
static ALLOC: profile_recorder::RecordingAllocator = profile_recorder::RecordingAllocator::system();

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let _server = profile_recorder::Server::from_env().start_or_warn();
    let served = std::env::var_os("PROFILE_RECORDER_SERVER_URL").is_some();
    if served {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
    }
    let (begun, before) = (Instant::now(), clock(libc::CLOCK_PROCESS_CPUTIME_ID));
    let number = arguments.get(2).map(|number| number.parse().unwrap());
    if !work::work(arguments.get(1).map_or("", String::as_str), number) {
        std::process::exit(2);
    }
    work::print_spent();
    println!("elapsed - {}", begun.elapsed().as_nanos());
    let before = if served { before } else { 0 };
    println!("process - {}", clock(libc::CLOCK_PROCESS_CPUTIME_ID) - before);
    if served {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    }
}
