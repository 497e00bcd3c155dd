//! The threads of this process, as the kernel lists them.

use crate::own;

/// Thread ids of every thread but the recorder's own.
pub(crate) fn list() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|tid| !own::is_own(*tid))
        .collect()
}

/// A thread's name.
pub(crate) fn name(tid: u32) -> Vec<u8> {
    let mut name = std::fs::read(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
    name.pop_if(|last| *last == b'\n');
    name
}
