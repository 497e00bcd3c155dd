//! Keeps what recording costs below a bound: the rate is lowered to what the last cycle's measure allows, and where once a second is too much still, only a
//! part of the processes is recorded at a time.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Rate and part that the measures so far allow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Governor {
    /// Most of the machine's processor time, 0 to 1.
    limit: f64,
    /// Samples a second that are allowed.
    allowed: f64,
    /// What was asked for.
    asked: u32,
}

impl Governor {
    /// Allows what is asked for, until it costs more than `limit_percent` of the machine.
    pub(crate) fn new(limit_percent: f64, asked: u32) -> Self {
        Self { limit: limit_percent / 100.0, allowed: asked.into(), asked }
    }

    /// Takes note of what a cycle cost, as a part of the machine's processor time: cost follows the rate.
    pub(crate) fn measured(&mut self, cost: f64) {
        let asked = f64::from(self.asked);
        self.allowed = if cost > 0.0 { (self.allowed * self.limit / cost).min(asked) } else { asked };
    }

    /// Samples a second, at least one.
    pub(crate) fn frequency(&self) -> u32 {
        // Within the range of what was asked for.
        (self.allowed as u32).max(1)
    }

    /// Whether a process takes its turn in a cycle. Over many cycles each gets its part.
    pub(crate) fn includes(&self, process: impl Hash, cycle: u64) -> bool {
        if self.allowed >= 1.0 {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        (process, cycle).hash(&mut hasher);
        (hasher.finish() as f64 / u64::MAX as f64) < self.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_what_it_costs() {
        let mut governor = Governor::new(1.0, 11);
        governor.measured(0.005);
        assert_eq!(governor.frequency(), 11);
        governor.measured(0.02);
        assert_eq!(governor.frequency(), 5);
        governor.measured(0.0025);
        assert_eq!(governor.frequency(), 11, "and comes back");
        governor.measured(0.02);
        governor.measured(0.0);
        assert_eq!(governor.frequency(), 11);
    }

    #[test]
    fn beyond_the_lowest_rate_processes_take_turns() {
        let mut governor = Governor::new(1.0, 10);
        governor.measured(0.4);
        assert_eq!(governor.frequency(), 1);
        let turns = (0..4000).filter(|cycle| governor.includes("app", *cycle)).count();
        assert!((800..1200).contains(&turns), "a quarter: {turns}");
        assert!((0..100).all(|cycle| Governor::new(1.0, 10).includes("app", cycle)));
    }
}
