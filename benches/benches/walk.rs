//! Nanoseconds a frame of a plain stack walk, warm: `cargo bench -p profile-recorder-benches --bench walk [-- --quick]`

use profile_recorder_benches::figures::{Rounds, is_quick, time, time_of_nothing};
use profile_recorder_benches::stacks::descend;
use profile_recorder_benches::walkers::{self, StackWalker};

/// Different stacks of each depth.
const STACKS: u64 = 500;
/// Walks of one stack in a round of the first kind.
const AGAIN: u32 = 100;
/// Rounds of one walker before it is the next one's turn.
const BLOCK: u64 = 50;

fn main() {
    let rounds = if is_quick() { 100 } else { 4000 };
    let mut walkers = walkers::all();
    println!("Stack walk, warm: ns a frame, {rounds} rounds over {STACKS} stacks of 128 functions.");
    println!(
        "`again`: {AGAIN} walks of a stack in succession; `another`: one walk, of another stack than the one before.\n"
    );
    println!("depth  walker                 again: best  median  another: best  median  frames  differences");
    for depth in [30, 100] {
        for row in measure(&mut walkers, depth, rounds) {
            println!(
                "{depth:5}  {:20} {:13.1} {:7.1} {:14.1} {:7.1} {:7}  {}",
                row.name,
                row.again.best(),
                row.again.median(),
                row.another.best(),
                row.another.median(),
                row.frames,
                row.differences.len(),
            );
            row.differences.iter().take(3).for_each(|difference| println!("       {difference}"));
        }
    }
}

/// Figures of one walker at one depth, in nanoseconds a frame.
#[derive(Default)]
struct Row {
    name: &'static str,
    frames: usize,
    again: Rounds,
    another: Rounds,
    differences: Vec<String>,
}

fn measure(walkers: &mut [Box<dyn StackWalker>], depth: u32, rounds: u64) -> Vec<Row> {
    let nothing = time_of_nothing();
    let mut rows: Vec<Row> = walkers.iter().map(|walker| Row { name: walker.name(), ..Row::default() }).collect();
    // Caches and the call tree see every stack once before: what is measured is the walk of known code.
    for seed in 0..STACKS {
        for (walker, row) in walkers.iter_mut().zip(&mut rows) {
            descend(depth, seed, &mut |registers| walker.walk(registers));
            row.frames = walker.frames().len();
        }
        row_differences(walkers, &mut rows, seed);
    }
    // In turn, so that all get their share of what else the machine does; not stack by stack, since each would find the caches as the one before
    // left them.
    for block in 0..rounds / BLOCK {
        for (walker, row) in walkers.iter_mut().zip(&mut rows) {
            for seed in block * BLOCK..(block + 1) * BLOCK {
                descend(depth, seed % STACKS, &mut |registers| {
                    let once = time(|| walker.walk(registers));
                    let again = time(|| (0..AGAIN).for_each(|_| walker.walk(registers)));
                    row.another.push((once - nothing) / row.frames as f64);
                    row.again.push((again - nothing) / row.frames as f64 / f64::from(AGAIN));
                });
            }
        }
    }
    rows
}

/// Compares what the walkers found last, each on the same stack.
fn row_differences(walkers: &[Box<dyn StackWalker>], rows: &mut [Row], seed: u64) {
    let Some((ours, others)) = walkers.split_first() else { return };
    let ours = ours.frames();
    for (walker, row) in others.iter().zip(rows.iter_mut().skip(1)) {
        if let Err(difference) = walkers::compare(&ours, &walker.frames()) {
            row.differences.push(format!("stack {seed}: {difference}"));
        }
    }
}
