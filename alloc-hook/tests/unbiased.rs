//! Sampled values are unbiased estimates of the truth.
//!
//! Two hundred seeds, each a thread of its own with that seed as its random state, allocate on ten stacks of ten sizes, in turn. The samples are those of a Poisson process in
//! bytes, so of `n` allocations of one size each is sampled independently with probability `p = 1 - exp(-size / interval)`, and the sum of their weights `1 / p` has mean `n` and
//! variance `n (1 - p) / p`. The statistic is `z`: the mean over the seeds less the truth, divided by its own known standard deviation. Five tests compare four columns of ten
//! stacks: `|z| < 5.2` in all 200 comparisons together would fail a right sampler less than once in 10,000 choices of the seeds. (They are fixed, so it fails never or always.)
//!
//! Power: a bias of 5 % would be seen (nine times in ten) where a stack has some 17,000 samples over all seeds: at 4 KiB in every stack, at 64 KiB from 200 bytes and at 512 KiB from 1,000
//! bytes on. Of smaller blocks a moment has too few samples: of 8 bytes at 512 KiB a bias of 45 % would be seen. There the sum of all stacks' `z` helps, since a bias would be theirs in common.
//!
//! It lies here because this package is optimised in tests: some hundred million allocations.
//!
//! # Safety
//! No block has memory: the allocator behind the recorder hands out addresses, and nobody looks there.

use capture::region::{self, Purpose};
use capture::thread::{self, Current};
use capture::{copy, modules, rules};
use layout::modes;
use profile::Profile;
use profile_recorder_alloc_hook::{RecordingAllocator, record};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

const SEEDS: u64 = 200;
const LIMIT: f64 = 5.2;
const KIB: u64 = 1 << 10;
/// Most allocations of one stack and seed.
const MOST: u64 = 1 << 16;

/// Addresses without memory.
struct Nowhere(AtomicUsize);

// SAFETY: only this file allocates here, and it touches no block.
unsafe impl GlobalAlloc for Nowhere {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size().next_multiple_of(16);
        std::ptr::without_provenance_mut(self.0.fetch_add(size, Ordering::Relaxed))
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}

    unsafe fn realloc(&self, _: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let layout = Layout::from_size_align(size, layout.align()).expect("a valid layout");
        // SAFETY: as the caller promises; there is nothing to move.
        unsafe { self.alloc(layout) }
    }
}

static ALLOC: RecordingAllocator<Nowhere> = RecordingAllocator::new(Nowhere(AtomicUsize::new(1 << 44)));

/// What a stack does with a block after it got it.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Kept,
    Freed,
}

/// How a stack gets a block.
#[derive(Clone, Copy)]
enum Way {
    New,
    /// In place of one of no bytes, which nobody made.
    Moved,
}

macro_rules! sites {
    ($($name:ident $size:literal)*) => {
        $(
            #[inline(never)]
            fn $name(way: Way, fate: Fate) {
                let [none, layout] = [0, $size].map(|size| Layout::from_size_align(size, 1).expect("a valid layout"));
                // SAFETY: nobody looks at the block, and it is given back once with its layout.
                unsafe {
                    let block = match way {
                        Way::New => ALLOC.alloc(black_box(layout)),
                        Way::Moved => ALLOC.realloc(std::ptr::without_provenance_mut(1 << 43), none, black_box($size)),
                    };
                    if fate == Fate::Freed {
                        ALLOC.dealloc(block, layout);
                    }
                }
            }
        )*
        const SITES: [(u64, fn(Way, Fate)); 10] = [$(($size, $name)),*];
    };
}

sites! {
    bytes_8 8 bytes_24 24 bytes_64 64 bytes_200 200 bytes_1000 1000
    bytes_4096 4096 bytes_20000 20000 bytes_65536 65536 bytes_300000 300_000 bytes_1048576 1_048_576
}

/// The store is the process's, and so are interval and addresses: one test at a time.
fn set_up() -> MutexGuard<'static, u64> {
    static TURN: Mutex<u64> = Mutex::new(0);
    let mut turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *turn == 0 {
        let purpose = Purpose {
            modes: modes::ALLOCS | modes::HEAP,
            budget_bytes: 64 << 20,
            alloc_interval_bytes: 512 * KIB,
            period_ns: 0,
        };
        region::open(&purpose, None).expect("a private store");
        rules::set_up();
        modules::refresh();
        record::follow_frees(true);
    }
    *turn += 1;
    turn
}

/// Allocations of one stack and seed while this interval is in force: enough for a hundred samples, if that is not too many.
fn times(size: u64, interval: u64) -> u64 {
    // A multiple of four, so that a quarter of them is a whole number.
    (100 * interval / size).clamp(100, MOST) & !3
}

/// What a seed allocates while an interval is in force, by number of the stack: they take turns, each as often as it must to be done when the others are. Of each four blocks one is freed at once.
fn turns(interval: u64) -> Vec<(usize, Fate)> {
    let most = SITES.iter().map(|(size, _)| times(*size, interval)).max().unwrap_or(0);
    let (mut done, mut turns) = ([0; SITES.len()], Vec::new());
    for round in 1..=most {
        for (site, done) in done.iter_mut().enumerate() {
            let due = times(SITES[site].0, interval) * round / most;
            while *done < due {
                *done += 1;
                turns.push((site, if *done % 4 == 0 { Fate::Freed } else { Fate::Kept }));
            }
        }
    }
    turns
}

/// All that was allocated so far.
fn recorded() -> Profile {
    let mut store = vec![0; region::used_bytes()];
    let length = copy::copy(&mut store);
    let decoded = profile::store::decode(&store[..length]).expect("a store");
    assert!(decoded.lost.is_empty(), "nothing was lost: {:?}", decoded.lost);
    decoded.allocs.expect("allocations")
}

/// `alloc_objects`, `alloc_space`, `inuse_objects`, `inuse_space`.
type Estimates = [f64; 4];

/// Runs the seeds one after the other, each with these intervals in turn; estimates by size, one for each seed.
fn estimates(turn: u64, way: Way, intervals: &[u64]) -> BTreeMap<u64, Vec<Estimates>> {
    let name = |seed: u64| format!("{turn} seed {seed}");
    let turns: Vec<_> = intervals.iter().map(|interval| (*interval, turns(*interval))).collect();
    for seed in 0..SEEDS {
        let work = || {
            let Current::Known(state) = thread::current() else { panic!("the thread is registered") };
            // Any odd multiplier does: it only keeps neighbours from beginning alike.
            state.random.store((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
            for (interval, turns) in &turns {
                record::set_interval(*interval);
                turns.iter().for_each(|(site, fate)| SITES[*site].1(way, *fate));
                record::set_interval(0);
            }
            thread::retire_current();
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(name(seed)).spawn_scoped(scope, work);
            thread.expect("a thread").join().expect("no panic");
        });
    }
    let profile = recorded();
    let mut of_size: BTreeMap<u64, Vec<Estimates>> =
        SITES.iter().map(|(size, _)| (*size, vec![[0.0; 4]; SEEDS as usize])).collect();
    for sample in &profile.samples {
        let thread = &profile.threads[sample.thread.expect("a thread").index()].name;
        let Some(seed) = thread.strip_prefix(&format!("{turn} seed ")) else { continue };
        let seed: usize = seed.parse().expect("a number");
        // Bytes by objects tell the size, and so the stack: no two are alike. Both are rounded.
        let size = sample.values[1] as f64 / sample.values[0] as f64;
        let near = |known: &u64| (size / *known as f64).ln().abs();
        let known = SITES.iter().map(|(size, _)| *size).min_by(|a, b| near(a).total_cmp(&near(b))).expect("ten sizes");
        assert!(near(&known) < 0.02, "no stack has blocks of {size} bytes: {:?}", sample.values);
        let sums = &mut of_size.get_mut(&known).expect("one of ten")[seed];
        sums.iter_mut().zip(&sample.values).for_each(|(sum, value)| *sum += *value as f64);
    }
    of_size
}

fn assert_unbiased(way: Way, intervals: &[u64]) {
    let turn = set_up();
    let mut common = 0.0;
    for (size, seeds) in estimates(*turn, way, intervals) {
        let truth: u64 = intervals.iter().map(|interval| times(size, *interval)).sum();
        let variance: f64 = intervals
            .iter()
            .map(|interval| {
                let unsampled = (-(size as f64) / *interval as f64).exp();
                times(size, *interval) as f64 * unsampled / (1.0 - unsampled)
            })
            .sum();
        for (column, name, truth, variance, unit) in [
            (0, "alloc_objects", truth as f64, variance, 1.0),
            (1, "alloc_space", (truth * size) as f64, variance, size as f64),
            (2, "inuse_objects", truth as f64 * 0.75, variance * 0.75, 1.0),
            (3, "inuse_space", (truth * size) as f64 * 0.75, variance * 0.75, size as f64),
        ] {
            let mean = seeds.iter().map(|values| values[column]).sum::<f64>() / SEEDS as f64;
            let deviation = unit * (variance / SEEDS as f64).sqrt();
            // A profile shows whole objects, and bytes are rounded with each sample: half a unit.
            let slack = if column % 2 == 0 { 0.5 } else { 0.5 * truth / size as f64 };
            let error = mean - truth;
            println!(
                "{intervals:?} {size:8} {name:14} truth {truth:12.0} mean {mean:14.1} error {:8.4} % z {:6.2}",
                100.0 * error / truth,
                error / deviation
            );
            assert!(
                error.abs() < LIMIT * deviation + slack,
                "{name} of {size} bytes at {intervals:?}: {mean} on average, {truth} in truth, {:.1} deviations",
                error / deviation
            );
            if column == 0 && deviation > 2.0 * slack {
                common += error / deviation / (SITES.len() as f64).sqrt();
            }
        }
    }
    assert!(common.abs() < LIMIT, "all stacks together: {common:.1} deviations");
}

#[test]
fn estimates_at_4_kib_are_unbiased() {
    assert_unbiased(Way::New, &[4 * KIB]);
}

#[test]
fn estimates_at_64_kib_are_unbiased() {
    assert_unbiased(Way::New, &[64 * KIB]);
}

#[test]
fn estimates_at_512_kib_are_unbiased() {
    assert_unbiased(Way::New, &[512 * KIB]);
}

/// An allocation is weighed by the interval under which it was sampled.
#[test]
fn estimates_are_unbiased_though_the_interval_changes() {
    assert_unbiased(Way::New, &[16 * KIB, 512 * KIB, 4 * KIB]);
}

/// Reallocations between two samples are only counted as well.
#[test]
fn estimates_of_what_is_reallocated_are_unbiased() {
    assert_unbiased(Way::Moved, &[64 * KIB]);
}

/// What was allocated in between may have been a reallocation that was only counted.
#[test]
fn a_reallocation_in_between_ends_what_is_temporary() {
    let turn = set_up();
    record::set_interval(KIB);
    let name = format!("{} between", *turn);
    let [none, layout] = [0, 512].map(|size| Layout::from_size_align(size, 1).expect("a valid layout"));
    let work = || {
        for _ in 0..20_000 {
            // SAFETY: nobody looks at the blocks, and each is given back once with its layout.
            unsafe {
                let block = ALLOC.alloc(black_box(layout));
                let other = ALLOC.realloc(std::ptr::without_provenance_mut(1 << 43), none, 1);
                ALLOC.dealloc(block, layout);
                ALLOC.dealloc(other, Layout::from_size_align(1, 1).expect("a valid layout"));
            }
        }
        thread::retire_current();
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, work);
        thread.expect("a thread").join().expect("no panic");
    });
    record::set_interval(0);
    let profile = recorded();
    let column = profile.sample_types.iter().position(|column| column.kind == "temporary_objects").expect("its column");
    let of_blocks = profile.samples.iter().filter(|sample| {
        let thread = &profile.threads[sample.thread.expect("a thread").index()].name;
        // Bytes by objects tell the blocks from what was made in between.
        *thread == name && sample.values[1] / sample.values[0].max(1) > 256
    });
    let (objects, temporary) = of_blocks
        .fold((0, 0), |(objects, temporary), sample| (objects + sample.values[0], temporary + sample.values[column]));
    assert!((15_000..25_000).contains(&objects), "{objects} objects");
    assert_eq!(temporary, 0, "of {objects}");
}
