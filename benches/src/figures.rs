//! Times of repeated rounds, and what a benchmark says of them.

use std::time::Instant;

/// Nanoseconds, one for each round.
#[derive(Clone, Debug, Default)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// Adds a round.
    pub fn push(&mut self, nanoseconds: f64) {
        self.0.push(nanoseconds);
    }

    /// The shortest: what the code takes if nothing else uses the machine.
    pub fn best(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The longest.
    pub fn worst(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// All together.
    pub fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// The one in the middle.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Nanoseconds that `work` takes.
pub fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed().as_nanos() as f64
}

/// What [`time`] says of no work at all.
pub fn time_of_nothing() -> f64 {
    let mut rounds = Rounds::default();
    (0..10_000).for_each(|_| rounds.push(time(|| ())));
    rounds.median()
}

/// Whether the command line asks for few rounds: to see that a benchmark works, not for its figures.
pub fn is_quick() -> bool {
    std::env::args().any(|argument| argument == "--quick")
}

/// Nanoseconds that this thread ran: what work takes on a machine that does other things as well.
///
/// # Panics
/// If the kernel does not tell.
pub fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("/proc is mounted");
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number of nanoseconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_shortest_and_the_median_the_middle() {
        let rounds = Rounds(vec![7.0, 1.0, 3.0]);
        assert_eq!((rounds.best(), rounds.median()), (1.0, 3.0));
    }
}
