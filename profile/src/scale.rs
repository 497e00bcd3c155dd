//! Profiles of another size: of a second instead of a minute, of one operation instead of a thousand.

use crate::{Profile, profile::clamp};
use std::num::NonZeroU32;

impl Profile {
    /// Multiplies every value by `numerator / denominator`.
    ///
    /// Values are whole numbers. Each column's total is rounded once: what a sample loses by rounding the next one gets, so that the total
    /// is off by one half at most, and each value by less than one. Single observations are rounded one by one.
    pub fn scale(&mut self, numerator: u32, denominator: NonZeroU32) {
        let (numerator, denominator) = (i128::from(numerator), i128::from(denominator.get()));
        // To the nearest whole number, halves up.
        let scaled = |value: i128| (value * numerator * 2 + denominator).div_euclid(denominator * 2);
        for column in 0..self.sample_types.len() {
            let (mut sum, mut given) = (0_i128, 0_i128);
            for value in self.samples.iter_mut().filter_map(|sample| sample.values.get_mut(column)) {
                sum += i128::from(*value);
                *value = clamp(scaled(sum) - given);
                given = scaled(sum);
            }
        }
        for event in &mut self.events {
            event.weight = clamp(scaled(i128::from(event.weight)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Labels, Sample, SampleType};

    fn profile(values: &[i64]) -> Profile {
        let mut profile = Profile::new(vec![SampleType::new("cpu", "nanoseconds")]);
        for value in values {
            let stack = profile.stacks.intern([Frame::named("f")]);
            profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: crate::values![*value] });
        }
        profile
    }

    #[test]
    fn the_total_is_rounded_once() {
        for (values, numerator, denominator, total) in [
            (vec![1; 1000], 1, 3, 333),
            (vec![1; 1000], 2, 3, 667),
            (vec![5, -5, 7, -9], 1, 2, -1),
            (vec![i64::MAX, 3], 1, 1, i64::MAX),
            (vec![7, 8], 0, 9, 0),
        ] {
            let mut scaled = profile(&values);
            scaled.scale(numerator, NonZeroU32::new(denominator).unwrap());
            assert_eq!(scaled.total(0), total, "{values:?} times {numerator}/{denominator}");
            for (before, after) in values.iter().zip(&scaled.samples) {
                let exact = *before as f64 * f64::from(numerator) / f64::from(denominator);
                assert!((exact - after.values[0] as f64).abs() <= 1.0);
            }
        }
    }

    #[test]
    fn values_stop_at_the_end_of_their_range() {
        let mut scaled = profile(&[i64::MAX, i64::MIN]);
        scaled.scale(u32::MAX, NonZeroU32::MIN);
        assert_eq!(scaled.samples.iter().map(|s| s.values[0]).collect::<Vec<_>>(), [i64::MAX, i64::MIN]);
    }
}
