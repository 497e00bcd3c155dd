//! Threads with the small signal stacks that Rust gives them, whose call trees grow with every tick.

use std::hint::black_box;

#[inline(never)]
fn burn(rounds: u64) -> u64 {
    (0..rounds).fold(0, |sum, i| black_box(sum ^ i))
}

#[inline(never)]
fn one(depth: u32, random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    if depth == 0 {
        return burn(40) % 1000;
    }
    let next = match *random >> 62 {
        0 => one,
        1 => two,
        2 => three,
        _ => four,
    };
    black_box(next(depth - 1, random)) + 1
}

#[inline(never)]
fn two(depth: u32, random: &mut u64) -> u64 {
    black_box(one(depth, random)) + 2
}

#[inline(never)]
fn three(depth: u32, random: &mut u64) -> u64 {
    black_box(one(depth, random)) + 3
}

#[inline(never)]
fn four(depth: u32, random: &mut u64) -> u64 {
    black_box(one(depth, random)) + 4
}

fn main() {
    let threads: Vec<_> = (1..5)
        .map(|seed| {
            std::thread::spawn(move || {
                let mut random = seed;
                (0..40_000).fold(0_u64, |sum, _| sum.wrapping_add(one(60, &mut random)))
            })
        })
        .collect();
    let sum = threads.into_iter().fold(0_u64, |sum, thread| sum.wrapping_add(thread.join().expect("no panic")));
    println!("{}", sum > 0);
}
