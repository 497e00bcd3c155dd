//! One profile of all that divan runs, and of the allocations while it counts them itself:
//!
//! ```sh
//! cargo bench -p profile-recorder-examples --bench divan -- split             # choose by name what shall be in the profile
//! ```
//!
//! It writes `divan.cpu.svg` and `divan.allocs.svg` into the directory that `PROFILES` names, and records nothing without it.

use profile_recorder::{RecordError, Recorder, RecordingAllocator};
use std::hint::black_box;
use std::path::PathBuf;

/// divan counts what passes it, and what passes this one is recorded.
#[global_allocator]
static ALLOC: RecordingAllocator<divan::AllocProfiler> = RecordingAllocator::new(divan::AllocProfiler::system());

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(directory) = std::env::var_os("PROFILES").map(PathBuf::from) else {
        divan::main();
        return Ok(());
    };
    let sessions = [("cpu", Recorder::cpu().hz(999)), ("allocs", Recorder::allocs())];
    let sessions = sessions.map(|(name, recorder)| Ok::<_, RecordError>((name, recorder.start()?)));
    divan::main();
    for session in sessions {
        let (name, session) = session?;
        session.stop()?.write_to(directory.join(format!("divan.{name}.svg")))?;
    }
    Ok(())
}

#[divan::bench]
fn split() -> Vec<String> {
    black_box("to be or not to be").split(' ').map(str::to_owned).collect()
}

#[divan::bench]
fn join() -> String {
    black_box(["to", "be", "or", "not"]).join(" ")
}
