//! Looking addresses up with few and with many loaded objects: `cargo bench -p profile-recorder-benches --bench lookups [-- --quick]`

use capture::rules::{self, InHandler};
use profile_recorder_benches::figures::{Rounds, is_quick, time};
use profile_recorder_benches::{objects, walkers};
use std::fmt::Write as _;
use std::process::Command;
use unwind::FrameAddress;

fn main() {
    let most = if is_quick() { 20 } else { 300 };
    drop(walkers::all());
    let directory = tempfile::tempdir().expect("a scratch directory");
    let source = directory.path().join("functions.c");
    let mut text = String::new();
    for i in 0..100 {
        let _ = writeln!(text, "int f{i}(int (*g)(int), int x) {{ return g(x + {i}) * {i}; }}");
    }
    std::fs::write(&source, text).expect("the scratch directory is writable");
    let library = directory.path().join("functions.so");
    let compiled = Command::new("gcc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.is_ok_and(|status| status.success()), "gcc is needed");

    println!("Looking up addresses, ns each: the best of rounds over all functions of the objects.\n");
    println!("objects  addresses  from the cache  not in the cache");
    let mut addresses = Vec::new();
    let mut opened = 0;
    for count in [1, most / 10, most] {
        while opened < count {
            let copy = directory.path().join(format!("functions-{opened}.so"));
            std::fs::copy(&library, &copy).expect("the scratch directory has room");
            addresses.extend(objects::open(&copy).expect("the copy can be opened").functions);
            opened += 1;
        }
        capture::modules::refresh();
        let look_up = |addresses: &[u64]| {
            for address in addresses {
                std::hint::black_box(rules::resolve::<InHandler>(FrameAddress::Instruction(*address)));
            }
        };
        // As many addresses each time, so that only the number of objects differs: all of a hundred functions, of every object a few.
        let step = addresses.len() / 100;
        let some: Vec<u64> = addresses.iter().copied().step_by(step.max(1)).collect();
        let (mut cached, mut missed) = (Rounds::default(), Rounds::default());
        for _ in 0..if is_quick() { 3 } else { 200 } {
            rules::clear();
            missed.push(time(|| look_up(&some)) / some.len() as f64);
            for _ in 0..10 {
                cached.push(time(|| look_up(&some)) / some.len() as f64);
            }
        }
        println!("{opened:7} {:10} {:15.1} {:17.0}", some.len(), cached.best(), missed.best());
    }
}
