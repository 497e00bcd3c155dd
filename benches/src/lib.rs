//! What the benchmarks share: stacks to walk, walkers, and figures.
//!
//! The comparison of whole programs is the script `peers`. What each measures and what came out: `README.md`.

pub mod figures;
pub mod objects;
pub mod programs;
pub mod recorded;
pub mod stacks;
pub mod walkers;
