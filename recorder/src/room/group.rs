//! What a control group may still use: the limit of a container, which the kernel enforces when memory is touched, by ending a process.
//!
//! Formats: cgroups(7), `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst` of the kernel.

use std::fs::read_to_string;
use std::path::Path;

/// Bytes that the groups of this process may still use; `None` if none has a limit, or the files are not there.
pub(super) fn left() -> Option<u64> {
    left_of(&read_to_string("/proc/self/cgroup").ok()?, Path::new("/sys/fs/cgroup"))
}

/// The names of one version's files.
struct Files {
    limits: &'static [&'static str],
    used: &'static str,
    /// Pages of files that nobody used lately, which the kernel takes back first; the names in `memory.stat`.
    reclaimable: &'static str,
}

const V1: Files =
    Files { limits: &["memory.limit_in_bytes"], used: "memory.usage_in_bytes", reclaimable: "total_inactive_file" };

/// Beyond `memory.high` processes are not ended, but stopped again and again.
const V2: Files =
    Files { limits: &["memory.max", "memory.high"], used: "memory.current", reclaimable: "inactive_file" };

/// Of the process whose `/proc/PID/cgroup` this is, where the groups' file systems lie at `mounted`.
fn left_of(groups: &str, mounted: &Path) -> Option<u64> {
    let of_line = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        match controllers {
            "" => least(mounted, path, &V2),
            _ if controllers.split(',').any(|name| name == "memory") => least(&mounted.join("memory"), path, &V1),
            _ => None,
        }
    };
    groups.lines().filter_map(of_line).min()
}

/// The least that a group or one above it has left. A container may see its own group as the root of the file system, and its path from outside: what is not there is passed over.
fn least(root: &Path, path: &str, files: &Files) -> Option<u64> {
    let group = root.join(path.trim_start_matches('/'));
    group.ancestors().take_while(|group| group.starts_with(root)).filter_map(|group| left_in(group, files)).min()
}

fn left_in(group: &Path, files: &Files) -> Option<u64> {
    let number = |name: &str| read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // Version 2 says "max" where there is no limit, version 1 the largest number of pages.
    let limit = files.limits.iter().filter_map(|name| number(name)).min().filter(|limit| *limit < 1 << 62)?;
    let stat = read_to_string(group.join("memory.stat")).unwrap_or_default();
    let of_stat = |line: &str| line.strip_prefix(files.reclaimable)?.strip_prefix(' ')?.parse::<u64>().ok();
    let reclaimable = stat.lines().find_map(of_stat).unwrap_or(0);
    Some(limit.saturating_sub(number(files.used)?.saturating_sub(reclaimable)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    fn group(root: &Path, path: &str, files: &[(&str, &str)]) {
        let group = root.join(path);
        create_dir_all(&group).unwrap();
        files.iter().for_each(|(name, text)| write(group.join(name), text).unwrap());
    }

    #[test]
    fn the_narrowest_group_above_counts_without_what_the_kernel_takes_back() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(left_of("0::/a/b\n", root), None);
        group(root, "a", &[("memory.max", "1000\n"), ("memory.high", "max\n"), ("memory.current", "700\n")]);
        group(root, "a/b", &[("memory.max", "max\n"), ("memory.high", "max\n"), ("memory.current", "600\n")]);
        assert_eq!(left_of("0::/a/b\n", root), Some(300));
        write(root.join("a/memory.stat"), "active_file 50\ninactive_file 100\ninactive_file_x 1\n").unwrap();
        assert_eq!(left_of("0::/a/b\n", root), Some(400));
        write(root.join("a/b/memory.high"), "650").unwrap();
        assert_eq!(left_of("0::/a/b\n", root), Some(50));
        write(root.join("a/b/memory.current"), "660").unwrap();
        assert_eq!(left_of("0::/a/b\n", root), Some(0));
        // Seen from inside: the path is that of the host.
        group(root, "", &[("memory.max", "2000"), ("memory.current", "500")]);
        assert_eq!(left_of("0::/elsewhere/c\n", root), Some(1500));
        assert_eq!(left_of("0::/\n", root), Some(1500));
    }

    #[test]
    fn the_first_version_has_other_names_and_a_file_system_for_itself() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        const GROUPS: &str = "12:pids:/x\n8:cpu,memory:/c:d\n1:name=systemd:/y\n";
        assert_eq!(left_of(GROUPS, root), None);
        let none = [("memory.limit_in_bytes", "9223372036854771712\n"), ("memory.usage_in_bytes", "5\n")];
        group(root, "memory", &none);
        assert_eq!(left_of(GROUPS, root), None);
        group(root, "memory/c:d", &[("memory.limit_in_bytes", "4096\n"), ("memory.usage_in_bytes", "1096\n")]);
        assert_eq!(left_of(GROUPS, root), Some(3000));
        write(root.join("memory/c:d/memory.stat"), "inactive_file 7\ntotal_inactive_file 96\n").unwrap();
        assert_eq!(left_of(GROUPS, root), Some(3096));
        assert_eq!(left_of("", root), None);
        assert_eq!(left_of("nonsense\n3:memory\n", root), None);
    }
}
