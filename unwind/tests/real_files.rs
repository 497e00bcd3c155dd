//! Tables of real x86_64 files against gimli.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod support {
    pub(crate) mod rows;
}

use std::path::Path;

use profile_recorder_unwind::x86_64::Registers;
use support::rows::Object;

/// The file of an object that this process has loaded.
fn loaded(name: &str) -> Object {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains(name));
    Object::read(path.unwrap_or_else(|| panic!("{name} is not loaded")))
}

fn this_executable() -> Object {
    Object::read(std::env::current_exe().unwrap())
}

/// Unsupported are at most one row in that many.
fn assert_rows_equal(object: &Object, at_least: usize, one_in: usize) {
    let compared = object.compare_rows::<Registers>();
    assert!(compared.rows > at_least && compared.unsupported_rows() < compared.rows / one_in, "{compared:?}");
}

#[test]
fn every_row_of_the_c_library_equals_gimlis() {
    assert_rows_equal(&loaded("libc.so"), 10_000, 1000);
}

#[test]
fn every_row_of_the_dynamic_linker_equals_gimlis() {
    assert_rows_equal(&loaded("ld-linux"), 1000, 50);
}

#[test]
fn every_row_of_this_executable_equals_gimlis() {
    assert_rows_equal(&this_executable(), 10_000, 1000);
}

#[test]
fn every_row_of_other_libraries_equals_gimlis() {
    // Hand-written assembly (libcrypto) and much compiled code; where they are not installed there is nothing to compare.
    for directory in ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"] {
        for name in ["libcrypto.so.3", "libstdc++.so.6", "libpython3.11.so.1.0", "libpython3.13.so.1.0"] {
            let path = Path::new(directory).join(name);
            if path.exists() {
                assert_rows_equal(&Object::read(path), 10_000, 100);
            }
        }
    }
}

#[test]
fn sampled_addresses_of_a_real_file_equal_gimlis_lookup() {
    let found = loaded("libc.so").compare_addresses::<Registers>();
    assert!(found > 1000, "{found}");
}

#[test]
fn the_rule_at_an_address_is_that_of_the_table() {
    for object in [loaded("libc.so"), loaded("ld-linux"), this_executable()] {
        let (rules, gaps) = object.compare_descriptions::<Registers>();
        assert!(rules > 100 && gaps > 0, "{rules} rules and {gaps} gaps");
    }
}
