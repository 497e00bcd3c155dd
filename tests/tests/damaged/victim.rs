//! The program and its library, and what recording them gives.

use profile::decode::{Limits, pprof};
use profile_recorder_tests::{output, place_program, profrec, scratch, text};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// How long a run may take that takes a second: a loop is an endless one.
const SECONDS: &str = "120";

/// Which of the two files is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Program,
    Library,
    Both,
}

impl Which {
    pub(crate) fn files(self) -> &'static [&'static str] {
        match self {
            Self::Program => &["damaged"],
            Self::Library => &["libdamaged.so"],
            Self::Both => &["damaged", "libdamaged.so"],
        }
    }

    /// Functions that run on a stack without a frame of what is damaged.
    pub(crate) fn intact(self) -> &'static [&'static str] {
        match self {
            Self::Program => &["library_alone"],
            Self::Library => &["program_alone"],
            Self::Both => &[],
        }
    }
}

pub(crate) fn gcc(arguments: &[&str], output: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims/damaged.c");
    let status = Command::new("gcc")
        .args(["-O2", "-g", "-fno-builtin", "-Wl,--build-id", "-o"])
        .arg(output)
        .arg(source)
        .args(arguments)
        .arg("-lpthread")
        .status();
    assert!(status.is_ok_and(|status| status.success()), "gcc {arguments:?}");
}

const LIBRARY: [&str; 5] = ["-DLIBRARY", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libdamaged.so"];

/// Compiles both halves, with more options for each.
pub(crate) fn compile(directory: &Path, options: &[&str]) {
    let library = directory.join("libdamaged.so");
    gcc(&[&LIBRARY[..], options].concat(), &library);
    gcc(&[&["-Wl,-rpath,$ORIGIN", library.to_str().unwrap()], options].concat(), &directory.join("damaged"));
}

/// Compiles a library with the same code at the same places, and other names.
pub(crate) fn impostor(library: &Path) {
    let names = ["library_turn", "library_compare", "library_works_alone", "library_alone", "library_alone_deeper"];
    let renamed = names.map(|name| format!("-D{name}={}", name.replace("library", "impostr")));
    let renamed: Vec<&str> = renamed.iter().map(String::as_str).collect();
    gcc(&[&LIBRARY[..], &renamed].concat(), library);
}

/// Runs a command, with an end to it.
pub(crate) fn within_time(command: &[&str]) -> Output {
    let run = output(Command::new("timeout").args(["--signal=KILL", SECONDS]).args(command));
    assert_ne!(run.status.code(), Some(137), "{command:?} does not end");
    run
}

pub(crate) fn recorded(mode: &str, profile: &Path, command: &[&str]) -> Output {
    // Only CPU time takes time to come by.
    let set = if mode == "cpu" { "--unset=BRIEF" } else { "BRIEF=1" };
    let mut arguments = vec!["env", set, profrec().to_str().unwrap(), "record", "--quiet", "--mode", mode];
    if mode == "cpu" {
        arguments.extend(["--hz", "997"]);
    }
    arguments.extend(["-o", profile.to_str().unwrap(), "--"]);
    arguments.extend(command);
    within_time(&arguments)
}

/// A profile's total, and the values of its stacks by their names, root first.
pub(crate) struct Found {
    pub(crate) total: i64,
    pub(crate) stacks: BTreeMap<Vec<String>, i64>,
}

pub(crate) fn read(path: &Path, column: &str) -> Found {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (profile, symbols) = pprof::decode(&bytes, Limits::default()).unwrap();
    let column = profile.column(column).unwrap();
    let mut stacks = BTreeMap::new();
    for sample in &profile.samples {
        let frames: Vec<_> = profile.stacks.frames_leaf_first(sample.stack).collect();
        let names = frames.iter().rev().flat_map(|frame| profile::names::of(frame, &profile, &symbols));
        *stacks.entry(names.map(|name| name.into_owned()).collect()).or_default() += sample.values[column];
    }
    Found { total: profile.total(column), stacks }
}

impl Found {
    /// The stacks that lead through one of these functions.
    pub(crate) fn through(&self, functions: &[&str]) -> BTreeMap<&Vec<String>, i64> {
        let leads = |names: &Vec<String>| names.iter().any(|name| functions.contains(&name.as_str()));
        self.stacks.iter().filter(|(names, _)| leads(names)).map(|(names, value)| (names, *value)).collect()
    }

    /// How many values stacks of each depth have.
    pub(crate) fn depths(&self) -> BTreeMap<usize, i64> {
        let mut depths = BTreeMap::new();
        for (names, value) in &self.stacks {
            *depths.entry(names.len()).or_default() += value;
        }
        depths
    }

    pub(crate) fn is_named(&self, part: &str) -> bool {
        self.stacks.keys().flatten().any(|name| name.contains(part))
    }
}

/// What the sound program does.
pub(crate) struct Sound {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) stdout: String,
    pub(crate) allocations: i64,
    pub(crate) allocs: Found,
}

pub(crate) fn sound() -> &'static Sound {
    static SOUND: OnceLock<Sound> = OnceLock::new();
    SOUND.get_or_init(|| {
        let directory = scratch();
        compile(directory.path(), &[]);
        let program = directory.path().join("damaged");
        let program = program.to_str().unwrap();
        let stdout = text(&output(&mut Command::new(program)).stdout);
        let profile = directory.path().join("sound.pb.gz");
        let run = recorded("allocs", &profile, &[program]);
        assert!(run.status.success(), "{}", text(&run.stderr));
        let allocs = read(&profile, "alloc_objects");
        for function in ["program_alone", "library_alone", "library_compare"] {
            assert!(allocs.through(&[function]).values().sum::<i64>() > 200, "{function} allocates");
        }
        Sound { allocations: counted(&[program]), stdout, allocs, directory }
    })
}

/// Allocations as `profrec stat` counts them, without any stack.
pub(crate) fn counted(command: &[&str]) -> i64 {
    let directory = scratch();
    let json = directory.path().join("stat.json");
    let stat = [profrec().to_str().unwrap(), "stat", "--json", "-o", json.to_str().unwrap(), "--"];
    let run = within_time(&[&stat[..], command].concat());
    assert!(run.status.success(), "{command:?}: {}", text(&run.stderr));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let functions = json["functions"].as_object().unwrap().iter().filter(|(name, _)| *name != "free");
    functions.map(|(_, function)| function["calls"].as_i64().unwrap()).sum()
}

/// The program and its library, in a directory of their own.
pub(crate) fn copied(from: &Path) -> (tempfile::TempDir, PathBuf) {
    let directory = scratch();
    for file in Which::Both.files() {
        place_program(&from.join(file), &directory.path().join(file));
    }
    let program = directory.path().join("damaged");
    (directory, program)
}

/// Records a program in every mode; `prepare` makes its files as they were. The allocations' profile is returned.
///
/// The program does the same every time, so that its allocations are those that `profrec stat` counted in the sound one.
pub(crate) fn assert_survives(what: &str, command: &[&str], prepare: impl Fn()) -> Found {
    let directory = scratch();
    let mut allocs = None;
    for mode in ["allocs", "heap", "cpu"] {
        prepare();
        let profile = directory.path().join(format!("{mode}.pb.gz"));
        let run = recorded(mode, &profile, command);
        assert_eq!(text(&run.stdout), sound().stdout, "{what}, mode {mode}: {}", text(&run.stderr));
        assert_eq!((text(&run.stderr).as_str(), run.status.code()), ("", Some(0)), "{what}, mode {mode}");
        if mode == "cpu" {
            assert!(read(&profile, "cpu").total > 0, "{what}");
        } else {
            let found = read(&profile, "alloc_objects");
            assert_eq!(found.total, sound().allocations, "{what}, mode {mode}: every allocation");
            allocs.get_or_insert(found);
        }
    }
    allocs.unwrap()
}
