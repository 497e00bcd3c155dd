//! What the end-to-end tests share: the executable under test, programs to record, scratch directories.

pub mod carried;
pub mod counter;
pub mod folded;
pub mod inspect;
pub mod pprof;
pub mod programs;
pub mod resident;
pub mod service;
pub mod socket;
pub mod stacks;
pub mod terminal;
pub mod values;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The `profrec` executable of this workspace, built once for a test run, as a user would build it.
///
/// # Panics
/// If it cannot be built.
pub fn profrec() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("profrec"))
}

/// An executable of this workspace, built in release.
///
/// # Panics
/// If it cannot be built.
pub fn build(executable: &str) -> PathBuf {
    let output = cargo()
        // Of the whole workspace, so that what they depend on is built once for all of them.
        .args(["build", "--quiet", "--release", "--workspace", "--bin", executable])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cannot build {executable}: {}", String::from_utf8_lossy(&output.stderr));
    target_directory().join("release").join(executable)
}

/// Cargo as a user calls it. What the tests' own cargo told them of their package is kept from it: build scripts that look at it would run again, and all that depends on them.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let is_told = |name: &String| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_");
    std::env::vars().map(|(name, _)| name).filter(is_told).for_each(|name| {
        cargo.env_remove(name);
    });
    cargo
}

/// A preload library that walks every stack of an allocation in all ways and ends the process at a difference, built once.
///
/// # Panics
/// If it cannot be built.
pub fn oracle() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build_oracle)
}

fn build_oracle() -> PathBuf {
    let target = target_directory().join("oracle");
    let status = cargo()
        .args([
            "build",
            "--quiet",
            "--profile",
            "preload",
            "--package",
            "profile-recorder-preload",
            // Small and quickly built: stacks are what this is about.
            "--no-default-features",
            "--features",
            "oracle",
        ])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_PROFILE_PRELOAD_LTO", "off")
        .env("CARGO_PROFILE_PRELOAD_CODEGEN_UNITS", "16")
        .status();
    assert!(status.is_ok_and(|status| status.success()), "cannot build the oracle");
    target.join("preload/libprofrec_preload.so")
}

/// Where cargo puts what it builds: the tests' own executable lies in `TARGET/debug/deps` or `TARGET/release/deps`.
fn target_directory() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a path");
    own.ancestors().nth(3).expect("target directory").to_owned()
}

/// A scratch directory, removed when dropped.
///
/// # Panics
/// If it cannot be made.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a scratch directory")
}

/// A command that runs `profrec` with the arguments.
pub fn run(arguments: &[&str]) -> Command {
    let mut command = Command::new(profrec());
    command.args(arguments);
    command
}

/// Output as text, for messages and comparisons.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Puts a copy of a program somewhere; another process makes it.
///
/// Whoever has a file open for writing keeps all from running it (`ETXTBSY`). Closing it does not end that: what another thread starts at that moment was handed the file and has it until it runs its own program.
///
/// # Panics
/// If it cannot be copied.
pub fn place_program(from: &Path, to: &Path) {
    let copied = output(Command::new("cp").arg("--").args([from, to]));
    assert!(copied.status.success(), "{}", text(&copied.stderr));
}

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started.
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"))
}
