//! Programs to record, and what they need.

use crate::profrec;
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

/// Compiles a small C program whose source is given.
///
/// # Panics
/// If gcc fails.
pub fn compile_source(name: &str, source: &str, directory: &Path) -> PathBuf {
    let (file, program) = (directory.join(format!("{name}.c")), directory.join(name));
    std::fs::write(&file, source).expect("the source can be written");
    let status = Command::new("gcc").args(["-O1", "-pthread", "-o"]).args([&program, &file]).status();
    assert!(status.is_ok_and(|s| s.success()), "gcc compiles {name}.c");
    program
}

/// Compiles a C file of the folder `victims` to a shared library.
///
/// # Panics
/// If gcc fails.
pub fn compile_c_library(name: &str, directory: &Path, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims").join(format!("{name}.c"));
    let library = directory.join(format!("lib{name}.so"));
    let status = Command::new("gcc").args(flags).args(["-fPIC", "-shared", "-o"]).arg(&library).arg(source).status();
    assert!(status.is_ok_and(|s| s.success()), "gcc compiles {name}.c");
    library
}

/// Runs gcc on a C file of the folder `victims`, or on none.
///
/// # Panics
/// If gcc fails.
pub fn gcc(victim: Option<&str>, arguments: &[&str], to: &Path) {
    let victim = victim.map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("victims").join(name));
    let output =
        Command::new("gcc").args(["-O2", "-fno-builtin"]).args(victim).args(arguments).arg("-o").arg(to).output();
    let output = output.expect("gcc runs");
    assert!(output.status.success(), "gcc {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
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

/// `profrec` with these arguments, ended after two minutes: nothing that is recorded here takes longer than some seconds. Such an end has exit code 124.
pub fn limited(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120"]).arg(profrec()).args(arguments);
    command
}

/// Where `record` puts one mode's profile: the name as given for a single mode, else with the mode before the extension.
///
/// # Panics
/// If the path has no extension.
pub fn beside(profile: &Path, mode: &str, modes: &str) -> PathBuf {
    if !modes.contains(',') {
        return profile.to_owned();
    }
    let extension = profile.extension().and_then(|e| e.to_str()).expect("an extension");
    profile.with_extension(format!("{mode}.{extension}"))
}

/// Debian's shared jemalloc, to be preloaded behind the recorder.
///
/// # Panics
/// If it is not installed.
pub fn jemalloc() -> &'static str {
    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    assert!(Path::new(LIBRARY).exists(), "apt-get install libjemalloc2");
    LIBRARY
}

/// The file in which a process names its generated code, removed in the end.
#[derive(Debug)]
pub struct PerfMap(PathBuf);

impl PerfMap {
    /// That of the process with this number.
    pub fn of(pid: u32) -> Self {
        Self(format!("/tmp/perf-{pid}.map").into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PerfMap {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
