//! What a process that still runs lets others see: the file system of its container, and files that were deleted since it mapped them.

use std::fs;
use std::path::{Path, PathBuf};

/// Entries of a directory of mappings that are looked at.
const MAPPINGS: usize = 0x1_0000;

/// Where the file may be that a process mapped from `path`, by its own paths. Nothing says that it is that file: its build id has to.
pub(crate) fn paths(pid: u32, path: &Path) -> impl Iterator<Item = PathBuf> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let seen = path.strip_prefix("/").map(|relative| process.join("root").join(relative));
    let (exe, mapped) = (process.join("exe"), deleted(&process, path));
    seen.into_iter().chain([exe]).chain(mapped)
}

/// A file that has no name any more, by the mapping that keeps it. Only root may follow these links.
fn deleted(process: &Path, path: &Path) -> Option<PathBuf> {
    let mut wanted = path.as_os_str().to_owned();
    wanted.push(super::locate::DELETED);
    let entries = fs::read_dir(process.join("map_files")).ok()?.flatten().take(MAPPINGS);
    let mut links = entries.map(|entry| entry.path());
    links.find(|link| fs::read_link(link).is_ok_and(|target| target == wanted))
}

/// Where a process wrote its perf map: in `/tmp` of its own file system, named by the number that it has in its own namespace.
pub(crate) fn perf_map(pid: u32) -> Option<PathBuf> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let own = own_number(&status)?;
    Some(PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{own}.map")))
}

fn own_number(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_number_is_the_processes_own() {
        assert_eq!(own_number("Name:\tnode\nNSpid:\t4711\t12\t7\nUid:\t0\n"), Some(7));
        assert_eq!(own_number("Name:\tnode\nNSpid:\t4711\n"), Some(4711));
        assert_eq!(own_number("Name:\tnode\n"), None);
    }
}
