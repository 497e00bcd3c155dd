//! Files of the real valgrind's DHAT are read, and come to the numbers that it prints.

use profile_recorder_profile::decode::{self, Limits, Readable};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{Profile, Symbols};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// A program of which it is known what it allocates and copies where.
const SOURCE: &str = r#"
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) void *leaks(int n) { return malloc(n); }
__attribute__((noinline)) void frees() { free(malloc(40)); }
__attribute__((noinline)) void *operator""_kept(unsigned long long n) { return malloc(n); }
static inline __attribute__((always_inline)) void *inlined() { return realloc(malloc(10), 1000); }
__attribute__((noinline)) void copies(char *to, const char *from, int n) { memcpy(to, from, n); }
int main() {
    void *volatile kept;
    static char from[400], to[400];
    for (int i = 1; i <= 300; i++) { kept = leaks(i); frees(); copies(to, from, i); }
    kept = inlined();
    kept = 7_kept;
    return 0;
}
"#;

/// What DHAT recorded in this mode, and what it printed.
fn recorded(mode: &str) -> (Vec<u8>, String) {
    let directory = tempfile::tempdir().unwrap();
    // Names of files are bytes, and valgrind writes them as they are.
    let [source, program] =
        [&b"odd \xff\"\\ \xc3.cc"[..], b"program\xe9"].map(|name| directory.path().join(OsStr::from_bytes(name)));
    std::fs::write(&source, SOURCE).unwrap();
    // A compiler that knows malloc leaves out what is freed at once, and a call at the end of a function leaves no frame of it.
    let compiled = Command::new("g++")
        .args(["-g", "-O1", "-fno-builtin", "-fno-optimize-sibling-calls", "-o"])
        .args([&program, &source])
        .status();
    assert!(compiled.is_ok_and(|status| status.success()), "g++ compiles the program");
    let file = directory.path().join("dhat.json");
    let output = Command::new("valgrind")
        .args(["--tool=dhat", &format!("--mode={mode}"), &format!("--dhat-out-file={}", file.display())])
        .arg(&program)
        .arg(OsStr::from_bytes(b"an \"argument\"\nof two lines\xff"))
        .output()
        .expect("valgrind: tests/run installs it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    (std::fs::read(file).unwrap(), said)
}

/// Bytes and blocks of a line such as `==7== At t-end:  46,150 bytes in 301 blocks`.
fn told(said: &str, what: &str) -> (i64, i64) {
    let line = said.lines().find_map(|line| line.split_once(what)).unwrap_or_else(|| panic!("no {what} in {said}")).1;
    let numbers: Vec<i64> = line.replace(',', "").split(' ').filter_map(|word| word.parse().ok()).collect();
    let [bytes, blocks] = numbers[..] else { panic!("{line}") };
    (bytes, blocks)
}

fn read(bytes: &[u8]) -> (Profile, Symbols) {
    assert_eq!(Readable::of(bytes), Readable::Dhat);
    decode::read(bytes, Limits::default()).unwrap()
}

fn total(of: &(Profile, Symbols), kind: &str) -> i64 {
    of.0.total(of.0.column(kind).unwrap())
}

/// Self and total of a function; zero of one that there is not.
fn function(of: &(Profile, Symbols), name: &str, kind: &str) -> (i64, i64) {
    let rows = top::functions(&of.0, &of.1, of.0.column(kind).unwrap(), Leaf::Recorded);
    rows.iter().find(|row| row.name == name).map_or((0, 0), |row| (row.self_value, row.total))
}

#[test]
fn totals_and_functions_are_those_of_valgrind() {
    let (bytes, said) = recorded("heap");
    assert!(std::str::from_utf8(&bytes).is_err(), "valgrind writes names as they are");
    let of = read(&bytes);
    let (leaked, all) = (300 * 301 / 2, 300 * 301 / 2 + 300 * 40 + 10 + 1000 + 7);
    // What runs before `main` may allocate as well, as valgrind then says.
    let (by_main, live) = (function(&of, "main", "alloc_space").1, function(&of, "main", "inuse_space").1);
    assert_eq!((by_main, live), (all, leaked + 1000 + 7));
    assert_eq!((function(&of, "main", "alloc_objects").1, function(&of, "main", "inuse_objects").1), (603, 302));
    assert_eq!((total(&of, "alloc_space"), total(&of, "alloc_objects")), told(&said, "Total: "));
    assert_eq!((total(&of, "inuse_space"), total(&of, "inuse_objects")), told(&said, "At t-end: "));

    // valgrind counts what `realloc` gives where the block was made.
    assert_eq!(function(&of, "malloc", "alloc_objects").0, total(&of, "alloc_objects"));
    for (name, objects, space, live_objects, live_space) in [
        ("leaks(int)", 300, leaked, 300, leaked),
        ("frees()", 300, 300 * 40, 0, 0),
        // Of what is inlined it has the name without the arguments.
        ("inlined", 2, 1010, 1, 1000),
        ("operator\"\" _kept(unsigned long long)", 1, 7, 1, 7),
    ] {
        let totals =
            ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"].map(|kind| function(&of, name, kind).1);
        assert_eq!(totals, [objects, space, live_objects, live_space], "{name}");
    }
    let files: Vec<_> =
        of.0.stacks.frames().iter().flat_map(|frame| of.1.get(frame)).filter_map(|f| f.file.clone()).collect();
    assert!(files.iter().any(|file| **file == *"odd \u{fffd}\"\\ \u{fffd}.cc"), "{files:?}");
    let comment = &of.0.comments[0];
    assert!(comment.contains("/program\u{fffd} an \"argument\"\nof two lines\u{fffd} (pid "), "{comment:?}");
}

#[test]
fn copies_are_those_of_valgrind() {
    let (bytes, said) = recorded("copy");
    let of = read(&bytes);
    assert_eq!((total(&of, "alloc_space"), total(&of, "alloc_objects")), told(&said, "Total: "));
    assert_eq!(function(&of, "copies(char*, char const*, int)", "alloc_space").1, 300 * 301 / 2);
    assert_eq!(function(&of, "copies(char*, char const*, int)", "alloc_objects").1, 300);
    assert_eq!(of.0.sample_types.len(), 2, "nothing is in use of what was copied");
}
