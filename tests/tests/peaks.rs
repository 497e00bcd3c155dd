//! Live bytes and the most that they were, beside books that the program keeps of its own blocks.

use alloc_hook::{RecordingAllocator, SystemAllocator, record};
use capture::{copy, region};
use layout::LIVE_GRAIN;
use profile_recorder_tests::{output, programs, run, scratch, text};
use serde_json::Value;
use std::alloc::{GlobalAlloc as _, Layout};
use std::path::Path;

/// Bytes live at the end, and at most: as `stat` has them, and as the program has.
fn walk(program: &Path, seed: u32, threads: u32, allocator: Option<&str>) -> [[i64; 2]; 2] {
    let directory = scratch();
    let json = directory.path().join("stat.json");
    let seed = seed.to_string();
    let mut command = run(&["stat", "--json", "-o", json.to_str().unwrap(), "--", program.to_str().unwrap()]);
    command.args([seed.as_str(), "20000", &threads.to_string()]);
    if let Some(library) = allocator {
        command.env("LD_PRELOAD", library);
    }
    let run = output(&mut command);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let own: Vec<i64> = text(&run.stdout).split_whitespace().map(|number| number.parse().unwrap()).collect();
    let ours: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(ours["live"]["bytes_are"], "allocated", "{ours}");
    let ours = ["end_bytes", "peak_bytes"].map(|name| ours["live"][name].as_i64().unwrap());
    [ours, own.try_into().unwrap()]
}

/// What was there before `main` is no part of the program's books, and stays.
fn assert_exact(allocator: Option<&str>) {
    let directory = scratch();
    let program = programs::compile_c("peaks", directory.path());
    for seed in 0..12 {
        let [[end, most], [own_end, own_most]] = walk(&program, seed, 1, allocator);
        assert!(own_most > 1 << 20 && own_end < own_most, "{own_end} of {own_most}");
        assert_eq!(
            most - own_most,
            end - own_end,
            "seed {seed}: {end} at the end, {most} at most; truly {own_end} and {own_most}"
        );
        assert!((0..100_000).contains(&(end - own_end)), "seed {seed}: {end}, truly {own_end}");
    }
}

#[test]
fn the_peak_of_one_thread_is_exact() {
    assert_exact(None);
}

#[test]
fn the_peak_of_one_thread_is_exact_with_another_allocator() {
    assert_exact(Some(programs::jemalloc()));
}

/// Each thread can hide as much as it need not bring in, and what it has just allocated or freed.
#[test]
fn the_peak_of_four_threads_is_near() {
    let directory = scratch();
    let program = programs::compile_c("peaks", directory.path());
    for seed in 0..12 {
        let [[end, most], [own_end, own_most]] = walk(&program, seed, 4, None);
        // Blocks of the C library's, for threads.
        assert!((0..100_000).contains(&(end - own_end)), "seed {seed}: {end}, truly {own_end}");
        let hidden = 4 * (2 * LIVE_GRAIN + 600_000) + 100_000;
        assert!((most - own_most).abs() <= hidden, "seed {seed}: {most}, truly {own_most}");
    }
}

/// The wrapper knows what was asked for: after any number of calls both numbers are the books', in each state of the recorder.
#[test]
fn live_bytes_and_their_peak_behind_the_wrapper_are_exact_at_any_time() {
    static WRAPPED: RecordingAllocator<SystemAllocator> = RecordingAllocator::system();
    let mut state = 7_u64;
    let mut draw = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut held: [Option<(*mut u8, usize)>; 96] = [None; 96];
    let (mut live, mut most) = (0_i64, 0_i64);
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    for round in 0..60_000_usize {
        match round {
            20_000 => {
                record::follow_frees(true);
                record::set_interval(64 << 10);
            }
            40_000 => record::set_interval(1),
            _ => {}
        }
        let slot = draw(96);
        let size = 1 + match draw(64) {
            0 => draw(600_000),
            1 | 2 => draw(60_000),
            _ => draw(1500),
        };
        let frees = 1 + round / 700 % 5;
        // SAFETY: each block is given back once, with the layout that it has.
        let (before, after) = unsafe {
            match held[slot] {
                Some((address, before)) if draw(6) < frees => {
                    WRAPPED.dealloc(address, layout(before));
                    (before, None)
                }
                Some((address, before)) => (before, Some((WRAPPED.realloc(address, layout(before), size), size))),
                None if draw(2) == 0 => (0, Some((WRAPPED.alloc(layout(size)), size))),
                None => (0, Some((WRAPPED.alloc_zeroed(layout(size)), size))),
            }
        };
        held[slot] = after;
        live += after.map_or(0, |(_, size)| size as i64) - before as i64;
        most = most.max(live);
        if round % 16 == draw(16) {
            let mut store = vec![0; region::used_bytes()];
            let length = copy::copy(&mut store);
            let known = profile::store::counters(&store[..length]).expect("a store").live.expect("is known");
            assert_eq!([known.bytes, known.peak_bytes], [live, most], "after {round} calls");
        }
    }
    assert!(most > 1 << 20);
}
