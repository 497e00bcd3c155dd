//! Reading profiles as folded stacks: a line is frames from the root on, separated by semicolons, and a value.

use std::path::Path;

/// Sum of the values of all stacks that contain `part`, which may be a frame, a few of them with their semicolons, or nothing.
///
/// # Panics
/// If the file cannot be read, or is not a folded profile.
pub fn sum(profile: &Path, part: &str) -> u64 {
    let all = std::fs::read_to_string(profile).unwrap_or_else(|e| panic!("{}: {e}", profile.display()));
    let stacks = all.lines().filter(|line| !line.starts_with('#'));
    let lines = stacks.map(|line| line.rsplit_once(' ').unwrap_or_else(|| panic!("not a folded stack: {line}")));
    let with = lines.filter(|(stack, _)| stack.contains(part));
    with.map(|(stack, value)| value.parse::<u64>().unwrap_or_else(|_| panic!("no value: {stack} {value}"))).sum()
}
