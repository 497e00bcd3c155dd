//! A program that leaves allocations by jumps out of a signal handler is recorded as before: what its own book says is what a profile has, but for the allocation that each jump left.

use profile_recorder_tests::{output, programs, run, scratch, text, values};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

const JUMPS: i64 = 2000;

/// What the program got, and what it gave back, by place.
type Book = BTreeMap<String, [i64; 2]>;

fn book(printed: &str) -> Book {
    let mut depth = 0;
    let mut row = |line: &str| {
        let (name, numbers) = line.split_once(' ')?;
        let mut numbers = numbers.split(' ').map(|number| number.parse::<i64>().expect("a number"));
        let first = numbers.next()?;
        let name = if name == "deep" {
            depth += 1;
            format!("deep {depth}")
        } else {
            name.to_owned()
        };
        Some((name, [first, numbers.next().unwrap_or(first)]))
    };
    printed.lines().filter_map(&mut row).collect()
}

/// Where a stack allocates, as the book calls it.
fn place(names: &[&str]) -> String {
    let of = [("replace", "kept"), ("work", "worker"), ("later", "later")];
    if let Some((_, place)) = of.iter().find(|(name, _)| names.contains(name)) {
        return (*place).to_owned();
    }
    match names.iter().filter(|name| **name == "deep").count() {
        0 if names.iter().any(|name| name.starts_with("[lost")) => "lost".to_owned(),
        0 => "other".to_owned(),
        depth => format!("deep {depth}"),
    }
}

/// Objects allocated and live by place, as a recording tells them, and the book.
fn recorded(arguments: &[&str]) -> (BTreeMap<String, [i64; 2]>, Book) {
    let directory = scratch();
    let program = programs::compile_c("left", directory.path());
    let allocator = programs::compile_c_library("left_allocator", directory.path(), &["-O2", "-fno-builtin"]);
    let profile = directory.path().join("p.json");
    let mut command = run(&["record", "--quiet", "-o", profile.to_str().unwrap()]);
    command.args(arguments).arg("--");
    command.arg(program).arg(JUMPS.to_string()).env("LD_PRELOAD", allocator);
    let ran = output(&mut command);
    assert!(ran.status.success() && ran.stderr.is_empty(), "{:?}: {}", ran.status, text(&ran.stderr));
    let profile: Value = serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    let mut places = BTreeMap::<String, [i64; 2]>::new();
    for (names, values) in values::samples(&profile) {
        let [allocated, live] = places.entry(place(&names)).or_default();
        *allocated += values.alloc_objects;
        *live += values.inuse_objects;
    }
    (places, book(&text(&ran.stdout)))
}

fn check(places: &BTreeMap<String, [i64; 2]>, book: &Book, follows: bool) {
    let jumps = book["jumps"][0];
    assert!(jumps >= JUMPS, "{book:?}");
    let mut left = [0; 2];
    for (place, [got, given]) in book.iter().filter(|(place, _)| *place != "jumps") {
        let [allocated, live] = places[place];
        left[0] += (allocated - got).abs();
        left[1] += if follows { (live - (got - given)).abs() } else { 0 };
        if place == "worker" {
            assert_eq!(allocated, *got, "a thread that is not interrupted: {places:?}");
        }
    }
    let [lost, _] = places.get("lost").copied().unwrap_or_default();
    println!("{jumps} jumps: {left:?} differ, {lost} without a stack");
    // One for each jump at most; what is not certain to have been left has no stack.
    assert!(left[0] <= jumps + lost && left[1] <= jumps + lost, "{left:?}, {lost} lost: {places:?}, {book:?}");
    assert!(lost <= jumps, "{lost} lost: {places:?}");
    assert_eq!(places["later"], [100_000, 0]);
    assert!(!follows || places["worker"][1] == 0, "{:?}, {left:?}", places["worker"]);
}

#[test]
fn every_allocation_that_was_not_left_has_its_stack() {
    let (places, book) = recorded(&["--mode", "allocs"]);
    check(&places, &book, false);
}

#[test]
fn and_its_end_where_frees_are_followed() {
    let (places, book) = recorded(&["--mode", "heap"]);
    check(&places, &book, true);
}

/// The same while ticks interrupt it too.
#[test]
fn with_ticks_besides() {
    let (places, book) = recorded(&["--mode", "heap,cpu", "--hz", "1000"]);
    check(&places, &book, true);
}

/// A server at rest and one that samples disturb nothing.
#[test]
fn the_program_ends_as_without_us() {
    let directory = scratch();
    let program = programs::compile_c("left", directory.path());
    let allocator = programs::compile_c_library("left_allocator", directory.path(), &["-O2", "-fno-builtin"]);
    let mut plain = Command::new(&program);
    let ran = output(plain.arg("200").env("LD_PRELOAD", &allocator));
    assert!(ran.status.success() && book(&text(&ran.stdout))["jumps"][0] >= 200);
    let ran = output(run(&["stat", "--"]).arg(&program).arg("200").env("LD_PRELOAD", &allocator));
    assert!(ran.status.success() && book(&text(&ran.stdout))["jumps"][0] >= 200, "{}", text(&ran.stderr));
}
