//! Programs that are measured.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a program of the package in `directory` in release; its path. Panics if that cannot be done.
pub fn build(directory: &Path, arguments: &[&str], name: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--quiet", "--message-format", "json-render-diagnostics"]).args(arguments);
    let output = command.current_dir(directory).output().expect("cargo runs");
    assert!(output.status.success(), "cannot build {name}: {}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    });
    executables.rfind(|path| path.file_name().is_some_and(|file| file == name)).expect("an executable")
}
