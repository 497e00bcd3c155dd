//! How far a value may be off: exact counts not at all, sampled ones by what chance does.

use crate::{Profile, SampleType};

/// Half-width of a 95 % confidence interval, in standard deviations.
const NINETY_FIVE: f64 = 1.959_964;
/// The same for one of very many stacks, of which a twentieth would be news otherwise: 99.9 %.
const ONE_OF_MANY: f64 = 3.290_527;

/// A value on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// In the base; 0 if it is not there.
    pub base: i64,
    /// In the head; 0 if it is not there.
    pub head: i64,
    /// Variance of the difference through sampling, in the square of the unit; 0 if both values are exact.
    pub variance: f64,
}

/// What became of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// In the head only.
    New,
    /// More in the head.
    Grown,
    /// Less in the head.
    Shrunk,
    /// In the base only.
    Gone,
    /// The same number.
    Same,
    /// Another number, by no more than what sampling does by chance.
    Noise,
}

impl Status {
    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Grown => "grown",
            Self::Shrunk => "shrunk",
            Self::Gone => "gone",
            Self::Same => "same",
            Self::Noise => "noise",
        }
    }
}

impl Change {
    /// Two exact values.
    pub const fn exact(base: i64, head: i64) -> Self {
        Self { base, head, variance: 0.0 }
    }

    /// Head less base; stops at the ends of `i64`.
    pub const fn delta(self) -> i64 {
        self.head.saturating_sub(self.base)
    }

    /// The difference as a share of the base: 0.5 is half more. `None` where there is no base.
    pub fn ratio(self) -> Option<f64> {
        (self.base != 0).then(|| self.delta() as f64 / (self.base as f64).abs())
    }

    /// Half of the difference's 95 % confidence interval, in the unit of the values; 0 if they are exact.
    pub fn half_width(self) -> f64 {
        NINETY_FIVE * self.variance.max(0.0).sqrt()
    }

    /// What became of a total: [`Status::Noise`] within the 95 % confidence interval.
    pub fn status(self) -> Status {
        self.beyond(NINETY_FIVE)
    }

    /// What became of one of many stacks or functions: [`Status::Noise`] within the 99.9 % confidence interval.
    pub fn status_of_one(self) -> Status {
        self.beyond(ONE_OF_MANY)
    }

    fn beyond(self, deviations: f64) -> Status {
        let delta = self.delta();
        match (self.base, self.head) {
            _ if delta == 0 => Status::Same,
            _ if self.variance > 0.0 && (delta as f64).abs() <= deviations * self.variance.sqrt() => Status::Noise,
            (0, _) => Status::New,
            (_, 0) => Status::Gone,
            _ if delta > 0 => Status::Grown,
            _ => Status::Shrunk,
        }
    }

    /// Adds another value of the same kind; variances of independent values add up.
    pub(super) fn add(&mut self, other: Self) {
        self.base = self.base.saturating_add(other.base);
        self.head = self.head.saturating_add(other.head);
        self.variance += other.variance;
    }
}

/// How one column of a profile came about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Precision {
    /// Every event was counted.
    Exact,
    /// Allocations were sampled, one in so many bytes; the columns that hold objects and bytes.
    Bytes { interval: f64, objects: usize, bytes: usize },
    /// Samples at a regular rate; the column that counts them, or what one stands for where none does.
    Ticks { samples: Option<usize>, period: f64 },
}

impl Precision {
    /// Of a column.
    pub(super) fn of(profile: &Profile, column: usize) -> Self {
        let Some(sample_type) = profile.sample_types.get(column) else { return Self::Exact };
        if sample_type.is_memory() {
            return Self::of_memory(profile, sample_type);
        }
        let is_time = matches!(&*sample_type.kind, "cpu" | "wall" | "off_cpu");
        if is_time || sample_type.kind == "samples" {
            let period = if is_time { profile.period.max(1) as f64 } else { 1.0 };
            return Self::Ticks { samples: profile.column("samples"), period };
        }
        Self::Exact
    }

    fn of_memory(profile: &Profile, sample_type: &SampleType) -> Self {
        let is_space = profile.period_type.as_ref().is_some_and(|t| t.kind == "space");
        if !is_space || profile.period <= 1 {
            return Self::Exact;
        }
        let prefix = if sample_type.kind.starts_with("inuse_") { "inuse_" } else { "alloc_" };
        let column = |noun: &str| profile.column(&format!("{prefix}{noun}"));
        match (column("objects"), column("space")) {
            (Some(objects), Some(bytes)) => Self::Bytes { interval: profile.period as f64, objects, bytes },
            _ => Self::Exact,
        }
    }

    /// Variance of one stack's value, given all values of the stack.
    ///
    /// Of n sampled events that were taken with probability q each, the estimate's relative variance is (1 - q) / n.
    pub(super) fn variance(self, values: &[i64], column: usize) -> f64 {
        let value = |column: usize| values.get(column).map_or(0.0, |value| (*value as f64).abs());
        let of_this = value(column);
        if of_this == 0.0 {
            return 0.0;
        }
        match self {
            Self::Exact => 0.0,
            Self::Bytes { interval, objects, bytes } => {
                let taken = 1.0 - (-value(bytes) / value(objects).max(1.0) / interval).exp();
                let sampled = (value(objects) * taken).max(1.0);
                of_this * of_this * (1.0 - taken) / sampled
            }
            Self::Ticks { samples, period } => {
                let number = samples.map_or(of_this / period, value).max(1.0);
                of_this * of_this / number
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(period: i64) -> Profile {
        Profile {
            period_type: Some(SampleType::new("space", "bytes")),
            period,
            ..Profile::new(vec![SampleType::new("alloc_objects", "count"), SampleType::new("alloc_space", "bytes")])
        }
    }

    #[test]
    fn one_more_is_a_change_of_an_exact_count_and_noise_of_a_sampled_one() {
        assert_eq!(Change::exact(1000, 1001).status(), Status::Grown);
        assert_eq!(Change { variance: 100.0, ..Change::exact(1000, 1019) }.status(), Status::Noise);
        assert_eq!(Change { variance: 100.0, ..Change::exact(1000, 1020) }.status(), Status::Grown);
        assert_eq!(Change { variance: 100.0, ..Change::exact(1000, 1020) }.status_of_one(), Status::Noise);
        assert_eq!(Change::exact(0, 5).status(), Status::New);
        assert_eq!(Change::exact(5, 0).status(), Status::Gone);
        assert_eq!(Change::exact(5, 5).status(), Status::Same);
        assert_eq!(Change::exact(i64::MIN, i64::MAX).delta(), i64::MAX);
    }

    #[test]
    fn every_allocation_seen_is_exact_and_a_sample_is_as_wide_as_its_number_is_small() {
        assert_eq!(Precision::of(&memory(1), 0), Precision::Exact);
        let sampled = Precision::of(&memory(524_288), 0);
        // 16 objects of 512 KiB were taken with probability 0.632: ten samples.
        let values = [16, 16 * 524_288];
        let (objects, bytes) = (sampled.variance(&values, 0), sampled.variance(&values, 1));
        let taken = 1.0 - (-1.0_f64).exp();
        let expected = 256.0 * (1.0 - taken) / (16.0 * taken);
        assert!((objects - expected).abs() < 1e-9, "{objects} {expected}");
        assert!((bytes / objects - 524_288.0_f64.powi(2)).abs() < 1.0, "bytes vary as objects do");
        // What is far larger than the interval is always taken.
        assert!(sampled.variance(&[1, 1 << 30], 1) < 1e-9);
    }

    #[test]
    fn time_varies_as_the_number_of_its_samples() {
        let profile = Profile::new(vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")]);
        let ticks = Precision::of(&profile, 1);
        assert_eq!(ticks.variance(&[100, 1_000_000], 1).sqrt().round(), 100_000.0);
        let without = Profile { period: 1000, ..Profile::new(vec![SampleType::new("cpu", "nanoseconds")]) };
        assert_eq!(Precision::of(&without, 0).variance(&[100_000], 0).sqrt().round(), 10_000.0);
    }
}
