//! Eight threads that hammer the malloc family and free each other's blocks: counts, bytes and live sets equal the program's own books to the unit.

use profile_recorder_tests::values::{self, Values};
use profile_recorder_tests::{output, programs, run, scratch, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const ROUNDS: &str = "20000";

/// What the program printed: numbers by kind (`function`, `site`) and name.
struct Books(BTreeMap<(String, String), Vec<u64>>);

impl Books {
    fn read(printed: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let key = (words.next().expect("a kind"), words.next().expect("a name"));
            (key, words.map(|word| word.parse().expect("a number")).collect())
        };
        Self(printed.lines().map(line).collect())
    }

    fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a [u64])> {
        self.0
            .iter()
            .filter(move |((of, _), _)| of == kind)
            .map(|((_, name), numbers)| (name.as_str(), numbers.as_slice()))
    }
}

/// Runs `profrec` with the arguments on the program; its books.
fn hammer(program: &Path, arguments: &[&str], seed: u32, rounds: &str) -> Books {
    let seed = seed.to_string();
    let run = output(run(arguments).args(["--", program.to_str().unwrap(), &seed, rounds]));
    assert!(run.status.success(), "{arguments:?}: {}", text(&run.stderr));
    Books::read(&text(&run.stdout))
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("a file")).expect("JSON")
}

#[test]
fn stat_counts_calls_and_bytes_of_every_function_to_the_unit() {
    let directory = scratch();
    let program = programs::compile_c("hammer", directory.path());
    let file = directory.path().join("stat.json");
    let stat = |seed, rounds| {
        let books = hammer(&program, &["stat", "--json", "-o", file.to_str().unwrap()], seed, rounds);
        (books, json(&file))
    };
    // What the C library allocates for threads and at its start is the same without a round.
    let (_, idle) = stat(0, "0");
    let number = |json: &Value, function: &str, what: &str| json["functions"][function][what].as_u64().unwrap_or(0);
    for seed in 0..5 {
        let (books, busy) = stat(seed, ROUNDS);
        for (function, own) in books.of("function") {
            let counted = ["calls", "bytes"].map(|what| number(&busy, function, what) - number(&idle, function, what));
            assert_eq!(counted, own, "seed {seed}, {function}: calls and bytes, counted and the program's own");
            assert!(own[0] > 1_000, "{function} was hammered: {own:?}");
        }
    }
}

#[test]
fn a_heap_profile_has_every_site_to_the_unit() {
    let directory = scratch();
    let program = programs::compile_c("hammer", directory.path());
    let file = directory.path().join("heap.json");
    // What each site saw over all seeds: live at the end, temporary, freed.
    let mut seen: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for seed in 0..5 {
        let arguments = ["record", "--quiet", "--mode", "heap", "-o", file.to_str().unwrap()];
        let books = hammer(&program, &arguments, seed, ROUNDS);
        let profile = json(&file);
        assert_eq!(profile["comments"], Value::Array(Vec::new()), "seed {seed}: nothing was lost");
        let recorded = values::by_function(&profile, "site_");
        assert_eq!(recorded.len(), 24, "{:?}", recorded.keys());
        for (site, own) in books.of("site") {
            let &[objects, space, freed, freed_space, temporary, live, live_space] = own else { panic!("{own:?}") };
            assert_eq!((objects, space), (freed + live, freed_space + live_space), "the program's own books are right");
            let own = Values {
                alloc_objects: objects as i64,
                alloc_space: space as i64,
                inuse_objects: live as i64,
                inuse_space: live_space as i64,
                temporary_objects: temporary as i64,
            };
            assert_eq!(recorded.get(site), Some(&own), "seed {seed}, {site}: recorded, and the program's own books");
            seen.entry(site.to_owned())
                .or_default()
                .iter_mut()
                .zip([live, temporary, freed])
                .for_each(|(sum, n)| *sum += n);
        }
        for (names, values) in values::samples(&profile) {
            assert!(
                (0..=values.alloc_objects).contains(&values.inuse_objects)
                    && (0..=values.alloc_space).contains(&values.inuse_space)
                    && (0..=values.alloc_objects).contains(&values.temporary_objects),
                "a stack keeps no more than it made: {values:?} {names:?}"
            );
        }
    }
    for (site, [live, temporary, freed]) in seen {
        assert!(live > 0 && temporary > 0 && freed > live, "{site} saw everything: {live} {temporary} {freed}");
    }
}

#[test]
fn a_profile_of_allocations_alone_has_every_site_to_the_unit() {
    let directory = scratch();
    let program = programs::compile_c("hammer", directory.path());
    let file = directory.path().join("allocs.json");
    let arguments = ["record", "--quiet", "--mode", "allocs", "-o", file.to_str().unwrap()];
    let books = hammer(&program, &arguments, 7, ROUNDS);
    let recorded = values::by_function(&json(&file), "site_");
    for (site, own) in books.of("site") {
        let values = recorded.get(site).copied().unwrap_or_default();
        assert_eq!((values.alloc_objects as u64, values.alloc_space as u64), (own[0], own[1]), "{site}");
    }
}
