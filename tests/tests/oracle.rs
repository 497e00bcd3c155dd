//! The incremental walk gives the stacks of a plain walk: in real programs, for every allocation.

use profile_recorder_tests::{oracle, output, programs, scratch, text};
use std::path::Path;
use std::process::Command;

/// Runs a command with the comparing library, and counts the stacks that were compared.
fn compared(library: &Path, modes: &str, command: &[&str]) -> i64 {
    let directory = scratch();
    let run = output(
        Command::new(command[0])
            .args(&command[1..])
            .env("LD_PRELOAD", library)
            .env("PYTHONMALLOC", "malloc")
            .env("PROFILE_RECORDER_STORE", directory.path())
            .env("PROFILE_RECORDER_STORE_MODES", modes),
    );
    assert!(run.status.success(), "{command:?}: {:?}\n{}", run.status, text(&run.stderr));
    let stores = std::fs::read_dir(directory.path()).unwrap().flatten();
    let decoded = stores.map(|store| profile::store::decode(&std::fs::read(store.path()).unwrap()).unwrap());
    decoded.filter_map(|decoded| Some(decoded.allocs?.total(0))).sum()
}

#[test]
fn the_incremental_walk_is_the_plain_walk_in_real_programs() {
    let library = oracle();
    let directory = scratch();
    let hostile = programs::compile_c("hostile", directory.path());
    let hostile = hostile.to_str().unwrap();
    let object = directory.path().join("x.o");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims/hostile.c");
    let python = programs::python();
    let json = "import json\nfor i in range(3): json.loads(json.dumps([{'a': i, 'b': [1, 2]} for i in range(20000)]))";
    let script = "let a = []; for (let i = 0; i < 1e5; i++) a.push({i}); console.log(JSON.stringify(a).length)";
    let programs: [&[&str]; 9] = [
        &[&python, "-c", json],
        &["gcc", "-O2", "-c", source.to_str().unwrap(), "-o", object.to_str().unwrap()],
        &["node", "-e", script],
        &["perl", "-e", "my %h = map { $_ => $_ x 3 } 1..50000; print scalar keys %h"],
        &[env!("CARGO_BIN_EXE_victim-threads")],
        &[hostile, "fibers"],
        &[hostile, "handlers"],
        &[hostile, "libraries"],
        &[hostile, "deep"],
    ];
    let mut total = 0;
    for modes in ["allocs", "heap,cpu"] {
        for program in programs {
            total += compared(&library, modes, program);
        }
    }
    assert!(total > 2_000_000, "{total} stacks");
}
