//! The independent counter: a few lines of C, preloaded behind the recorder.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the counter counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `malloc`.
    pub malloc: u64,
    /// Calls of `calloc`.
    pub calloc: u64,
    /// Calls of `realloc`; the recorder turns `reallocarray` into it.
    pub realloc: u64,
    /// Calls of `posix_memalign`.
    pub posix_memalign: u64,
    /// Calls of `aligned_alloc`.
    pub aligned_alloc: u64,
    /// Calls of `free`.
    pub free: u64,
}

/// Compiles the counter into `directory`.
///
/// # Panics
/// If gcc fails.
pub fn compile(directory: &Path) -> PathBuf {
    let library = directory.join("libcounter.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/counter.c");
    let status = Command::new("gcc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(status.is_ok_and(|s| s.success()), "gcc compiles the counter");
    library
}

/// Reads what was counted.
///
/// # Panics
/// If the file is missing.
pub fn read(file: &Path) -> Counts {
    let word = |i: usize| word(file, i);
    Counts {
        malloc: word(0),
        calloc: word(1),
        realloc: word(2),
        posix_memalign: word(3),
        aligned_alloc: word(4),
        free: word(5),
    }
}

/// Bytes that were asked of all of the functions together.
///
/// # Panics
/// If the file is missing.
pub fn bytes(file: &Path) -> u64 {
    word(file, 6)
}

fn word(file: &Path, i: usize) -> u64 {
    let bytes = std::fs::read(file).expect("the counter's file");
    u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"))
}
