//! Code that is made at run time: the stacks of C below and above it stay complete, and what lay at an address before says nothing about it.

use profile_recorder_tests::programs::PerfMap;
use profile_recorder_tests::stacks::{self, Frame, Stack};
use profile_recorder_tests::{programs, scratch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls of `outer` in `generated.c`, number and distance of the functions that it generates.
const CALLS: u64 = 3000;
const FUNCTIONS: u64 = 300;
const APART: u64 = 16;
/// Where the calls end in CPython's trampoline, and in a function with a frame pointer.
const TRAMPOLINE: u64 = 6;
const FRAMED: u64 = 10;

fn victim(directory: &Path) -> String {
    let program = directory.join("generated");
    programs::gcc(Some("generated.c"), &["-g"], &program);
    program.to_str().unwrap().to_owned()
}

fn is_generated(frame: &Frame) -> bool {
    frame.object.is_empty() && frame.name.starts_with("[unknown]")
}

/// The names, those of generated code all the same.
fn shape(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| if is_generated(frame) { "generated" } else { frame.name.as_str() }).collect()
}

fn assert_complete(recorded: &[Stack]) {
    let truncated = stacks::truncated(recorded);
    assert_eq!(stacks::count(truncated.iter().copied()), 0, "{}", stacks::some(truncated));
}

/// The allocations below `function`, each with this shape.
fn assert_shape<'a>(recorded: &'a [Stack], function: &str, count: i64, shape_of_each: &[&str]) -> Vec<&'a Stack> {
    let found = stacks::with(recorded, function);
    assert_eq!(stacks::count(found.iter().copied()), count, "{function}: {}", stacks::some(recorded));
    for stack in &found {
        assert_eq!(shape(stack.from("main").unwrap_or_default()), shape_of_each, "{}", stacks::some([*stack]));
    }
    found
}

const THROUGH: &[&str] = &["main", "work", "outer", "through", "generated", "middle", "through", "generated"];

/// C, generated code, C, generated code, C, malloc: each allocation went through the two functions that it is known to have gone through.
fn assert_every_allocation(case: &str, call_ends: u64) {
    let directory = scratch();
    let recorded = stacks::allocs(&[&victim(directory.path()), case]);
    assert_complete(&recorded.allocs);
    let found = assert_shape(&recorded.allocs, "outer", CALLS as i64, &[THROUGH, &["allocates", "malloc"]].concat());
    let code: u64 = recorded.stdout.trim().parse().unwrap();
    let address = |number: u64| code + number % FUNCTIONS * APART + call_ends;
    let (mut expected, mut counted) = (BTreeMap::new(), BTreeMap::new());
    (0..CALLS).for_each(|i| *expected.entry(vec![address(i), address(i * 7)]).or_insert(0) += 1);
    for stack in found {
        let through = stack.frames.iter().filter(|frame| is_generated(frame)).map(|frame| frame.address).collect();
        *counted.entry(through).or_insert(0) += stack.count;
    }
    assert!(counted == expected, "the functions that the calls went through");
}

/// Ticks at any instruction, those of the generated functions among them.
fn assert_nearly_every_tick(case: &str, call_ends: u64) {
    let directory = scratch();
    let (recorded, ticks) = stacks::cpu_and_ticks(&[&victim(directory.path()), case, "burn"]);
    let code: u64 = recorded.stdout.trim().parse().unwrap();
    let mut within = 0;
    for stack in recorded.cpu.iter().filter(|stack| stack.truncated().is_none()) {
        let Some(frames) = stack.from("main").filter(|_| stack.has("outer")) else { continue };
        let whole = [THROUGH, &["does_little"]].concat();
        assert!(whole.starts_with(&shape(frames)), "{}", stacks::some([stack]));
        let (leaf, callers) = frames.split_last().unwrap();
        for caller in callers.iter().filter(|frame| is_generated(frame)) {
            let offset = caller.address - code;
            assert!(offset < FUNCTIONS * APART && offset % APART == call_ends, "{offset:#x}");
        }
        within += if is_generated(leaf) { stack.count } else { 0 };
    }
    let all = stacks::weight(&recorded.cpu);
    assert!(all > 500_000_000 && within > 0, "{all} ns, {within} ticks within generated code");
    let is_whole =
        |tick: &Stack| tick.truncated().is_none() && tick.frames.iter().any(|frame| frame.name == "[unknown]");
    let (early, ticks) = stacks::until_known(&ticks, is_whole);
    println!("{case}: {} ticks in {all} ns, {} before them, {within} in generated code", ticks.len(), early.len());
    assert_complete(ticks);
    assert!(ticks.len() > 10 * early.len(), "{} ticks before the code is known: {}", early.len(), stacks::some(early));
}

#[test]
fn every_allocation_through_trampolines_of_cpython_is_complete() {
    assert_every_allocation("trampolines", TRAMPOLINE);
}

#[test]
fn ticks_in_and_above_trampolines_of_cpython_are_complete() {
    assert_nearly_every_tick("trampolines", TRAMPOLINE);
}

#[test]
fn every_allocation_through_generated_frames_is_complete() {
    assert_every_allocation("frame-pointers", FRAMED);
}

#[test]
fn ticks_in_and_above_generated_frames_are_complete() {
    assert_nearly_every_tick("frame-pointers", FRAMED);
}

/// At the first and the last instructions of a function the frame pointer is still, or again, its caller's.
#[test]
fn ticks_in_generated_code_do_not_skip_its_generated_caller() {
    const CALLEE: std::ops::Range<u64> = 0..6;
    const CALL_ENDS: u64 = 64 + 13;
    let directory = scratch();
    let recorded = stacks::cpu(&[&victim(directory.path()), "nested"]);
    let code: u64 = recorded.stdout.trim().parse().unwrap();
    let in_callee = |stack: &&Stack| {
        stack.frames.last().is_some_and(|leaf| is_generated(leaf) && CALLEE.contains(&leaf.address.wrapping_sub(code)))
    };
    let right = |stack: &&Stack| {
        let frames = stack.from("main").unwrap_or_default();
        shape(frames) == ["main", "nested", "generated", "generated"] && frames[2].address == code + CALL_ENDS
    };
    let (right, wrong): (Vec<&Stack>, Vec<&Stack>) = recorded.cpu.iter().filter(in_callee).partition(right);
    let (ended, wrong): (Vec<&Stack>, Vec<&Stack>) = wrong.into_iter().partition(|stack| stack.truncated().is_some());
    println!(
        "{} ticks right, {} truncated",
        stacks::count(right.iter().copied()),
        stacks::count(ended.iter().copied())
    );
    assert_eq!(stacks::count(wrong.iter().copied()), 0, "{}", stacks::some(wrong));
    assert!(stacks::weight(right.iter().copied()) > 300_000_000, "{}", stacks::some(&recorded.cpu));
    assert!(stacks::count(ended.iter().copied()) * 20 <= stacks::count(right), "{}", stacks::some(ended));
}

#[test]
fn what_the_caller_of_generated_code_keeps_in_the_frame_pointer_does_not_matter() {
    let directory = scratch();
    let recorded = stacks::allocs(&[&victim(directory.path()), "any-frame-pointer"]).allocs;
    assert_complete(&recorded);
    let way = ["main", "any_frame_pointer", "call_with_rbp", "generated", "allocates", "malloc"];
    assert_shape(&recorded, "allocates", 700, &way);
}

/// Trampolines and framed functions by turns at one address, written over each other or into memory that was given back and obtained again.
#[test]
fn code_in_the_place_of_other_code_is_walked_as_what_it_is() {
    let directory = scratch();
    for case in ["remapped", "rewritten"] {
        let recorded = stacks::allocs(&[&victim(directory.path()), case]).allocs;
        assert_complete(&recorded);
        assert_shape(
            &recorded,
            "as_trampoline",
            100,
            &["main", "replaced", "as_trampoline", "generated", "allocates", "malloc"],
        );
        assert_shape(
            &recorded,
            "as_framed",
            100,
            &["main", "replaced", "as_framed", "generated", "allocates", "malloc"],
        );
    }
}

#[test]
fn a_library_in_the_place_of_generated_code_is_walked_as_what_it_is() {
    let directory = scratch();
    let library = directory.path().join("libopened.so");
    programs::gcc(Some("opened.c"), &["-g", "-fPIC", "-shared"], &library);
    let recorded = stacks::allocs(&[&victim(directory.path()), "library", library.to_str().unwrap()]);
    let met: u32 = recorded.stdout.trim().parse().unwrap();
    println!("{met} of 100 libraries were opened where the code had been");
    assert!(met > 50, "{met} of 100 libraries were opened where the code had been");
    assert_complete(&recorded.allocs);
    let way = ["main", "library", "from_trampoline", "generated", "allocates", "malloc"];
    assert_shape(&recorded.allocs, "from_trampoline", 100, &way);
    assert_shape(&recorded.allocs, "enters", 100, &["main", "library", "from_library", "enters", "malloc"]);
}

/// Functions that run hot, are optimised, and allocate outside of the engine's heap. The first line printed is the process's number.
const HOT: &str = "console.log(process.pid);
    function buffers(n) { let s = 0; for (let i = 0; i < n; i++) s += Buffer.alloc(20000 + i % 7).length; return s; }
    function json(n) {
      let s = 0;
      for (let i = 0; i < n; i++) s += JSON.parse(JSON.stringify({i, a: [1, 2, 3], b: 'x'.repeat(100 + i % 50)})).a.length;
      return s;
    }
    function flat(n) {
      let s = 0;
      for (let i = 0; i < n; i++) { let t = ''; for (let k = 0; k < 200; k++) t += k; s += Buffer.from(t).length; }
      return s;
    }
    function outer(n) { return buffers(n) + json(n) + flat(n); }
    let t = 0;
    for (let i = 0; i < ROUNDS; i++) t += outer(300);
    console.log(t);";

/// Node with names for the code that it generates; it leaves a log where it runs.
fn node<'a>(directory: &'a Path, script: &'a str) -> [&'a str; 7] {
    ["env", "-C", directory.to_str().unwrap(), "node", "--perf-basic-prof", "-e", script]
}

/// The names of a program's generated code. The first line that it printed is the process's number.
fn perf_map(stdout: &str) -> PerfMap {
    PerfMap::of(stdout.lines().next().unwrap_or_default().parse().expect("a process's number"))
}

fn is_hot(stack: &Stack, how: char) -> bool {
    ["buffers", "json", "flat", "outer"]
        .iter()
        .any(|name| stack.frames.iter().any(|frame| frame.name.starts_with(&format!("JS:{how}{name} "))))
}

/// Whether nothing of its callers is on the stack. A builtin of V8 has no return address while it asks for another version of a function that runs hot: `BaselineOrInterpreterEntry` sets up a
/// frame without having been called. And `DeoptimizationEntry` takes the frame of the function whose optimised code does not fit any more from the stack, before it asks for the frames that go in
/// its place: the frame pointer leads to where this frame was.
fn has_no_caller(stack: &Stack) -> bool {
    let is = |position: usize, name: &str| stack.frames.get(position).is_some_and(|frame| frame.name.contains(name));
    is(1, "OnStackReplacement")
        || (is(1, "Builtins_DeoptimizationEntry") && is(2, "Deoptimizer::DoComputeOutputFrames"))
}

#[test]
fn every_allocation_of_optimised_javascript_is_complete() {
    let script = HOT.replace("ROUNDS", "300");
    let directory = scratch();
    let recorded = stacks::allocs(&node(directory.path(), &script));
    let _map = perf_map(&recorded.stdout);
    let truncated = stacks::truncated(&recorded.allocs);
    let all = stacks::count(&recorded.allocs);
    println!(
        "{} of {all} truncated:\n{}",
        stacks::count(truncated.iter().copied()),
        stacks::some(truncated.iter().copied())
    );
    assert!(truncated.iter().all(|stack| has_no_caller(stack)), "{}", stacks::some(truncated));
    assert!(stacks::count(truncated) * 10_000 <= all);
    // The engine names all of its code, so an address without a name is none.
    let invented: Vec<&Stack> = recorded.allocs.iter().filter(|stack| stack.frames.iter().any(is_generated)).collect();
    assert_eq!(stacks::count(invented.iter().copied()), 0, "{}", stacks::some(invented));
    let optimised = stacks::count(recorded.allocs.iter().filter(|stack| is_hot(stack, '*')));
    println!("{optimised} of {all} below optimised code");
    assert!(optimised * 2 > all, "{optimised} of {all} below optimised code");
}

/// Functions that are optimised for numbers, and then get others. The first line printed is the process's number.
const REOPTIMISED: &str = "console.log(process.pid);
    let t = 0;
    for (let i = 0; i < 50; i++) {
      const sum = new Function('o', 'let s = 0; for (let k = 0; k < 3000; k++) s += o.x + ' + i + '; return s');
      for (let k = 0; k < 100; k++) sum({x: k});
      sum({y: 1, x: 2.5});
      t += sum({x: 1});
    }
    console.log(t);";

#[test]
fn stacks_end_where_optimised_code_is_taken_from_them() {
    let directory = scratch();
    let recorded = stacks::allocs(&node(directory.path(), REOPTIMISED));
    let _map = perf_map(&recorded.stdout);
    let truncated = stacks::truncated(&recorded.allocs);
    println!("{}", stacks::some(truncated.iter().copied()));
    assert!(truncated.iter().all(|stack| has_no_caller(stack)), "{}", stacks::some(truncated));
    let is_taken = |stack: &&&Stack| stack.frames[1].name.contains("Deoptimization");
    assert!(stacks::count(truncated.iter().filter(is_taken).copied()) > 50, "{}", stacks::some(truncated));
}

#[test]
fn nearly_every_tick_of_optimised_javascript_is_complete() {
    let script = HOT.replace("ROUNDS", "1200");
    let directory = scratch();
    let recorded = stacks::cpu(&node(directory.path(), &script));
    let _map = perf_map(&recorded.stdout);
    let truncated = stacks::truncated(&recorded.cpu);
    let (ended, all) = (stacks::count(truncated.iter().copied()), stacks::count(&recorded.cpu));
    println!("{ended} of {all} ticks truncated:\n{}", stacks::some(truncated.iter().copied()));
    assert!(stacks::weight(&recorded.cpu) > 500_000_000, "{}", stacks::some(&recorded.cpu));
    assert!(ended * 20 <= all, "{ended} of {all} ticks: {}", stacks::some(truncated));
    let optimised = stacks::count(recorded.cpu.iter().filter(|stack| is_hot(stack, '*')));
    assert!(optimised * 4 > all, "{optimised} of {all} ticks below optimised code");
}

/// A CPython with trampolines: 3.12 or newer. Debian 12 has none and no package registry offers one, so this is the one test that depends on what is there; the
/// trampolines of `generated.c` have the same instructions.
fn python_with_trampolines() -> Option<String> {
    let home = std::env::var("PYENV_ROOT").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.pyenv")));
    let versions = home.map(|home| PathBuf::from(home).join("versions")).unwrap_or_default();
    let mut candidates: Vec<PathBuf> = std::fs::read_dir(versions)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin/python3"))
        .collect();
    candidates.sort();
    candidates.extend(["python3.12", "python3.13", "python3.14", "python3"].map(PathBuf::from));
    let program = "import sys; assert sys.version_info >= (3, 12); print(sys.executable)";
    candidates.iter().rev().find_map(|python| {
        let asked = Command::new(python).args(["-c", program]).output().ok().filter(|asked| asked.status.success())?;
        Some(String::from_utf8_lossy(&asked.stdout).trim().to_owned())
    })
}

#[test]
fn functions_of_cpython_stand_in_their_places_between_those_of_the_interpreter() {
    let Some(python) = python_with_trampolines() else {
        println!("no CPython with trampolines here: those of generated.c stand for them");
        return;
    };
    println!("with {python}");
    let script = "import os\nprint(os.getpid())\n\
        def leaf(i): return [bytes(600 + i % 7), object()]\n\
        def middle(i): return leaf(i)\n\
        def outer(i): return sorted([i, i - 1], key=lambda v: len(middle(v)))\n\
        for i in range(3000): outer(i)";
    let recorded = stacks::allocs(&["env", "PYTHONMALLOC=malloc", &python, "-X", "perf", "-c", script]);
    let _map = perf_map(&recorded.stdout);
    assert_complete(&recorded.allocs);
    let below = |stack: &Stack| -> Vec<String> {
        let names = stack.frames.iter().filter_map(|frame| frame.name.strip_prefix("py::"));
        names.map(|name| name.split(':').next().unwrap_or_default().to_owned()).collect()
    };
    let leaf: Vec<&Stack> =
        recorded.allocs.iter().filter(|stack| below(stack).last().is_some_and(|name| name == "leaf")).collect();
    for stack in &leaf {
        assert_eq!(below(stack), ["<module>", "outer", "outer.<locals>.<lambda>", "middle", "leaf"]);
        assert_eq!(stack.frames[0].name, "_start");
    }
    // Of each of 6000 calls the list, its elements and the objects.
    assert!(stacks::count(leaf) >= 18_000, "{}", stacks::some(&recorded.allocs));

    let burning = script.replace("range(3000)", "range(300000)");
    let recorded = stacks::cpu(&[&python, "-X", "perf", "-c", &burning]);
    let _map = perf_map(&recorded.stdout);
    let truncated = stacks::truncated(&recorded.cpu);
    let (ended, all) = (stacks::count(truncated.iter().copied()), stacks::count(&recorded.cpu));
    println!("{ended} of {all} ticks truncated:\n{}", stacks::some(truncated.iter().copied()));
    assert!(ended * 20 <= all, "{ended} of {all} ticks: {}", stacks::some(truncated));
}
