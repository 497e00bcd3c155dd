//! Names of code that was generated at run time, from the maps that runtimes write for perf: `/tmp/perf-PID.map`.
//!
//! Node, CPython, the JVM and .NET write one `START SIZE NAME` line (hexadecimal) for each function, and a later line
//! replaces an earlier one at the same addresses.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::demangle::Name;
use crate::functions::Function;

/// Longest line that is kept; the rest of a longer one is dropped.
const LINE: usize = 64 << 10;

/// Where a process writes its map.
pub(crate) fn path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/perf-{pid}.map"))
}

/// Fills what is not yet in `found`, which runs parallel to the sorted process `addresses`. A missing map is no error;
/// the error text says why a present one was not used.
pub(crate) fn find(path: &Path, pid: u32, addresses: &[u64], found: &mut [Option<Function>]) -> Result<(), String> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    // Everybody may write to /tmp: names come only from the user whose process it is, from ourselves, or from root.
    let trusted = [Some(0), owner("/proc/self"), owner(&format!("/proc/{pid}"))];
    if !metadata.is_file() || !trusted.contains(&Some(metadata.uid())) {
        return Err(format!("{}: not a file of the recorded user: not used", path.display()));
    }
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    fill(BufReader::with_capacity(64 << 10, file), addresses, found);
    Ok(())
}

fn owner(path: &str) -> Option<u32> {
    Some(fs::metadata(path).ok()?.uid())
}

fn fill(mut map: impl BufRead, addresses: &[u64], found: &mut [Option<Function>]) {
    let known: Vec<bool> = found.iter().map(Option::is_some).collect();
    let mut line = Vec::new();
    while read_line(&mut map, &mut line) {
        let Some((start, size, name)) = entry(&line) else { continue };
        let first = addresses.partition_point(|&address| address < start);
        let last = addresses.partition_point(|&address| address < start.saturating_add(size));
        if first >= last || known[first..last].iter().all(|&known| known) {
            continue;
        }
        let name = String::from_utf8_lossy(name);
        let name = Arc::new(Name { shown: name.into(), system: None });
        for at in (first..last).filter(|&at| !known[at]) {
            found[at] = Some(Function { name: Arc::clone(&name), start, sized: true });
        }
    }
}

/// Reads the next line without its end into `line`, of which at most [`LINE`] bytes are kept.
fn read_line(map: &mut impl BufRead, line: &mut Vec<u8>) -> bool {
    line.clear();
    let mut any = false;
    loop {
        let Ok(chunk) = map.fill_buf() else { return false };
        if chunk.is_empty() {
            return any;
        }
        any = true;
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let length = end.unwrap_or(chunk.len());
        let room = LINE.saturating_sub(line.len()).min(length);
        line.extend_from_slice(&chunk[..room]);
        let used = length + usize::from(end.is_some());
        map.consume(used);
        if end.is_some() {
            return true;
        }
    }
}

fn entry(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut fields = line.splitn(3, |&byte| byte == b' ');
    let start = hexadecimal(fields.next()?)?;
    let size = hexadecimal(fields.next()?)?;
    let name = fields.next()?.trim_ascii();
    (size > 0 && !name.is_empty()).then_some((start, size, name))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(map: &[u8], addresses: &[u64]) -> Vec<Option<String>> {
        let mut found = vec![None; addresses.len()];
        fill(BufReader::with_capacity(7, map), addresses, &mut found);
        found.into_iter().map(|found| found.map(|function| function.name.shown.to_string())).collect()
    }

    #[test]
    fn lines_name_their_range_and_later_lines_replace_earlier_ones() {
        let map = b"1000 10 old\n0x2000 20 JS:*add file.js:1:2\n1000 8 new\nbroken\n3000 zz x\n3000 0 y\n4000 4 last";
        let addresses = [0xfff, 0x1000, 0x1008, 0x1010, 0x201f, 0x2020, 0x3000, 0x4003];
        let expected = [None, Some("new"), Some("old"), None, Some("JS:*add file.js:1:2"), None, None, Some("last")];
        assert_eq!(names(map, &addresses), expected.map(|name| name.map(str::to_owned)));
    }

    #[test]
    fn endless_lines_are_cut() {
        let mut map = b"1000 10 ".to_vec();
        map.extend(vec![b'x'; 3 * LINE]);
        map.extend(b"\n2000 1 after\n");
        let names = names(&map, &[0x1000, 0x2000]);
        assert!(names[0].as_ref().is_some_and(|name| name.len() < LINE));
        assert_eq!(names[1].as_deref(), Some("after"));
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "1000 10 name\n").expect("a file");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        let mut found = vec![None];
        assert!(find(&link, 1, &[0x1000], &mut found).is_err());
        assert_eq!(found, [None]);
        assert_eq!(find(&target, 1, &[0x1000], &mut found), Ok(()));
        assert!(found[0].is_some());
    }
}
