//! The registry directory, in which every recorder of this user leaves a file while it listens.

use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A recorder that listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorder {
    /// Its process.
    pub pid: u32,
    /// Path of its executable.
    pub exe: String,
    /// Where it listens.
    pub url: String,
    /// When its process began, in clock ticks since boot: tells it from a later process with the same pid.
    pub(crate) start: u64,
}

impl Recorder {
    /// The name of its executable, by which a target can be named.
    pub fn name(&self) -> &str {
        let name = self.exe.rsplit('/').next().unwrap_or(&self.exe);
        // What the kernel says of an executable that was replaced, by a deployment for instance.
        name.strip_suffix(" (deleted)").unwrap_or(name)
    }

    /// Whether the process that wrote the file is still there.
    pub(crate) fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        start_ticks(&stat) == Some(self.start)
    }
}

/// Those of this user that are running, by pid.
pub fn recorders() -> Vec<Recorder> {
    let mut found: Vec<Recorder> =
        own_registries().iter().flat_map(|place| of_directory(place)).filter(Recorder::is_running).collect();
    found.sort_by(|a, b| (a.pid, &a.url).cmp(&(b.pid, &b.url)));
    found.dedup();
    found
}

/// Where recorders of this user register.
fn own_registries() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let temporary = PathBuf::from(format!("/tmp/profile-recorder-{}", rustix::process::geteuid().as_raw()));
    // One that was started without the variable is in the other place.
    let runtime = runtime.filter(|path| path.is_absolute()).map(|path| path.join("profile-recorder"));
    runtime.into_iter().chain([temporary]).collect()
}

/// Where recorders of this user register, and for root those of every user.
pub(crate) fn registries_of_all() -> Vec<PathBuf> {
    let mut places = own_registries();
    if rustix::process::geteuid().is_root() {
        let below = |directory: &str| fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_registry = |path: &PathBuf| path.to_string_lossy().starts_with("/tmp/profile-recorder-");
        places.extend(below("/tmp").filter(is_registry));
        places.extend(below("/run/user").map(|path| path.join("profile-recorder")));
    }
    places.sort();
    places.dedup();
    places
}

/// What a directory's files tell. A directory of somebody else's may send us anywhere, so that only root reads it.
pub(crate) fn of_directory(directory: &Path) -> Vec<Recorder> {
    let own = rustix::process::geteuid();
    let may_be_read =
        |path: &Path| path.symlink_metadata().is_ok_and(|m| m.is_dir() && (m.uid() == own.as_raw() || own.is_root()));
    if !may_be_read(directory) {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok()).collect()
}

/// When a process began, in clock ticks since boot, by its `/proc/PID/stat`.
pub(crate) fn start_ticks(stat: &str) -> Option<u64> {
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
