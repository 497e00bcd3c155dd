//! The kernel counts too, where it lets us ask: probes on the C library's functions see every call, of whoever, and their counts equal the recorder's in the same run.
//!
//! Where no probes can be placed (that needs root and a kernel with uprobes), the test says so and compares with the preloaded counter alone.

use profile_recorder_tests::{counter, folded, output, programs, scratch, text};
use std::path::Path;
use std::process::Command;

/// Name, place and filter of events of this test alone, so that it disturbs nobody who probes as well. In the last two the library calls its own malloc: reallocations
/// of nothing, and alignments that every block has.
const PROBES: [(&str, &str, &str); 6] = [
    ("profrec_malloc", "malloc", ""),
    ("profrec_calloc", "calloc", ""),
    ("profrec_realloc", "__libc_realloc", ""),
    ("profrec_posix_memalign", "posix_memalign", ""),
    ("profrec_new", "__libc_realloc old=%di:u64", "old==0"),
    ("profrec_aligned", "posix_memalign alignment=%si:u64", "alignment<=16"),
];

struct Probes;

impl Probes {
    fn place() -> Option<Self> {
        let map = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = map.split_whitespace().find(|word| word.ends_with("/libc.so.6"))?;
        let placed = Self;
        let place = |(name, at, _): &(&str, &str, &str)| {
            let definition = format!("{name}={at}");
            Command::new("perf").args(["probe", "-q", "-x", library, "--add", &definition]).output()
        };
        PROBES.iter().all(|probe| place(probe).is_ok_and(|output| output.status.success())).then_some(placed)
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let _ = Command::new("perf").args(["probe", "-q", "--del", "probe_libc:profrec_*"]).output();
    }
}

/// Runs a command under the kernel's counter and the recorder; `process` is its name in the profile, in which perf is another process.
fn assert_agreed(process: &str, command: &[&str]) {
    let directory = scratch();
    let (profile, counted) = (directory.path().join("p.folded"), directory.path().join("counted"));
    let record = ["record", "--quiet", "--mode", "allocs", "-o", profile.to_str().unwrap(), "--"];
    let mut run = programs::limited(&record);
    run.args(["perf", "stat", "-x", ",", "-o", counted.to_str().unwrap()]);
    for (name, _, filter) in PROBES {
        run.args(["-e", &format!("probe_libc:{name}")]);
        if !filter.is_empty() {
            run.args(["--filter", filter]);
        }
    }
    let run = output(run.arg("--").args(command));
    assert!(run.status.success(), "{command:?}: {}", text(&run.stderr));
    let kernel = std::fs::read_to_string(&counted).unwrap();
    let kernel = |name: &str| -> u64 {
        let mut lines = kernel.lines().filter(|line| line.split(',').nth(2) == Some(&format!("probe_libc:{name}")));
        lines.next().and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or_else(|| panic!("{name}: {kernel}"))
    };
    let ours = |function: &str| sum_by(&profile, process, function);
    let counts = ["malloc", "calloc", "realloc", "posix_memalign"].map(ours);
    let malloc = kernel("profrec_malloc") - kernel("profrec_new") - kernel("profrec_aligned");
    let expected = [malloc, kernel("profrec_calloc"), kernel("profrec_realloc"), kernel("profrec_posix_memalign")];
    assert_eq!(counts, expected, "{command:?}: ours, and the kernel's");
    assert!(malloc > 500, "{command:?}: {malloc}");
    assert_eq!(folded::sum(&profile, "[lost: "), 0);
}

/// Allocations of one process by one function.
fn sum_by(profile: &Path, process: &str, function: &str) -> u64 {
    let all = std::fs::read_to_string(profile).unwrap();
    let stacks = all.lines().filter_map(|line| line.rsplit_once(' '));
    let of = |stack: &str| stack.starts_with(&format!("{process} (")) && stack.ends_with(&format!(";{function}"));
    stacks.filter(|(stack, _)| of(stack)).map(|(_, value)| value.parse::<u64>().unwrap()).sum()
}

fn assert_agreed_with_the_counter(command: &[&str]) {
    let directory = scratch();
    let (profile, counted) = (directory.path().join("p.folded"), directory.path().join("counted"));
    let mut run = programs::limited(&["record", "--quiet", "--mode", "allocs", "-o", profile.to_str().unwrap(), "--"]);
    let library = counter::compile(directory.path());
    let run = output(run.args(command).env("LD_PRELOAD", library).env("COUNTER_FILE", &counted));
    assert!(run.status.success(), "{command:?}: {}", text(&run.stderr));
    let counts = counter::read(&counted);
    let all = counts.malloc + counts.calloc + counts.realloc + counts.posix_memalign + counts.aligned_alloc;
    assert_eq!(folded::sum(&profile, ""), all, "{command:?}: ours, and the counter's");
}

#[test]
fn the_kernel_counts_the_same_calls_of_python_the_compiler_and_node() {
    let directory = scratch();
    let python = programs::python();
    let script = "import json, re; print(len(json.dumps([{'a': str(i)} for i in range(20000)])))";
    let compiler = text(&output(Command::new("gcc").arg("-print-prog-name=cc1")).stdout).trim().to_owned();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims/burn.c");
    let (preprocessed, object) = (directory.path().join("burn.i"), directory.path().join("burn.s"));
    assert!(Command::new("gcc").arg("-E").arg(source).arg("-o").arg(&preprocessed).status().unwrap().success());
    let (preprocessed, object) = (preprocessed.to_str().unwrap(), object.to_str().unwrap());
    let compile = [&compiler, "-quiet", "-O2", "-fpreprocessed", preprocessed, "-o", object];
    let interpreter = Path::new(&python).canonicalize().unwrap();
    let interpreter = interpreter.file_name().unwrap().to_str().unwrap();
    let commands: [(&str, &[&str]); 3] = [
        (interpreter, &[&python, "-c", script]),
        ("cc1", &compile),
        ("node", &["node", "-e", "console.log([...Array(999)].map((_, i) => `${i}`).sort().length)"]),
    ];
    let probes = Probes::place();
    println!("counted by {}", if probes.is_some() { "the kernel" } else { "the preloaded counter: no probes here" });
    for (process, command) in commands {
        match probes {
            Some(_) => assert_agreed(process, command),
            None => assert_agreed_with_the_counter(command),
        }
    }
}
