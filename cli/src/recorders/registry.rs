//! The registry directory, in which every recorder of this user leaves a file while it listens.

use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A recorder that listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recorder {
    pub(super) pid: u32,
    /// Path of its executable.
    pub(super) exe: String,
    /// Where it listens.
    pub(super) url: String,
    /// When its process began, in clock ticks since boot: tells it from a later process with the same pid.
    start: u64,
}

impl Recorder {
    /// The name of its executable, by which a target can be named.
    pub(super) fn name(&self) -> &str {
        let name = self.exe.rsplit('/').next().unwrap_or(&self.exe);
        // What the kernel says of an executable that was replaced, by a deployment for instance.
        name.strip_suffix(" (deleted)").unwrap_or(name)
    }

    fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        start_ticks(&stat) == Some(self.start)
    }
}

/// Those of this user that are running, by pid.
pub(super) fn recorders() -> Vec<Recorder> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let temporary = PathBuf::from(format!("/tmp/profile-recorder-{}", rustix::process::geteuid().as_raw()));
    // One that was started without the variable is in the other place.
    let places = runtime
        .filter(|path| path.is_absolute())
        .map(|path| path.join("profile-recorder"))
        .into_iter()
        .chain([temporary]);
    let mut found: Vec<Recorder> = places.flat_map(|place| of_directory(&place)).filter(Recorder::is_running).collect();
    found.sort_by(|a, b| (a.pid, &a.url).cmp(&(b.pid, &b.url)));
    found.dedup();
    found
}

/// A directory of somebody else's may send us anywhere.
fn of_directory(directory: &Path) -> Vec<Recorder> {
    let is_ours = |path: &Path| {
        path.symlink_metadata().is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::geteuid().as_raw())
    };
    if !is_ours(directory) {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok()).collect()
}

fn start_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may contain anything; field 22 is the 20th after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_process_that_is_gone_is_no_recorder() {
        let directory = tempfile::tempdir().unwrap();
        let own = start_ticks(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        let pid = std::process::id();
        for (name, start) in [("a.json", own), ("b.json", own + 1)] {
            let entry =
                serde_json::json!({"pid": pid, "exe": "/bin/app (deleted)", "url": "unix:///a.sock", "start": start});
            fs::write(directory.path().join(name), entry.to_string()).unwrap();
        }
        fs::write(directory.path().join("c.json"), "junk").unwrap();
        let found = of_directory(directory.path());
        assert_eq!(found.len(), 2);
        let running: Vec<_> = found.iter().filter(|recorder| recorder.is_running()).collect();
        assert_eq!((running.len(), running[0].start, running[0].name()), (1, own, "app"));
    }
}
