//! Allocations that come in by another door than the exported functions: executables with a malloc of their own, allocators with operators of their own.

use profile_recorder_tests::stacks::{self, Stack};
use profile_recorder_tests::{folded, output, programs, run, scratch, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4";

fn victim(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("victims/doors").join(name)
}

fn compile(compiler: &str, arguments: &[&str], source: &str, to: &Path) {
    let run = output(Command::new(compiler).args(["-O2", "-g", "-o"]).arg(to).arg(victim(source)).args(arguments));
    assert!(run.status.success(), "{compiler} {arguments:?}: {}", text(&run.stderr));
}

/// What the command itself prints and how it ends, alone and counted; and the counts.
fn counted(command: &[&str], preload: &str) -> (Output, Output, Value) {
    let directory = scratch();
    let json = directory.path().join("stat.json");
    let alone = output(Command::new(command[0]).args(&command[1..]).env("LD_PRELOAD", preload));
    let arguments = ["stat", "--json", "-o", json.to_str().unwrap(), "--"];
    let counted = output(run(&arguments).args(command).env("LD_PRELOAD", preload));
    let json = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    (alone, counted, json)
}

fn calls(json: &Value, function: &str) -> u64 {
    json["functions"][function]["calls"].as_u64().unwrap_or(0)
}

fn assert_same(alone: &Output, recorded: &Output) {
    assert_eq!(text(&alone.stdout), text(&recorded.stdout));
    assert_eq!(text(&alone.stderr), text(&recorded.stderr));
    assert_eq!(alone.status, recorded.status);
}

/// An executable with a malloc of its own, in `directory`, as a command.
fn own_malloc(directory: &Path, flags: &[&str]) -> [String; 2] {
    let [program, linked, opened] = ["own", "liblinked.so", "libopened.so"].map(|name| directory.join(name));
    let library = ["-shared", "-fPIC", "-fno-builtin", "-fno-optimize-sibling-calls"];
    compile("gcc", &[&library[..], &["-DNAME=linked"]].concat(), "calls.c", &linked);
    compile("gcc", &[&library[..], &["-DNAME=opened"]].concat(), "calls.c", &opened);
    let path = format!("-Wl,-rpath,{}", directory.display());
    let arguments = [&["-fno-builtin", "-rdynamic", linked.to_str().unwrap(), &path], flags].concat();
    compile("gcc", &arguments, "own.c", &program);
    [program, opened].map(|path| path.to_str().unwrap().to_owned())
}

/// What `own.c` printed: calls of each function from itself, from the dynamic linker and from all others.
fn books(output: &Output) -> Vec<(String, [u64; 3])> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap().to_owned();
        (name, [(); 3].map(|()| words.next().unwrap().parse().unwrap()))
    };
    text(&output.stdout).lines().map(line).collect()
}

/// Constructors of an object that is opened run while `dlopen` has not returned: two times a call of malloc and of free.
const WHILE_OPENED: u64 = 2;

#[test]
fn what_libraries_call_in_an_executable_with_its_own_malloc_is_counted_to_the_unit() {
    for flags in [&["-Wl,-z,lazy"][..], &["-Wl,-z,now"], &["-no-pie"]] {
        let directory = scratch();
        let command = own_malloc(directory.path(), flags);
        let command = [command[0].as_str(), &command[1], "fails"];
        let (alone, recorded, json) = counted(&command, "");
        assert_same(&alone, &recorded);
        assert_eq!(alone.status.code(), Some(3));
        for (function, [here, _, others]) in books(&recorded) {
            let missed = if ["malloc", "free"].contains(&function.as_str()) { WHILE_OPENED } else { 0 };
            assert_eq!(calls(&json, &function), others - missed, "{function}, {flags:?}: {json}");
            assert!(others > 1200 && (here == 7 || missed == 0), "{function}: {here} {others}");
        }
        let unseen = "own exports its own malloc; calls that it makes itself without an import slot are not seen";
        assert_eq!(json["unseen"], serde_json::json!([unseen]));
    }
}

#[test]
fn libraries_that_come_and_go_while_others_allocate_are_counted_to_the_unit() {
    let directory = scratch();
    let command = own_malloc(directory.path(), &[]);
    for mode in ["stat", "heap"] {
        let command = [command[0].as_str(), &command[1], "storm"];
        let directory = scratch();
        let to = directory.path().join("to.json");
        let arguments =
            [&["stat", "--json"][..], &["record", "--quiet", "--mode", "heap"]][usize::from(mode == "heap")];
        let arguments = [arguments, &["-o", to.to_str().unwrap(), "--"]].concat();
        let recorded = output(run(&arguments).args(command));
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        let books = books(&recorded);
        // What constructors do not call.
        for (function, [_, _, others]) in
            books.iter().filter(|(name, _)| ["realloc", "memalign"].contains(&name.as_str()))
        {
            // The C library makes `reallocarray` of `realloc`.
            let once = 2 * 3000 * 10 + 2 * 300 * 3 + 1231;
            assert_eq!(*others, if function == "realloc" { 2 * once + 4 } else { once }, "{function}");
            if mode == "stat" {
                let json: Value = serde_json::from_slice(&std::fs::read(&to).unwrap()).unwrap();
                assert_eq!(calls(&json, function), *others, "{function}: {json}");
            }
        }
    }
}

#[test]
fn an_executable_whose_malloc_calls_the_next_one_is_counted_once() {
    let directory = scratch();
    let command = own_malloc(directory.path(), &["-DTHROUGH_NEXT"]);
    let (alone, recorded, json) = counted(&command.each_ref().map(String::as_str), "");
    assert_same(&alone, &recorded);
    for (function, callers) in books(&recorded) {
        assert_eq!(calls(&json, &function), callers.iter().sum::<u64>(), "{function}: {json}");
    }
}

#[test]
fn the_stacks_begin_in_the_library_and_end_in_the_function() {
    let directory = scratch();
    let command = own_malloc(directory.path(), &[]);
    let recorded = stacks::allocs(&command.each_ref().map(String::as_str)).allocs;
    // The last is for calls of an object that is bound to the C library, but not that library's own.
    for (function, times, deep) in [("linked", 1001, 0), ("opened", 230, 4)] {
        for leaf in ["malloc", "calloc", "realloc", "memalign"] {
            let ends = |stack: &&Stack| stack.names().ends_with(&["main", function, "allocate", leaf]);
            let inlined = |stack: &&Stack| stack.names().ends_with(&["main", "call", function, "allocate", leaf]);
            let found = recorded.iter().filter(|stack| ends(stack) || inlined(stack));
            let expected = match leaf {
                "malloc" => 3 * times,
                // The C library makes `reallocarray` of it, and leaves no frame.
                "realloc" => 2 * times + deep,
                _ => times,
            };
            assert_eq!(stacks::count(found), expected, "{function} {leaf}: {}", stacks::some(&recorded));
        }
    }
}

#[test]
fn what_cannot_be_seen_is_said_on_standard_error_and_in_the_profile() {
    let directory = scratch();
    let command = own_malloc(directory.path(), &[]);
    let profile = directory.path().join("p.folded");
    let recorded = output(run(&["record", "--mode", "allocs", "-o", profile.to_str().unwrap(), "--"]).args(&command));
    let unseen = "own exports its own malloc; calls that it makes itself without an import slot are not seen";
    let stderr = text(&recorded.stderr);
    assert!(stderr.lines().any(|line| line == format!("warning: {unseen}")), "{stderr}");
    let profile = std::fs::read_to_string(profile).unwrap();
    assert!(profile.lines().any(|line| line.starts_with("# ") && line.ends_with(unseen)), "{profile}");
    let python = output(run(&["stat", "--"]).args([programs::python().as_str(), "-c", "pass"]));
    assert!(!text(&python.stderr).contains("not seen"), "{}", text(&python.stderr));
}

/// Calls and bytes of the operators in `operators.cc`, whose tables are gone through six times: of those that take an alignment, and of the others.
const ALIGNED: (u64, u64) = (6 * (70 + 60 + 50 + 10 + 9 + 8), 6 * (2800 + 3000 + 3000 + 1000 + 990 + 960));
const OTHERS: (u64, u64) = (6 * (100 + 90 + 80 + 40 + 30 + 20), 6 * (1000 + 1800 + 2400 + 2800 + 2400 + 1800));
/// The failure that throws nothing.
const FAILED: (u64, u64) = (1, 1 << 62);

/// What is known to be called of `operator new`. Debian's jemalloc does not bring those with an alignment along: the C++ library's call its `aligned_alloc`.
fn known(allocator: &str) -> (u64, u64) {
    let aligned = if allocator == TCMALLOC { ALIGNED } else { (0, 0) };
    (aligned.0 + OTHERS.0, aligned.1 + OTHERS.1)
}

/// A program with all kinds of operators, linked with these flags.
fn operators(directory: &Path, name: &str, flags: &[&str]) -> String {
    linked("g++", "operators.cc", directory, name, &[&["-std=c++17"], flags].concat())
}

fn linked(compiler: &str, source: &str, directory: &Path, name: &str, flags: &[&str]) -> String {
    let program = directory.join(name);
    compile(compiler, flags, source, &program);
    program.to_str().unwrap().to_owned()
}

#[test]
fn operators_that_an_allocator_brings_along_are_counted_to_the_unit() {
    let directory = scratch();
    let program = operators(directory.path(), "plain", &[]);
    let bound = operators(directory.path(), "bound", &["-no-pie", "-Wl,-z,now"]);
    let linked = operators(directory.path(), "linked", &[JEMALLOC]);
    for (program, preload) in
        [(&program, JEMALLOC), (&program, TCMALLOC), (&bound, JEMALLOC), (&bound, TCMALLOC), (&linked, "")]
    {
        let (alone, recorded, json) = counted(&[program], preload);
        assert_same(&alone, &recorded);
        assert_eq!(recorded.status.code(), Some(5));
        assert!(text(&recorded.stdout).contains("unwound 10"), "{}", text(&recorded.stdout));
        let (calls_known, bytes) = known(preload);
        assert_eq!(calls(&json, "operator new"), calls_known + FAILED.0, "{preload}: {json}");
        assert_eq!(json["functions"]["operator new"]["bytes"], bytes + FAILED.1, "{preload}");
        let aligned = json["functions"]["aligned_alloc"]["bytes"].as_u64().unwrap_or(0);
        let all = (calls(&json, "operator new") + calls(&json, "aligned_alloc"), bytes + aligned);
        assert_eq!(all, (ALIGNED.0 + OTHERS.0 + FAILED.0, ALIGNED.1 + OTHERS.1), "{preload}: {json}");
        assert_eq!(calls(&json, "operator delete"), ALIGNED.0 + OTHERS.0, "{preload}: {json}");
        assert!(calls(&json, "free") < 20, "{preload}: {json}");
        assert_eq!(json.get("unseen"), None);
    }
}

#[test]
fn functions_that_jemalloc_has_besides_are_counted_and_followed_to_the_unit() {
    let directory = scratch();
    let program = |name, flags: &[&str]| linked("gcc", "jemalloc.c", directory.path(), name, flags);
    let plain = program("plain", &[]);
    let [bound, linked] = [program("bound", &["-no-pie", "-Wl,-z,now"]), program("linked", &[JEMALLOC])];
    for (program, preload) in [(&plain, JEMALLOC), (&bound, JEMALLOC), (&linked, "")] {
        let (alone, recorded, json) = counted(&[program], preload);
        assert_same(&alone, &recorded);
        let printed = text(&recorded.stdout);
        let mut lines = printed.lines();
        assert_eq!(lines.next(), Some("resized 120 zeroed 60"));
        for line in lines {
            let [function, calls_made, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            assert_eq!(calls(&json, function).to_string(), calls_made, "{function}: {json}");
            let counted = json["functions"][function]["bytes"].as_u64().unwrap_or(0);
            assert_eq!(counted.to_string(), bytes, "{function}: {json}");
        }
        assert_eq!(calls(&json, "free"), 80, "{json}");
        assert_eq!(json.get("unseen"), None);

        let profile = directory.path().join("live.folded");
        let record = ["record", "--quiet", "--mode", "heap", "-o", profile.to_str().unwrap(), "--"];
        let recorded = output(run(&record).arg(program).env("LD_PRELOAD", preload));
        assert_same(&alone, &recorded);
        // What was made by `mallocx` and got its last size by `xallocx`; of all else there is nothing left.
        assert_eq!(folded::sum(&profile, ";resize;xallocx"), 7 * 5001, "{preload}");
        assert_eq!(folded::sum(&profile, "allocx"), 7 * 5001, "{preload}");
        assert_eq!(folded::sum(&profile, ";main;malloc"), 0, "{preload}");
    }
    for preload in [TCMALLOC, ""] {
        let (alone, recorded, json) = counted(&[&plain], preload);
        assert_same(&alone, &recorded);
        assert_eq!((recorded.status.code(), calls(&json, "mallocx")), (Some(9), 0));
    }
}

#[test]
fn blocks_that_an_allocator_is_given_back_with_their_size_are_freed() {
    let directory = scratch();
    let [allocator, program] = ["liballocator.so", "sized"].map(|name| directory.path().join(name));
    compile("gcc", &["-DALLOCATOR", "-shared", "-fPIC", "-fno-builtin"], "sized.c", &allocator);
    compile("gcc", &["-fno-builtin", "-fno-optimize-sibling-calls"], "sized.c", &program);
    let [allocator, program] = [&allocator, &program].map(|path| path.to_str().unwrap());
    let (alone, recorded, json) = counted(&[program], allocator);
    assert_same(&alone, &recorded);
    assert_eq!(recorded.status.code(), Some(0));
    assert_eq!(calls(&json, "free"), 1501, "{json}");
    let profile = directory.path().join("live.folded");
    let record = ["record", "--quiet", "--mode", "heap", "-o", profile.to_str().unwrap(), "--"];
    let recorded = output(run(&record).arg(program).env("LD_PRELOAD", allocator));
    assert_same(&alone, &recorded);
    assert_eq!((folded::sum(&profile, ";make;malloc"), folded::sum(&profile, ";aligned_alloc")), (77, 0));
}

#[test]
fn operators_of_the_c_plus_plus_library_are_what_they_call() {
    let directory = scratch();
    let program = operators(directory.path(), "plain", &[]);
    let (alone, recorded, json) = counted(&[&program], "");
    assert_same(&alone, &recorded);
    assert_eq!((calls(&json, "operator new"), calls(&json, "operator delete")), (0, 0));
    assert!(calls(&json, "free") >= OTHERS.0 + ALIGNED.0 && calls(&json, "malloc") > 0, "{json}");
}

#[test]
fn what_operators_allocate_has_a_stack_and_an_end() {
    let directory = scratch();
    let program = operators(directory.path(), "plain", &[]);
    let profile = directory.path().join("h.folded");
    for preload in [JEMALLOC, TCMALLOC] {
        let arguments = ["record", "--quiet", "--mode", "heap,allocs", "-o", profile.to_str().unwrap(), "--", &program];
        let recorded = output(run(&arguments).env("LD_PRELOAD", preload));
        assert_eq!(recorded.status.code(), Some(5), "{}", text(&recorded.stderr));
        let folded = |mode: &str| std::fs::read_to_string(directory.path().join(format!("h.{mode}.folded"))).unwrap();
        let operators = |folded: &str| {
            let lines = folded.lines().filter(|line| line.contains(";operator new ") && line.contains(";main;"));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
        };
        assert_eq!(operators(&folded("allocs")), known(preload).0, "{}", folded("allocs"));
        assert_eq!(operators(&folded("heap")), 0, "{}", folded("heap"));
    }
}

/// The compiler itself, not the launcher that looks for one.
fn rustc() -> String {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]));
    format!("{}/bin/rustc", text(&sysroot.stdout).trim())
}

#[test]
fn rustc_compiles_the_same_and_its_allocations_are_seen() {
    let scratch = scratch();
    let directory = scratch.path();
    let good = "pub fn sum(s: &str) -> u64 { s.lines().filter_map(|l| l.parse::<u64>().ok()).sum() }\n#[derive(Debug)] pub struct S(u8);\n";
    let rustc = rustc();
    let compile = ["--crate-type", "lib", "-O", "small.rs"];
    for (source, code) in [("pub fn f() -> u8 { \"\" }\n", 1), (good, 0)] {
        std::fs::write(directory.join("small.rs"), source).unwrap();
        let alone = output(Command::new(&rustc).args(compile).current_dir(directory));
        let library = std::fs::read(directory.join("libsmall.rlib")).ok();
        let arguments = ["stat", "--json", "-o", "stat.json", "--", &rustc];
        let counted = output(run(&arguments).args(compile).current_dir(directory));
        assert_same(&alone, &counted);
        assert_eq!(counted.status.code(), Some(code));
        assert!(library == std::fs::read(directory.join("libsmall.rlib")).ok(), "the same library, or none");
        let json: Value = serde_json::from_slice(&std::fs::read(directory.join("stat.json")).unwrap()).unwrap();
        assert!(calls(&json, "malloc") > 1000 && calls(&json, "free") > 1000, "{json}");
    }
    let arguments = ["record", "--quiet", "--mode", "allocs", "-o", "r.folded", "--", &rustc];
    let run = output(run(&arguments).args(compile).current_dir(directory));
    assert!(run.status.success(), "{}", text(&run.stderr));
    let folded = std::fs::read_to_string(directory.join("r.folded")).unwrap();
    let of_driver = folded.lines().filter(|line| !line.starts_with('#') && line.contains("rustc_driver_impl"));
    let count: u64 = of_driver.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert!(count > 1000, "{count} allocations below the driver");
}

/// A procedural macro is a library that rustc opens, and asks for its one function.
#[test]
fn what_a_procedural_macro_allocates_in_rustc_is_seen_from_its_first_call_on() {
    let scratch = scratch();
    let directory = scratch.path();
    let library = "extern crate proc_macro;\n\
        #[inline(never)] fn allocates() -> usize { (0..1234).map(|i| std::hint::black_box(Box::new(i))).filter(|i| **i != 7).count() }\n\
        #[proc_macro] pub fn count(_: proc_macro::TokenStream) -> proc_macro::TokenStream { allocates().to_string().parse().unwrap() }\n";
    std::fs::write(directory.join("counts.rs"), library).unwrap();
    std::fs::write(directory.join("uses.rs"), "pub const N: usize = counts::count!();\n").unwrap();
    let rustc = rustc();
    let compile = ["--crate-type", "proc-macro", "-O", "counts.rs"];
    let compiled = output(Command::new(&rustc).args(compile).current_dir(directory));
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let uses = ["--crate-type", "lib", "--emit", "metadata", "--extern", "counts=libcounts.so", "uses.rs"];
    let arguments = ["record", "--quiet", "--mode", "allocs", "-o", "r.folded", "--", &rustc];
    let recorded = output(run(&arguments).args(uses).current_dir(directory));
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let folded = std::fs::read_to_string(directory.join("r.folded")).unwrap();
    let lines = folded.lines().filter(|line| line.contains("counts::allocates"));
    let count: u64 = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(count, 1234);
}
