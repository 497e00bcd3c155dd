//! Wherever a compiler or a linker put the frame information, and whatever they left out, the stacks are right: complete, or ended with a reason.

use profile_recorder_tests::stacks::{self, Frame, Stack, names};
use profile_recorder_tests::{output, programs, run, scratch, text};
use std::path::Path;
use std::process::Command;

const PLAIN: &[&str] = &["-g", "-fomit-frame-pointer"];
const DEBUG_FRAME: &[&str] = &["-g", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
const NOTHING: &[&str] = &["-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
/// Allocations of `chain.c`.
const ALLOCATIONS: i64 = 4000;

fn compile(flags: &[&[&str]], to: &Path) {
    programs::gcc(Some("chain.c"), &flags.concat(), to);
}

/// A line of `readelf` about the section, if it is there.
fn section(file: &Path, name: &str) -> Option<String> {
    let sections = output(Command::new("readelf").args(["--section-details", "--wide"]).arg(file));
    let sections = text(&sections.stdout);
    let mut lines = sections.lines().skip_while(|line| !line.ends_with(&format!("] {name}"))).take(4);
    lines.next()?;
    Some(lines.collect())
}

/// Records the chain in both modes, and compares it with what it is known to be.
fn assert_exact(program: &Path, then: &[&str]) {
    let program = program.to_str().unwrap();
    let recorded = stacks::allocs(&[&[program, "allocs"], then].concat()).allocs;
    assert_eq!(stacks::count(stacks::truncated(&recorded)), 0, "{}", stacks::some(stacks::truncated(&recorded)));
    let chain = stacks::with(&recorded, "c");
    assert_eq!(stacks::count(chain.iter().copied()), ALLOCATIONS, "{}", stacks::some(&recorded));
    for stack in chain {
        assert_eq!(names(stack.from("main").unwrap()), ["main", "a", "b", "c", "malloc"]);
    }

    let ticks = stacks::ticks(&[&[program, "cpu"], then].concat());
    let all = stacks::weight(&ticks);
    assert!(all > 250_000_000, "{all} ns of a second or two");
    let is_whole = |tick: &Stack| tick.truncated().is_none() && tick.has("burn");
    let is_opened = then.first() == Some(&"dlopen");
    let (early, ticks) = stacks::until_known(&ticks, |tick| !is_opened || is_whole(tick));
    println!("{then:?}: {} ticks, {} before them", ticks.len(), early.len());
    assert_eq!(stacks::count(stacks::truncated(ticks)), 0, "{}", stacks::some(stacks::truncated(ticks)));
    let burnt = stacks::with(ticks, "burn");
    assert!(burnt.len() >= 5 && burnt.len() > 10 * early.len(), "{} of {}", burnt.len(), ticks.len());
    for tick in burnt {
        let chain = tick.from("main").unwrap_or_else(|| panic!("{}", stacks::some([tick])));
        assert_eq!(names(&chain[..5]), ["main", "a", "b", "c", "burn"]);
    }
}

/// Records the chain in both modes where frame information is missing: the stacks end with that reason after these functions, and nothing is invented.
fn assert_ends(program: &Path, after: &[&str]) {
    let file = program.file_name().unwrap().to_str().unwrap();
    let program = program.to_str().unwrap();
    let recorded = stacks::allocs(&[program, "allocs"]).allocs;
    let ended = stacks::truncated(&recorded);
    assert_eq!(stacks::count(ended.iter().copied()), ALLOCATIONS, "{}", stacks::some(&recorded));
    for stack in ended {
        assert_eq!(stack.truncated(), Some("no unwind table"));
        assert_eq!(stack.frames.len(), after.len() + 2, "{}", stacks::some([stack]));
        assert_eq!(stack.frames.last().unwrap().name, "malloc");
        for (frame, name) in stack.frames[1..].iter().zip(after) {
            assert!(frame.object == file && (*name == "*" || frame.name == *name), "{}", stacks::some([stack]));
        }
    }
    let recorded = stacks::cpu(&[program, "cpu"]).cpu;
    let ended = stacks::truncated(&recorded);
    for stack in &ended {
        assert!(stack.frames[1..].iter().all(|frame| !frame.object.is_empty()), "{}", stacks::some([*stack]));
    }
    let (ended, all) = (stacks::count(ended), stacks::count(&recorded));
    assert!(stacks::weight(&recorded) > 500_000_000, "{}", stacks::some(&recorded));
    assert!(ended * 100 >= all * 90, "{ended} of {all} ticks: {}", stacks::some(&recorded));
}

#[test]
fn an_executable_described_in_its_debugging_information_alone_is_walked() {
    let directory = scratch();
    let program = directory.path().join("program");
    compile(&[DEBUG_FRAME], &program);
    assert!(section(&program, ".debug_frame").is_some());
    assert_exact(&program, &[]);
}

#[test]
fn compressed_frame_information_is_read() {
    let directory = scratch();
    let program = directory.path().join("program");
    for how in ["-gz=zlib", "-Wl,--compress-debug-sections=zlib"] {
        compile(&[DEBUG_FRAME, &[how]], &program);
        assert!(section(&program, ".debug_frame").unwrap().contains("ZLIB"), "{how}");
        assert_exact(&program, &[]);
    }
}

/// What compilers wrote before 2015, and Go until 2022.
#[test]
fn frame_information_in_the_older_compressed_form_is_read() {
    let directory = scratch();
    let program = directory.path().join("program");
    compile(&[DEBUG_FRAME, &["-gz=zlib-gnu"]], &program);
    assert!(section(&program, ".zdebug_frame").is_some());
    assert_exact(&program, &[]);
}

#[test]
fn frame_information_without_a_search_table_is_read() {
    let directory = scratch();
    let program = directory.path().join("program");
    compile(&[PLAIN, &["-Wl,--no-eh-frame-hdr"]], &program);
    assert!(section(&program, ".eh_frame_hdr").is_none() && section(&program, ".eh_frame").is_some());
    assert_exact(&program, &[]);
}

#[test]
fn stacks_of_an_executable_without_any_frame_information_end_with_that_reason() {
    let directory = scratch();
    let program = directory.path().join("program");
    compile(&[NOTHING, &["-s"]], &program);
    assert_ends(&program, &["*"]);
}

#[test]
fn a_register_that_may_hold_anything_leads_nowhere_in_a_large_region_without_frame_information() {
    let directory = scratch();
    let program = directory.path().join("program");
    programs::gcc(Some("undescribed.c"), &[NOTHING, &["-fno-stack-protector"]].concat(), &program);
    let recorded = stacks::allocs(&[program.to_str().unwrap()]).allocs;
    let inner = stacks::with(&recorded, "inner");
    assert_eq!(stacks::count(inner.iter().copied()), 1000, "{}", stacks::some(&recorded));
    for stack in inner {
        assert_eq!(stack.names(), ["[truncated: no unwind table]", "inner", "malloc"]);
    }
}

#[test]
fn what_v8_has_in_assembly_is_walked_without_a_description() {
    let directory = scratch();
    let program = directory.path().join("program");
    programs::gcc(Some("iterates.c"), &["-fno-optimize-sibling-calls"], &program);
    let recorded = stacks::allocs(&[program.to_str().unwrap()]).allocs;
    let inner = stacks::with(&recorded, "visit");
    assert_eq!(stacks::count(inner.iter().copied()), 1000, "{}", stacks::some(&recorded));
    for stack in inner {
        let names = stack.names();
        assert!(names.ends_with(&["main", "outer", "iterate", "visit", "malloc"]), "{names:?}");
        assert!(names.first().is_some_and(|root| root.contains("_start")), "{names:?}");
    }
}

/// Objects with and without a description, linked into one executable.
fn mixed(parts: [&[&str]; 3], directory: &Path) -> std::path::PathBuf {
    let objects = [1, 2, 3].map(|part| {
        let object = directory.join(format!("{part}.o"));
        compile(&[parts[part - 1], &[&format!("-DPART={part}"), "-c"]], &object);
        object
    });
    let program = directory.join("program");
    programs::gcc(None, &objects.each_ref().map(|object| object.to_str().unwrap()), &program);
    program
}

#[test]
fn parts_that_are_described_in_different_sections_are_walked_as_one() {
    let directory = scratch();
    assert_exact(&mixed([PLAIN, DEBUG_FRAME, PLAIN], directory.path()), &[]);
    assert_exact(&mixed([PLAIN, PLAIN, DEBUG_FRAME], directory.path()), &[]);
}

#[test]
fn stacks_end_at_the_part_that_nothing_describes() {
    let directory = scratch();
    assert_ends(&mixed([PLAIN, NOTHING, PLAIN], directory.path()), &["c"]);
    assert_ends(&mixed([PLAIN, PLAIN, NOTHING], directory.path()), &["b", "c"]);
}

#[test]
fn executables_at_a_fixed_address_are_walked() {
    let directory = scratch();
    let program = directory.path().join("program");
    for described in [PLAIN, DEBUG_FRAME] {
        compile(&[described, &["-no-pie"]], &program);
        assert_exact(&program, &[]);
    }
}

/// The dynamic linker, which would load the recorder, has no part in them.
#[test]
fn static_executables_are_refused_before_they_run() {
    let directory = scratch();
    let program = directory.path().join("program");
    for how in ["-static", "-static-pie"] {
        compile(&[PLAIN, &[how]], &program);
        let profile = directory.path().join("p.json");
        let arguments = ["record", "--quiet", "--mode", "allocs", "-o", profile.to_str().unwrap(), "--"];
        let refused = output(run(&arguments).arg(&program).arg("allocs"));
        assert!(!refused.status.success() && !profile.exists(), "{how}");
        assert!(text(&refused.stderr).contains("statically linked"), "{how}: {}", text(&refused.stderr));
    }
}

/// A library with the chain, and a program without it: linked with it, or opening it while it runs.
fn assert_exact_in_library(flags: &[&[&str]]) {
    let directory = scratch();
    let (library, linked) = (directory.path().join("libchain.so"), directory.path().join("linked"));
    compile(&[&flags.concat(), &["-DLIBRARY", "-fPIC", "-shared"]], &library);
    let here = format!("-Wl,-rpath,{}", directory.path().display());
    compile(&[PLAIN, &["-DPART=1", library.to_str().unwrap(), &here]], &linked);
    assert_exact(&linked, &[]);
    let opens = directory.path().join("opens");
    compile(&[PLAIN, &["-DPART=1", "-DOPENS"]], &opens);
    assert_exact(&opens, &["dlopen", library.to_str().unwrap()]);
}

#[test]
fn libraries_are_walked() {
    assert_exact_in_library(&[PLAIN]);
}

#[test]
fn libraries_described_in_their_debugging_information_alone_are_walked() {
    assert_exact_in_library(&[DEBUG_FRAME]);
    assert_exact_in_library(&[DEBUG_FRAME, &["-gz=zlib"]]);
}

#[test]
fn libraries_without_a_search_table_are_walked() {
    assert_exact_in_library(&[PLAIN, &["-Wl,--no-eh-frame-hdr"]]);
}

/// lld is tried where it is installed: unlike gold it is no part of the compiler's packages.
#[test]
fn what_other_linkers_wrote_is_walked() {
    let lld = Command::new("ld.lld").arg("--version").output().is_ok();
    println!("linkers: gold{}", if lld { ", lld" } else { "" });
    for linker in ["-fuse-ld=gold", "-fuse-ld=lld"].into_iter().take(1 + usize::from(lld)) {
        let directory = scratch();
        let program = directory.path().join("program");
        for described in [PLAIN, DEBUG_FRAME] {
            compile(&[described, &[linker]], &program);
            assert_exact(&program, &[]);
        }
        assert_exact_in_library(&[PLAIN, &[linker]]);
    }
}

/// The program's file is replaced while it runs, by one of the same functions with other names at other places.
fn assert_replaced_is_not_taken(build_id: &str) {
    let directory = scratch();
    let (own, other) = (directory.path().join("own"), directory.path().join("other"));
    let build_id = format!("-Wl,--build-id={build_id}");
    let renamed = ["a", "b", "c", "burn", "step"].map(|name| format!("-D{name}=wrong_{name}"));
    for described in [PLAIN, DEBUG_FRAME] {
        for mode in ["allocs", "cpu"] {
            compile(&[described, &[&build_id]], &own);
            compile(&[described, &[&build_id, "-Os"], &renamed.each_ref().map(String::as_str)], &other);
            let command = [own.to_str().unwrap(), mode, "rename", other.to_str().unwrap(), own.to_str().unwrap()];
            let recorded = if mode == "cpu" { stacks::cpu(&command).cpu } else { stacks::allocs(&command).allocs };
            for stack in &recorded {
                assert_no_names(stack, "own");
            }
            // A tick can come before the chain, and after it, where the linker calls what ends the program.
            let is_elsewhere = |stack: &Stack| stack.has("rename") || stack.has("_dl_fini");
            let (complete, ended): (Vec<&Stack>, Vec<&Stack>) = recorded
                .iter()
                .filter(|stack| own_frames(stack) > 0 && !is_elsewhere(stack))
                .partition(|stack| stack.truncated().is_none());
            // _start, main, a, b, c; of the time, also burn and step. A tick can come before the next is called, most likely while the kernel brings in a page of it.
            let (least, most) = if mode == "cpu" { (2, 7) } else { (5, 5) };
            for stack in &complete {
                assert!((least..=most).contains(&own_frames(stack)), "{}", stacks::some([*stack]));
            }
            let early: Vec<&Stack> = complete.iter().copied().filter(|stack| own_frames(stack) < 4).collect();
            assert!(stacks::count(early.clone()) <= 1, "{}", stacks::some(early));
            // What is described in memory, or was read before, is walked as ever.
            if mode == "cpu" || described == PLAIN {
                println!(
                    "{mode}: {} complete, {} end early",
                    stacks::count(complete.clone()),
                    stacks::count(ended.clone())
                );
                let some = stacks::some(ended.clone());
                assert!(stacks::count(ended) == 0 && stacks::count(complete) >= 5, "{some}");
            } else {
                assert_eq!(stacks::count(complete) + stacks::count(ended), ALLOCATIONS);
            }
        }
    }
}

fn own_frames(stack: &Stack) -> usize {
    stack.frames.iter().filter(|frame| frame.object == "own").count()
}

fn assert_no_names(stack: &Stack, object: &str) {
    let unnamed = |frame: &Frame| frame.object != object || frame.name.starts_with(&format!("{object}+0x"));
    assert!(stack.frames.iter().all(unnamed), "names of another file: {}", stacks::some([stack]));
}

#[test]
fn a_file_that_took_the_place_of_the_program_gives_it_no_names_and_no_chains() {
    assert_replaced_is_not_taken("sha1");
}

#[test]
fn a_file_that_took_the_place_of_the_program_is_told_apart_without_a_build_id() {
    assert_replaced_is_not_taken("none");
}
