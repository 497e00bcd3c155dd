//! Time of threads that wait for a processor.

use profile_recorder_tests::{output, programs, run, scratch, text};

/// The kernel tells of a wait for a processor when it is over: until then the thread may as well have been blocked.
#[test]
fn who_waits_for_a_processor_is_not_said_to_be_blocked() {
    let directory = scratch();
    let program = programs::compile_c("crowded", directory.path());
    let profile = directory.path().join("p.json");
    let mut command = run(&["record", "--quiet", "--mode", "wall", "--hz", "100", "-o"]);
    let recorded = output(command.arg(&profile).arg("--").arg(program));
    let printed = text(&recorded.stdout);
    let told: Vec<i64> = printed.split_whitespace().map(|ns| ns.parse().expect("nanoseconds")).collect();
    let [elapsed, ran, waited] = told[..] else { panic!("{printed}{}", text(&recorded.stderr)) };
    assert!(waited > elapsed / 5, "the processors are crowded: {printed}");
    let profile: serde_json::Value = serde_json::from_slice(&std::fs::read(&profile).unwrap()).unwrap();
    let sum = |state: &str| -> i64 {
        let samples = profile["samples"].as_array().unwrap().iter();
        let spins = |sample: &serde_json::Value| {
            let thread = sample["thread"].as_u64().expect("a thread") as usize;
            profile["threads"][thread]["name"] == "spins"
        };
        let of_state = samples.filter(|sample| spins(sample) && sample["labels"]["state"] == state);
        of_state.map(|sample| sample["values"][1].as_i64().unwrap()).sum()
    };
    let [on_cpu, runnable, off_cpu] = ["on-cpu", "runnable", "off-cpu"].map(sum);
    let what = format!("of {printed}: {on_cpu} {runnable} {off_cpu}");
    // A thread ends between two looks.
    let near = |is: i64, should: i64| (is - should).abs() < elapsed / 40;
    assert!(near(on_cpu, ran) && near(runnable, waited) && near(off_cpu, elapsed - ran - waited), "{what}");
    assert!(near(on_cpu + runnable + off_cpu, elapsed), "{what}");
}
