//! The flame graph page in headless Chromium, a million samples over a hundred thousand stacks: `cargo bench -p profile-recorder-benches --bench page [-- --quick]`
//!
//! `tests/run` installs what drives the browser.

extern crate profile as profile_recorder_profile;

use profile::{Options, encode};
use profile_recorder_benches::figures::is_quick;
use std::path::Path;
use std::process::Command;

#[path = "../../profile/tests/support/mod.rs"]
#[allow(missing_docs, reason = "shared with the tests of the crate")]
mod support;

fn main() {
    let (samples, stacks, rounds) = if is_quick() { (20_000, 1000, "1") } else { (1_000_000, 100_000, "5") };
    let of = support::large(samples, stacks);
    let page = support::encoded(encode::html::encode, &of, &Options::default());
    println!("{samples} samples in {stacks} stacks, {} nodes, {} KiB\n", of.0.stacks.len(), page.len() >> 10);
    let directory = tempfile::tempdir().expect("a scratch directory");
    let file = directory.path().join("large.html");
    std::fs::write(&file, page).expect("the scratch directory is writable");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/page/run");
    let executable = std::env::current_exe().expect("a benchmark has a path");
    let status = Command::new(script).arg(executable).arg("speed").arg(&file).arg(rounds).status();
    assert!(status.is_ok_and(|status| status.success()), "Chromium shows the page");
}
