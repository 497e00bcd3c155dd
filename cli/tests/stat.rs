//! `profrec stat` counts exactly, and reports as `perf stat` does.

mod support;

use support::{Place, Ran};

const VICTIM: &str = r#"
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *thread(void *arg) {
    for (int i = 0; i < 1000; i++) free(malloc(10));
    return arg;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, thread, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    void *p = 0;
    for (int i = 0; i < 7; i++) { if (posix_memalign(&p, 64, 128)) return 1; free(p); }
    for (int i = 0; i < 5; i++) free(memalign(64, 100));
    for (int i = 0; i < 3; i++) free(aligned_alloc(64, 64));
    free(valloc(1)); free(pvalloc(1));
    p = reallocarray(0, 3, 5); p = realloc(p, 99); free(p);
    write(1, "done\n", 5);
    return 5;
}
"#;

fn json(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(&ran.stderr).unwrap_or_else(|e| panic!("{e}: {}", ran.stderr))
}

#[test]
fn every_function_is_counted_exactly_over_all_threads() {
    let mut place = Place::new();
    place.compile("victim", VICTIM, &["-O0"]);
    let ran = place.run(&["stat", "--json", "--", "./victim"]);
    ran.assert_code(5);
    assert_eq!(ran.stdout, "done\n");
    let report = json(&ran);
    let function = |name: &str| &report["functions"][name];
    for (name, calls, bytes) in [
        ("posix_memalign", 7, 7 * 128),
        ("memalign", 5, 500),
        ("aligned_alloc", 3, 192),
        ("valloc", 1, 1),
        ("pvalloc", 1, 1),
        ("reallocarray", 1, 15),
        ("realloc", 1, 99),
    ] {
        assert_eq!((&function(name)["calls"], &function(name)["bytes"]), (&calls.into(), &bytes.into()), "{name}");
    }
    // The C library itself allocates a little for the threads, by calloc, and frees it.
    assert_eq!(function("malloc"), &serde_json::json!({"calls": 4000, "bytes": 40_000}));
    assert!(function("free")["calls"].as_u64() >= Some(4000 + 7 + 5 + 3 + 2 + 1));
    assert_eq!((&report["exit_code"], &report["processes"]), (&5.into(), &1.into()));
}

#[test]
fn the_report_is_laid_out_like_perf_and_stays_out_of_standard_output() {
    let place = Place::new();
    let ran = place.run(&["stat", "--", "sh", "-c", "echo out"]);
    ran.assert_code(0);
    assert_eq!(ran.stdout, "out\n");
    assert!(ran.stderr.starts_with("\n Performance counter stats for 'sh -c echo out':\n\n"), "{}", ran.stderr);
    for said in [
        "      malloc  ",
        "      free\n",
        " bytes asked\n",
        "      allocations  ",
        " seconds time elapsed\n",
        " seconds user\n",
        " seconds sys\n",
    ] {
        assert!(ran.stderr.contains(said), "'{said}' is not in: {}", ran.stderr);
    }
}

#[test]
fn a_file_takes_the_report() {
    let place = Place::new();
    let ran = place.run(&["stat", "--json", "-o", "counts.json", "--", "sh", "-c", "true; true"]);
    ran.assert_code(0);
    assert_eq!(ran.stderr, "");
    let report: serde_json::Value = serde_json::from_str(&support::text(place.path("counts.json"))).unwrap();
    assert_eq!(report["command"], serde_json::json!(["sh", "-c", "true; true"]));
    place.run(&["stat", "-o", "counts.txt", "--", "true"]).assert_code(0);
    assert!(support::text(place.path("counts.txt")).contains("malloc"));
    assert_eq!(place.new_files(), ["counts.json", "counts.txt"]);
}

#[test]
fn a_killed_command_is_counted_up_to_its_end() {
    let place = Place::new();
    let ran = place.run(&["stat", "--json", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(ran.signal, Some(9));
    let report = json(&ran);
    assert_eq!((&report["signal"], report.get("exit_code")), (&9.into(), None));
}

#[test]
fn the_times_are_the_commands() {
    let mut place = Place::new();
    place.compile("spin", "int main(void) { for (volatile long i = 0; i < 200000000; i++) {} }", &["-O1"]);
    let report = json(&place.run(&["stat", "--json", "--", "./spin"]));
    let (elapsed, user) = (report["elapsed_seconds"].as_f64().unwrap(), report["user_seconds"].as_f64().unwrap());
    assert!(user > 0.02 && user <= elapsed * 1.1, "user {user}, elapsed {elapsed}");
}
