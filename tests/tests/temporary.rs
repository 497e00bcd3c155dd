//! An allocation is temporary if its thread frees it before it allocates anything else, whether or not what else it allocates is sampled.

use profile_recorder_tests::values::{Values, by_function};
use profile_recorder_tests::{output, programs, run, scratch, text};

const SOURCE: &str = r#"
#include <stdlib.h>
#define SITE(name, call) __attribute__((noinline)) void *name(void) { void *p = call; __asm__ volatile("" : "+r"(p)); return p; }
SITE(site_at_once, malloc(64))
SITE(site_outlived, malloc(64))
SITE(site_between, malloc(48))
SITE(site_before_calloc, malloc(64))
SITE(site_calloc, calloc(3, 16))
SITE(site_before_nothing, calloc(1, 64))
SITE(site_nothing, malloc(0))
SITE(site_before_realloc, malloc(64))
SITE(site_realloc, realloc(NULL, 80))
static void pair(void *(*first)(void), void *(*second)(void)) {
    void *p = first(), *q = second();
    free(p);
    free(q);
}
int main(void) {
    for (int i = 0; i < 100000; i++) {
        free(site_at_once());
        pair(site_outlived, site_between);
        pair(site_before_calloc, site_calloc);
        pair(site_before_nothing, site_nothing);
        pair(site_before_realloc, site_realloc);
    }
    return 0;
}
"#;

#[test]
fn what_is_freed_before_the_next_is_temporary_and_nothing_else() {
    let directory = scratch();
    let program = programs::compile_source("temporary", SOURCE, directory.path());
    for (mode, interval) in [("allocs", "1"), ("heap", "1"), ("allocs", "4KiB"), ("heap", "4KiB")] {
        let profile = directory.path().join(format!("{mode}-{interval}.json"));
        let (file, program) = (profile.to_str().unwrap(), program.to_str().unwrap());
        let recorded = output(&mut run(&["record", "--mode", mode, "--interval", interval, "-o", file, "--", program]));
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
        let sites = by_function(&serde_json::from_slice(&std::fs::read(&profile).unwrap()).unwrap(), "site_");
        let is_sampled = interval != "1";
        // Nothing of no bytes is sampled.
        assert_eq!(sites.len(), if is_sampled { 8 } else { 9 }, "{sites:?}");
        for (site, Values { alloc_objects, temporary_objects, .. }) in sites {
            let outlived = site == "site_outlived" || site.starts_with("site_before_");
            let expected = if outlived { 0 } else { alloc_objects };
            assert_eq!(temporary_objects, expected, "{site}, {mode} at {interval}");
            let about = if is_sampled { 80_000..120_000 } else { 100_000..100_001 };
            assert!(about.contains(&alloc_objects), "{alloc_objects} of {site}, {mode} at {interval}");
        }
    }
}
