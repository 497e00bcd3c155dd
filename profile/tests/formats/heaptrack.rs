//! Files of the real heaptrack are read, and come to the numbers that its own reader prints.

use profile_recorder_profile::decode::{self, Limits, Readable};
use profile_recorder_profile::top::{self, Leaf};
use profile_recorder_profile::{Profile, Symbols};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program of which it is known what it allocates where, recorded.
fn recorded() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join("heaptracked.c"), dir.join("heaptracked"));
    let text = "#include <stdlib.h>\n\
        __attribute__((noinline)) void *leaks(int n) { return malloc(n); }\n\
        __attribute__((noinline)) void frees(void) { free(malloc(40)); }\n\
        static inline __attribute__((always_inline)) char *inlined(void) { return realloc(malloc(10), 1000); }\n\
        int main(void) { void *volatile kept; for (int i = 1; i <= 300; i++) { kept = leaks(i); frees(); }\n\
        kept = inlined(); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    // A compiler that knows malloc leaves out what is freed at once, and a call at the end of a function leaves no frame of it.
    let compiled = Command::new("cc")
        .args(["-g", "-O2", "-fno-builtin", "-fno-optimize-sibling-calls", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(compiled.is_ok_and(|status| status.success()), "cc compiles the program");
    let output = dir.join("heaptracked.recorded");
    let status = Command::new("heaptrack").arg("-o").arg(&output).arg(&program).stdout(Stdio::null()).status();
    assert!(status.expect("heaptrack is installed by tests/run").success());
    let written = ["zst", "gz"].map(|ending| PathBuf::from(format!("{}.{ending}", output.display())));
    written.into_iter().find(|path| path.exists()).expect("heaptrack wrote one of the two")
}

/// What a program prints, run in the folder of the build.
fn printed(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("heaptrack_print").arg("-f").arg(file).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The sum of one kind of costs over all of its stacks, to the byte.
fn costs(file: &Path, kind: &str) -> i64 {
    let stacks = file.with_extension(kind);
    printed(
        file,
        &[
            "--disable-builtin-suppressions",
            "--flamegraph-cost-type",
            kind,
            "--print-flamegraph",
            stacks.to_str().unwrap(),
        ],
    );
    let text = std::fs::read_to_string(stacks).unwrap();
    text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap()).sum()
}

#[test]
fn totals_and_functions_are_those_of_heaptrack() {
    let file = recorded();
    let (profile, symbols): (Profile, Symbols) =
        decode::read(&std::fs::read(&file).unwrap(), Limits::default()).unwrap();
    let total = |kind| profile.total(profile.column(kind).unwrap());
    assert_eq!(total("alloc_objects"), costs(&file, "allocations"));
    assert_eq!(total("temporary_objects"), costs(&file, "temporary"));
    assert_eq!(total("inuse_space"), costs(&file, "leaked"));
    let histogram = file.with_extension("histogram");
    let text = printed(&file, &["--print-histogram", histogram.to_str().unwrap()]);
    let sizes = std::fs::read_to_string(histogram).unwrap();
    let bytes = sizes.lines().map(|line| line.split_once('\t').unwrap()).map(|(size, count)| {
        let (size, count): (i64, i64) = (size.parse().unwrap(), count.parse().unwrap());
        size * count
    });
    assert_eq!(total("alloc_space"), bytes.sum::<i64>());
    assert!(text.contains(&format!("calls to allocation functions: {} ", total("alloc_objects"))), "{text}");

    let of = |name: &str, kind: &str| {
        let rows = top::functions(&profile, &symbols, profile.column(kind).unwrap(), Leaf::Recorded);
        rows.into_iter().find(|row| row.name == name).map_or(0, |row| row.total)
    };
    assert_eq!((of("leaks", "alloc_objects"), of("leaks", "inuse_space")), (300, 300 * 301 / 2));
    assert_eq!((of("frees", "temporary_objects"), of("frees", "inuse_objects")), (300, 0));
    assert_eq!(
        (of("inlined", "alloc_space"), of("inlined", "inuse_space")),
        (1010, 1000),
        "inlined functions are frames"
    );
    assert_eq!(of("main", "alloc_objects"), 602);
}

#[test]
fn a_file_that_was_cut_off_or_changed_is_an_error_and_never_a_panic() {
    let whole = b"v 10400 3\nX app\ns 4 main\ns 6 /bin/a\ni 10 2 1 0 0\nt 1 0\na 10 1\n+ 0\n- 0\n";
    assert_eq!(Readable::of(whole), Readable::Heaptrack);
    let mut random = crate::support::Random(3);
    let mut errors = 0;
    for _ in 0..2000 {
        let mut bytes = whole.to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        errors += usize::from(decode::heaptrack::decode(&bytes, Limits::default()).is_err());
    }
    assert!(errors > 1000, "{errors}");
}
