//! What recording adds to short commands, and the first allocation in a large executable: `cargo bench -p profile-recorder-benches --bench start [-- --quick]`

use capture::rules::{self, InHook};
use profile_recorder_benches::figures::{Rounds, is_quick, time};
use profile_recorder_benches::recorded::Stores;
use profile_recorder_benches::{objects, walkers};
use std::process::{Command, Stdio};
use unwind::FrameAddress;

fn main() {
    let rounds = if is_quick() { 3 } else { 60 };
    println!("Commands, wall-clock ms, {rounds} runs of all in turn: best and median, and what the library adds.\n");
    println!("command                          mode          best  median    adds (best)  (median)");
    let compiler = Command::new("gcc").arg("-print-prog-name=cc1").output().ok();
    let compiler = compiler.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let commands: [&[&str]; 3] =
        [&["true"], &["git", "--version"], &[&compiler, "-quiet", "/dev/null", "-o", "/dev/null"]];
    let stores = Stores::new();
    for command in commands {
        let modes = [None, Some("stat"), Some("allocs"), Some("heap"), Some("cpu")];
        let mut columns: [Rounds; 5] = Default::default();
        for _ in 0..rounds {
            for (modes, column) in modes.into_iter().zip(&mut columns) {
                let mut run = Command::new(command[0]);
                run.args(&command[1..]).stdout(Stdio::null()).stderr(Stdio::null());
                if let Some(modes) = modes {
                    stores.record(&mut run, modes, 99);
                }
                column.push(time(|| run.status()) / 1e6);
                stores.clear();
            }
        }
        let [plain, ..] = &columns;
        let name = command[0].rsplit('/').next().unwrap_or_default();
        for (modes, column) in modes.into_iter().zip(&columns) {
            println!(
                "{name:32} {:10} {:7.2} {:7.2} {:14.2} {:9.2}",
                modes.unwrap_or("plain"),
                column.best(),
                column.median(),
                column.best() - plain.best(),
                column.median() - plain.median(),
            );
        }
    }
    first_lookups();
}

/// What the first stack in an object that was just opened waits for: each address is looked up for the first time.
fn first_lookups() {
    println!("\nAddresses looked up for the first time, µs each, tables of the code around built on the way:\n");
    println!("   MiB  addresses   first  median  slowest   all ms  object");
    drop(walkers::all());
    for path in objects::large_libraries() {
        let Some(library) = objects::open(&path) else { continue };
        capture::modules::refresh();
        let mut all = Rounds::default();
        let mut first = None;
        for address in &library.functions {
            let nanoseconds = time(|| rules::resolve::<InHook>(FrameAddress::Instruction(*address)));
            first.get_or_insert(nanoseconds);
            all.push(nanoseconds);
        }
        println!(
            "{:6} {:10} {:7.1} {:7.1} {:8.1} {:8.1}  {}",
            library.bytes >> 20,
            library.functions.len(),
            first.unwrap_or_default() / 1e3,
            all.median() / 1e3,
            all.worst() / 1e3,
            all.sum() / 1e6,
            path.display(),
        );
    }
}
