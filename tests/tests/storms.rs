//! Libraries, threads and stacks in great numbers, of great depth and in unusual places: every stack is right, and memory stays bounded.

use profile_recorder_tests::stacks::{self, Frame, Recording, Stack, names};
use profile_recorder_tests::{programs, scratch};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Kinds of libraries that are copied: in each, functions lie elsewhere.
const VARIANTS: u32 = 8;

/// Compiles `storms.c` and the libraries into a directory; the program's path.
fn victim(directory: &Path) -> String {
    for variant in 0..VARIANTS {
        let defined = format!("-DVARIANT=\"{}\"", variant + 1);
        let flags = ["-g", "-fPIC", "-shared", "-fno-toplevel-reorder", "-Wl,--build-id=sha1", &defined];
        programs::gcc(Some("copied.c"), &flags, &directory.join(format!("variant{variant}.so")));
    }
    let program = directory.join("storms");
    programs::gcc(Some("storms.c"), &["-g"], &program);
    program.to_str().unwrap().to_owned()
}

/// Arguments of `storms.c`.
fn storm(program: &str, case: &str, count: u32, nanoseconds: u32, path: &Path) -> [String; 5] {
    [program.into(), case.into(), count.to_string(), nanoseconds.to_string(), path.to_str().unwrap().into()]
}

fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

/// Resident KiB and number of mappings that the storm added, of what the program printed.
fn grown(stdout: &str) -> (i64, i64) {
    let at = |when: &str| -> Vec<i64> {
        let line = stdout.lines().find_map(|line| line.strip_prefix(when)).unwrap_or_else(|| panic!("{stdout}"));
        line.split_whitespace().map(|number| number.parse().unwrap()).collect()
    };
    let (before, after) = (at("before "), at("after "));
    println!("resident KiB and mappings before {before:?}, after {after:?}");
    (after[0] - before[0], after[1] - before[1])
}

fn assert_bounded(recorded: &Recording, mappings: i64) {
    let (resident, more) = grown(&recorded.stdout);
    assert!(resident < 64 << 10, "{resident} KiB more resident");
    assert!(more <= mappings, "{more} mappings more");
}

/// No allocation has a stack that ends early, whichever thread made it; those of the threads that allocate meanwhile are what they are known to be.
fn assert_allocations_are_complete(recorded: &Recording) {
    let truncated = stacks::truncated(&recorded.allocs);
    assert_eq!(stacks::count(truncated.iter().copied()), 0, "{}", stacks::some(truncated));
    let meanwhile = stacks::with(&recorded.allocs, "hammered");
    assert!(stacks::count(meanwhile.iter().copied()) > 1000, "{}", stacks::some(&recorded.allocs));
    for stack in meanwhile {
        assert_eq!(names(stack.from("hammer").unwrap_or_default()), ["hammer", "hammered", "malloc"]);
    }
}

/// The frames of a library's two functions, in stacks that go through `call`: without their names, which are gone with their file.
fn in_library(stack: &Stack) -> Option<[&Frame; 2]> {
    let frames = stack.from("call")?;
    Some([frames.get(1)?, frames.get(2)?])
}

/// Where in its file a library's two functions begin and end, as the program printed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    library: String,
    ends: [u64; 4],
}

impl Place {
    /// All that the program printed, in its order.
    fn all(stdout: &str) -> Vec<Self> {
        let lines = stdout.lines().filter(|line| line.starts_with("copy"));
        let place = |line: &str| {
            let mut words = line.split_whitespace();
            let library = words.next().unwrap().to_owned();
            let ends: Vec<u64> = words.map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
            Self { library, ends: ends.try_into().unwrap() }
        };
        lines.map(place).collect()
    }

    fn holds(&self, [enter, inner]: [&Frame; 2]) -> bool {
        let [from, to, inner_from, inner_to] = self.ends;
        (enter.object == self.library && inner.object == self.library)
            && (from < enter.address && enter.address < to)
            && (inner_from <= inner.address && inner.address < inner_to)
    }
}

#[test]
fn a_library_that_is_opened_ten_thousand_times_is_walked_each_time() {
    let directory = scratch();
    let program = victim(directory.path());
    let command = storm(&program, "reopened", 10_000, 0, &directory.path().join("variant3.so"));
    let recorded = stacks::allocs(&words(&command));
    assert_allocations_are_complete(&recorded);
    let opened = stacks::with(&recorded.allocs, "inner_0000");
    assert_eq!(stacks::count(opened.iter().copied()), 10_000, "{}", stacks::some(&recorded.allocs));
    for stack in opened {
        let way = ["main", "reopened", "call", "enter", "inner_0000", "malloc"];
        assert_eq!(names(stack.from("main").unwrap_or_default()), way);
    }
    assert_bounded(&recorded, 100);
}

#[test]
fn three_hundred_libraries_at_once_are_told_apart() {
    let directory = scratch();
    let program = victim(directory.path());
    let command = storm(&program, "together", 300, 100_000, directory.path());
    let recorded = stacks::both(&words(&command));
    assert_allocations_are_complete(&recorded);
    let mut calls = BTreeMap::new();
    for stack in stacks::with(&recorded.allocs, "enter") {
        let [enter, inner] = in_library(stack).unwrap();
        let number = inner.name.strip_prefix("inner_").unwrap_or_else(|| panic!("{}", stacks::some([stack])));
        let library = format!("copy{number}.so");
        assert!(enter.object == library && inner.object == library, "{}", stacks::some([stack]));
        assert_eq!(names(stack.from("main").unwrap_or_default())[..4], ["main", "together", "call", "enter"]);
        *calls.entry(library).or_insert(0) += stack.count;
    }
    assert_eq!(calls.len(), 300);
    assert!(calls.values().all(|calls| *calls >= 10), "{calls:?}");
    // Five segments each.
    assert_bounded(&recorded, 300 * 5 + 100);
    // All are known before the first of them is called.
    for stack in stacks::with(&recorded.cpu, "enter") {
        let frames = stack.from("enter").unwrap();
        let inner_name = frames[0].object.replace("copy", "inner_").replace(".so", "");
        assert!(inner_name.starts_with("inner_"), "{}", stacks::some([stack]));
        // A tick can find `enter` before or after it calls the other.
        assert!(frames.get(1).is_none_or(|inner| inner.name == inner_name), "{}", stacks::some([stack]));
    }
}

/// Two thousand libraries, one after the other, each deleted before the next is made: the file system gives inodes again, and the kernel addresses.
fn one_after_the_other(case: &str) -> Recording {
    let directory = scratch();
    let program = victim(directory.path());
    let command = storm(&program, case, 2000, 0, directory.path());
    let recorded = stacks::both(&words(&command));
    let inodes = recorded.stdout.lines().find(|line| line.starts_with("inodes ")).unwrap();
    // Some file systems never give an inode again: then this is no more than a storm.
    println!("{case}: of 2000 files {inodes}");
    assert_allocations_are_complete(&recorded);
    assert_bounded(&recorded, 100);
    recorded
}

#[test]
fn two_thousand_libraries_that_take_each_others_places_are_told_apart() {
    let recorded = one_after_the_other("names");
    let places: BTreeMap<String, Place> =
        Place::all(&recorded.stdout).into_iter().map(|place| (place.library.clone(), place)).collect();
    assert_eq!(places.len(), 2000);
    let mut calls = BTreeMap::new();
    for stack in stacks::with(&recorded.allocs, "call") {
        let Some(frames) = in_library(stack).filter(|frames| frames[0].object != "libc.so.6") else { continue };
        let place = places.get(&frames[0].object).unwrap_or_else(|| panic!("{}", stacks::some([stack])));
        assert!(place.holds(frames), "{place:x?}: {}", stacks::some([stack]));
        *calls.entry(&frames[0].object).or_insert(0) += stack.count;
    }
    assert_eq!(calls.len(), 2000);
    assert!(calls.values().all(|calls| *calls == 1), "one allocation in each");
}

#[test]
fn two_thousand_libraries_of_one_name_are_told_apart() {
    let recorded = one_after_the_other("one-name");
    let places: BTreeSet<Place> = Place::all(&recorded.stdout).into_iter().collect();
    assert_eq!(places.len(), VARIANTS as usize);
    let mut calls = BTreeMap::new();
    for stack in stacks::with(&recorded.allocs, "call") {
        let Some(frames) = in_library(stack).filter(|frames| frames[0].object != "libc.so.6") else { continue };
        let place = places.iter().find(|place| place.holds(frames));
        *calls.entry(place.unwrap_or_else(|| panic!("{}", stacks::some([stack])))).or_insert(0) += stack.count;
    }
    assert!(calls.len() == VARIANTS as usize && calls.values().all(|calls| *calls == 250), "{calls:?}");
}

/// A handler cannot read the list of mappings: the first tick in a library asks for it, and the next allocation does it. No tick may be taken for one of a library that was at
/// the same place before.
#[test]
fn ticks_in_libraries_that_take_each_others_places_are_lost_but_for_one_each_and_never_mistaken() {
    const LIBRARIES: u32 = 60;
    let directory = scratch();
    let program = victim(directory.path());
    for modes in [stacks::cpu, stacks::both] {
        let command = storm(&program, "names", LIBRARIES, 40_000_000, directory.path());
        let recorded = modes(&words(&command));
        let places = Place::all(&recorded.stdout);
        let mut right = 0;
        for stack in stacks::with(&recorded.cpu, "call") {
            let frames = stack.from("call").unwrap();
            let Some(library) = frames.get(1).filter(|frame| frame.object.starts_with("copy")) else { continue };
            let place = places.iter().find(|place| place.library == library.object).unwrap();
            // A tick can find `enter` before or after it calls the other.
            let holds = frames.get(2).is_none_or(|inner| place.holds([library, inner]));
            assert!(holds, "{place:x?}: {}", stacks::some([stack]));
            right += stack.count;
        }
        let ended = stacks::count(stacks::truncated(&recorded.cpu));
        println!("{right} ticks right, {ended} ended early, {LIBRARIES} libraries");
        assert!(right > 100, "{}", stacks::some(&recorded.cpu));
        assert!(ended <= i64::from(LIBRARIES) * 3 / 2, "{}", stacks::some(stacks::truncated(&recorded.cpu)));
    }
}

#[test]
fn ten_thousand_short_threads_leave_nothing_behind() {
    let directory = scratch();
    let program = victim(directory.path());
    for case in ["threads", "renamed"] {
        let recorded = stacks::both(&words(&storm(&program, case, 10_000, 0, directory.path())));
        let brief = stacks::with(&recorded.allocs, "brief");
        assert_eq!(stacks::count(brief.iter().copied()), 10_000, "{case}: {}", stacks::some(&recorded.allocs));
        for stack in brief {
            assert!(stack.truncated().is_none() && names(stack.from("brief").unwrap()) == ["brief", "malloc"]);
        }
        assert_bounded(&recorded, 100);
    }
}
