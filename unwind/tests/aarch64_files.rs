//! Tables of aarch64 files against gimli: Debian's libraries, and what its compilers make with signed return addresses and unusual frames.

#![cfg(target_os = "linux")]

mod support {
    pub(crate) mod cross;
    pub(crate) mod rows;
}

use std::path::Path;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use profile_recorder_unwind::Rule;
use profile_recorder_unwind::aarch64::Registers;
use profile_recorder_unwind::build::{Section, build};
use support::cross;
use support::rows::{Compared, Object};

fn library(name: &str) -> Object {
    Object::read(Path::new(cross::ROOT).join("lib").join(name))
}

fn rows(name: &str, object: &Object) -> Compared {
    let compared = object.compare_rows::<Registers>();
    eprintln!("{name}: {compared:?}");
    compared
}

#[test]
fn every_row_of_the_c_library_equals_gimlis() {
    let compared = rows("libc", &library("libc.so.6"));
    assert!(compared.rows > 10_000 && compared.misdescribed == 0, "{compared:?}");
    // longjmp, setcontext and their like leave by what a pointer in x0 names; rawmemchr keeps its return address in x15.
    assert!(compared.unsupported_rows() < 10, "{compared:?}");
}

#[test]
fn every_row_of_the_dynamic_linker_equals_gimlis() {
    let compared = rows("ld", &library("ld-linux-aarch64.so.1"));
    assert!(compared.rows > 1000 && compared.unsupported_rows() < 5, "{compared:?}");
    assert!(compared.misdescribed > 0, "{compared:?}");
}

#[test]
fn every_row_of_other_libraries_equals_gimlis() {
    for (name, at_least) in [("libstdc++.so.6", 10_000), ("libgcc_s.so.1", 500), ("libm.so.6", 3000)] {
        let compared = rows(name, &library(name));
        assert!(compared.rows > at_least && compared.unsupported_rows() + compared.misdescribed == 0, "{compared:?}");
    }
}

#[test]
fn every_row_of_signed_and_unusual_frames_equals_gimlis() {
    for (name, options) in [
        ("rows-plain", &["-O2"][..]),
        ("rows-signed", &["-O2", "-mbranch-protection=standard"]),
        ("rows-other-key", &["-O2", "-fomit-frame-pointer", "-mbranch-protection=pac-ret+leaf+b-key"]),
        ("rows-slow", &["-O0", "-mbranch-protection=standard"]),
    ] {
        let compared = rows(name, &Object::read(cross::stepped(name, options)));
        assert!(
            compared.rows > 100 && compared.unsupported_rows() + compared.misdescribed == 0,
            "{name}: {compared:?}"
        );
    }
}

#[test]
fn the_loop_that_probes_a_large_frame_is_unsupported_since_x12_holds_the_cfa() {
    let program = cross::stepped("rows-probed", &["-O2", "-fstack-clash-protection"]);
    let compared = rows("probed", &Object::read(program));
    assert!(compared.unsupported.keys().eq(["CFA from register 12"]), "{compared:?}");
    assert!(compared.unsupported_rows() < 10, "{compared:?}");
}

#[test]
fn a_frame_of_vectors_is_unsupported_since_only_the_processor_knows_its_size() {
    let path = cross::library("vectors.c", &["-O2", "-march=armv8.2-a+sve"]);
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let eh_frame = file.section_by_name(".eh_frame").unwrap();
    let (table, _) = build::<Registers>(Section { bytes: eh_frame.data().unwrap(), address: eh_frame.address() }, 0);
    let vectors = file.symbols().find(|symbol| symbol.name() == Ok("vectors")).unwrap();
    let call = u32::try_from(vectors.address() + vectors.size() / 2).unwrap();
    assert_eq!(table.as_table().lookup(call), Some(Rule::UNSUPPORTED));
}

#[test]
fn sampled_addresses_equal_gimlis_lookup() {
    let found = library("libc.so.6").compare_addresses::<Registers>();
    assert!(found > 1000, "{found}");
}

#[test]
fn the_rule_at_an_address_is_that_of_the_table() {
    for name in ["libc.so.6", "ld-linux-aarch64.so.1", "libstdc++.so.6"] {
        let (rules, gaps) = library(name).compare_descriptions::<Registers>();
        assert!(rules > 100 && gaps > 0, "{rules} rules and {gaps} gaps in {name}");
    }
}
