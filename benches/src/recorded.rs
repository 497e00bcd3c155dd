//! Benchmarks that run themselves as a child, with and without the preload library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const CHILD: &str = "PROFILE_RECORDER_BENCH_CHILD";

/// The preload library of this workspace, built as it is shipped, once: what a compiler leaves of the processor's caches is not what a recorded command finds.
///
/// # Panics
/// If it cannot be built.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(built)
}

fn built() -> PathBuf {
    let own = std::env::current_exe().expect("a benchmark has a path");
    let target = own.ancestors().nth(3).expect("target directory");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "preload", "--package", "profile-recorder-preload", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "the preload library cannot be built");
    target.join("preload/libprofrec_preload.so")
}

/// What the parent said when it started this process as a child.
pub fn as_child() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// A directory for stores, removed when dropped.
#[derive(Debug)]
pub struct Stores(PathBuf);

impl Stores {
    /// Makes it, in memory like those of `profrec record`.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let all = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let directory = all.join(format!("profile-recorder-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a scratch directory can be made");
        Self(directory)
    }

    /// Sets a command up to be recorded in these modes, at so many ticks a second.
    pub fn record(&self, command: &mut Command, modes: &str, hz: u32) {
        command.env("LD_PRELOAD", library());
        self.name(command, modes, hz);
    }

    /// Tells the preload library, if the command has it, what to record.
    pub fn name(&self, command: &mut Command, modes: &str, hz: u32) {
        command
            .env("PROFILE_RECORDER_STORE", &self.0)
            .env("PROFILE_RECORDER_STORE_MODES", modes)
            .env("PROFILE_RECORDER_STORE_HZ", hz.to_string());
    }

    /// Has the preload library, if the command has it, bring a server.
    pub fn serve(&self, command: &mut Command) {
        command.env("PROFILE_RECORDER_SERVER_URL_PATTERN", format!("unix://{}/{{PID}}.sock", self.0.display()));
        command.env("XDG_RUNTIME_DIR", &self.0);
    }

    /// Removes what the commands left.
    pub fn clear(&self) {
        for store in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = std::fs::remove_file(store.path());
        }
    }
}

impl Default for Stores {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs this executable as a child that is told `what`, recorded in `modes` if there are any; the numbers that it prints.
///
/// # Panics
/// If it fails.
pub fn numbers(stores: &Stores, what: &str, modes: Option<&str>) -> Vec<f64> {
    let mut command = Command::new(std::env::current_exe().expect("a benchmark has a path"));
    if let Some(modes) = modes {
        stores.record(&mut command, modes, 1);
    }
    numbers_of(command, stores, what)
}

/// Runs a command that is this executable as a child that is told `what`; the numbers that it prints.
///
/// # Panics
/// If it fails.
pub fn numbers_of(mut command: Command, stores: &Stores, what: &str) -> Vec<f64> {
    let output = command.env(CHILD, what).output().expect("the child starts");
    stores.clear();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "the child failed: {}", String::from_utf8_lossy(&output.stderr));
    printed.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}
