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

/// Keeps account of what it has, by what its blocks have; writes what it has at the end, and the most.
const ACCOUNTANT: &str = r#"
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *blocks[512];
static long live, most;
static uint64_t state = 88172645463325252ull;

static unsigned below(unsigned n) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return (state >> 33) % n;
}

static void got(void *p) {
    live += malloc_usable_size(p);
    if (live > most) most = live;
}

/* Small blocks, and some with a mapping of their own. */
static size_t size(void) { return below(200) == 0 ? 150000 + below(300000) : below(600); }

int main(int count, char **arguments) {
    long steps = count > 1 ? atol(arguments[1]) : 0;
    for (long i = 0; i < steps; i++) {
        void **p = &blocks[below(512)];
        switch (below(6)) {
        case 0: live -= malloc_usable_size(*p); free(*p); got(*p = malloc(size())); break;
        case 1: live -= malloc_usable_size(*p); free(*p); got(*p = calloc(size() / 8 + 1, 8)); break;
        case 2: live -= malloc_usable_size(*p); free(*p); *p = 0; break;
        case 3: live -= malloc_usable_size(*p); if (*p) got(*p = realloc(*p, 0)); break;
        case 4: if (realloc(*p, (size_t)1 << 62)) return 1; break;
        default: {
            live -= malloc_usable_size(*p);
            *p = realloc(*p, size() + 1);
            got(*p);
        }
        }
    }
    char text[64];
    int length = snprintf(text, sizeof text, "%ld %ld", live, most);
    return write(1, text, length) == length ? 0 : 1;
}
"#;

#[test]
fn live_bytes_and_their_peak_are_the_programs_own() {
    let mut place = Place::new();
    place.compile("accountant", ACCOUNTANT, &["-O1", "-Wno-unused-result"]);
    // The C library's allocator, whose blocks are read, and others, which are asked.
    for allocator in
        ["", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"]
    {
        live_bytes_are_its_own(&place, allocator);
    }
}

fn live_bytes_are_its_own(place: &Place, allocator: &str) {
    let live = |steps: &str| {
        let mut command = place.command(&["stat", "--json", "--", "./accountant", steps]);
        command.env("LD_PRELOAD", allocator);
        let ran = Ran::of(command.output().unwrap());
        ran.assert_code(0);
        assert_eq!(ran.stderr.matches("cannot be preloaded").count(), 0, "{}", ran.stderr);
        let report = json(&ran);
        let of = |what: &str| report["live"][what].as_i64().unwrap();
        let own: Vec<i64> = ran.stdout.split(' ').map(|number| number.parse().unwrap()).collect();
        ([of("end_bytes"), of("peak_bytes")], [own[0], own[1]])
    };
    // What the C library has besides.
    let ([besides, _], nothing) = live("0");
    assert_eq!(nothing, [0, 0]);
    for steps in ["50", "1000", "30000"] {
        let (told, own) = live(steps);
        assert!(own[1] > 0);
        assert_eq!(told.map(|bytes| bytes - besides), own, "{allocator}: {steps} steps: at the end, and the most");
    }
}

#[test]
fn a_peak_has_its_time_however_small_it_is() {
    let mut place = Place::new();
    let program = |bytes: u32| {
        let wait = "usleep(100000);";
        let head = "#include <stdlib.h>\n#include <unistd.h>\nvoid *volatile p;\n";
        format!("{head}int main(void) {{ {wait} p = malloc({bytes}); {wait} free(p); return 0; }}")
    };
    for (name, bytes) in [("small", 100), ("large", 1_000_000)] {
        place.compile(name, &program(bytes), &["-O0"]);
        let report = json(&place.run(&["stat", "--json", "--", &format!("./{name}")]));
        let (live, elapsed) = (&report["live"], report["elapsed_seconds"].as_f64().unwrap());
        assert!(live["peak_bytes"].as_u64() >= Some(bytes.into()), "{live}");
        let after = live["peak_after_seconds"].as_f64().unwrap();
        // A small one is known when the process ends.
        assert!(after > 0.1 && after <= elapsed, "{name}: after {after} of {elapsed} s");
    }
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

#[test]
fn several_runs_give_their_mean_and_how_far_they_lie_apart() {
    let mut place = Place::new();
    // Allocates as often as the file has lines, and adds one.
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        #include <fcntl.h>
        int main(void) {
            char text[64];
            int file = open("runs", O_RDWR | O_CREAT | O_APPEND, 0644);
            long lines = read(file, text, sizeof text);
            for (int i = 0; i < 100 + 10 * lines; i++) { void *volatile p = malloc(8); free(p); }
            return write(file, "x", 1) != 1;
        }"#;
    place.compile("victim", source, &["-O0"]);
    let ran = place.run(&["stat", "--repeat", "3", "--json", "--", "./victim"]);
    ran.assert_code(0);
    let report = json(&ran);
    let malloc = &report["repeated"]["spread"]["malloc"];
    assert_eq!(report["repeated"]["runs"], 3);
    assert_eq!((&malloc["mean"], &malloc["standard_deviation"]), (&110.0.into(), &10.0.into()));
    assert_eq!((&malloc["min"], &malloc["max"]), (&100.0.into(), &120.0.into()));
    assert_eq!(report["functions"]["malloc"], serde_json::json!({"calls": 110, "bytes": 880}));
    assert!(report["user_seconds"].as_f64().unwrap() <= report["elapsed_seconds"].as_f64().unwrap() * 2.0 + 0.1);
    let ran = place.run(&["stat", "--repeat", "2", "--", "./victim"]);
    assert!(ran.stderr.starts_with("\n Performance counter stats for './victim' (2 runs):\n"), "{}", ran.stderr);
    let line = ran.stderr.lines().find(|line| line.contains(" malloc ")).unwrap();
    // 130 and 140: 135, and 5 of that.
    assert!(line.ends_with("1,080 bytes asked  ( +- 3.70% )"), "{line}");
}

#[test]
fn a_run_that_fails_is_the_last() {
    let place = Place::new();
    let ran =
        place.run(&["stat", "--repeat", "5", "--json", "-o", "counts.json", "--", "sh", "-c", "echo run; exit 4"]);
    ran.assert_code(4);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        ("run\n", "warning: run 1 of 5 failed; the others were not begun\n")
    );
    for wrong in ["0", "-1", "1001", "x"] {
        place.run(&["stat", "--repeat", wrong, "--", "true"]).assert_refused(2, &["from 1 to 1000"]);
    }
}

#[test]
fn the_spread_of_the_runs_is_what_a_limit_must_be_exceeded_by() {
    let mut place = Place::new();
    let counters = |mean: u32| {
        let allocs = serde_json::json!({"mean": mean, "standard_deviation": 5.0});
        let repeated = serde_json::json!({"runs": 4, "spread": {"allocs": allocs}});
        serde_json::json!({"version": 1, "allocations": mean, "bytes": 0, "functions": {}, "repeated": repeated})
            .to_string()
    };
    place.add("base.json", counters(100), 0o644);
    for (mean, code) in [(106, 0), (120, 3)] {
        place.add("head.json", counters(mean), 0o644);
        place.run(&["diff", "base.json", "head.json", "--fail-on", "allocs=+0"]).assert_code(code);
    }
}
