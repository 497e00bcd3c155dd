//! Programs to record, and what they need.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a C program of the folder `victims`.
///
/// # Panics
/// If gcc fails.
pub fn compile_c(name: &str, directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims").join(format!("{name}.c"));
    let program = directory.join(name);
    let status = Command::new("gcc")
        .args(["-O2", "-g", "-fno-builtin", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-lpthread")
        .status();
    assert!(status.is_ok_and(|s| s.success()), "gcc compiles {name}.c");
    program
}

/// The real Python interpreter, not a wrapper script that looks for one.
///
/// # Panics
/// If there is no Python.
pub fn python() -> String {
    let output =
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3 runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// `go tool pprof`'s executable: Debian's package puts it outside the path.
///
/// # Panics
/// If it is not installed.
pub fn go_pprof() -> PathBuf {
    let mut candidates: Vec<PathBuf> = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("pkg/tool/linux_amd64/pprof"))
        .filter(|path| path.exists())
        .collect();
    candidates.sort();
    candidates.pop().expect("go tool pprof: apt-get install golang-1.19-go")
}
