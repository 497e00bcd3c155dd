//! Reading profiles with the real `go tool pprof`.

use crate::programs::go_pprof;
use std::path::Path;
use std::process::Command;

/// What `go tool pprof` prints for these arguments and this profile (a file or a URL).
///
/// # Panics
/// If it fails.
pub fn go(arguments: &[&str], profile: &str) -> String {
    let output = Command::new(go_pprof())
        .args(arguments)
        .arg(profile)
        .env("PPROF_TMPDIR", std::env::temp_dir())
        .output()
        .expect("go tool pprof runs");
    assert!(output.status.success(), "pprof {arguments:?} {profile}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sum of a column over all samples, as `pprof -raw` lists them.
///
/// # Panics
/// If the profile does not have the column.
pub fn total(profile: &Path, column: &str) -> i64 {
    let raw = go(&["-raw"], profile.to_str().expect("a path in UTF-8"));
    let mut lines = raw.lines();
    let header = lines.by_ref().skip_while(|line| *line != "Samples:").nth(1).expect("columns");
    let index = header
        .split_whitespace()
        .position(|name| name.split('/').next() == Some(column))
        .unwrap_or_else(|| panic!("no column {column} in {header}"));
    lines
        .take_while(|line| *line != "Locations")
        .filter_map(|line| line.split_once(": "))
        .filter(|(values, _)| values.split_whitespace().all(|v| v.parse::<i64>().is_ok()))
        .filter_map(|(values, _)| values.split_whitespace().nth(index)?.parse::<i64>().ok())
        .sum()
}
