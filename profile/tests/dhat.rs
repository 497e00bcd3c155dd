//! A file that DHAT of the crate of that name writes is read, and comes to the numbers that it told the program.

use profile_recorder_profile::decode::{self, Limits, Readable};
use profile_recorder_profile::top::{self, Leaf};
use std::hint::black_box;

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

#[inline(never)]
fn leaks(bytes: usize) {
    std::mem::forget(black_box(Vec::<u8>::with_capacity(bytes)));
}

#[inline(never)]
fn frees() {
    drop(black_box(Vec::<u8>::with_capacity(40)));
}

#[test]
fn totals_and_functions_are_those_of_dhat() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("heap.json");
    let profiler = dhat::Profiler::builder().trim_backtraces(None).file_name(&file).build();
    for bytes in 1..=300 {
        leaks(bytes);
        frees();
    }
    let told = dhat::HeapStats::get();
    drop(profiler);
    let bytes = std::fs::read(file).unwrap();
    assert_eq!(Readable::of(&bytes), Readable::Dhat);
    let (profile, symbols) = decode::read(&bytes, Limits::default()).unwrap();
    let total = |kind| profile.total(profile.column(kind).unwrap());
    assert_eq!((total("alloc_objects"), total("alloc_space")), (told.total_blocks as i64, told.total_bytes as i64));
    assert_eq!((total("inuse_objects"), total("inuse_space")), (told.curr_blocks as i64, told.curr_bytes as i64));
    // Debug information tells the module of some functions and not of others.
    let of = |name: &str, kind: &str| {
        let functions = top::functions(&profile, &symbols, profile.column(kind).unwrap(), Leaf::Recorded);
        functions.iter().find(|function| function.name.ends_with(name)).map_or(0, |function| function.total)
    };
    assert_eq!((of("::leaks", "alloc_objects"), of("::leaks", "inuse_space")), (300, 300 * 301 / 2));
    assert_eq!((of("::frees", "alloc_space"), of("::frees", "inuse_objects")), (300 * 40, 0));
    assert_eq!(of("totals_and_functions_are_those_of_dhat", "alloc_objects"), 600);
}
