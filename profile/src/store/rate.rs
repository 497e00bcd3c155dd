//! The rate at which CPU time was sampled.

use crate::Profile;

/// Ticks without which nothing can be said of their rate.
const ENOUGH: i64 = 50;

/// A line, if a profile of CPU time has far fewer samples than its period says: the kernel looks at timers of CPU time on its own ticks, 100 to 1,000 times a second. What a sample
/// weighs is the time since the one before all the same.
pub fn rate_reached(profile: &Profile) -> Option<String> {
    const SECOND_NS: i64 = 1_000_000_000;
    let (samples, cpu) = (profile.column("samples")?, profile.column("cpu")?);
    let of = |column: usize| {
        let sampled = profile.samples.iter().filter(|sample| sample.values.get(samples).is_some_and(|n| *n > 0));
        sampled.filter_map(|sample| sample.values.get(column)).sum::<i64>()
    };
    let (ticks, nanos) = (of(samples), of(cpu));
    let expected = nanos.checked_div(profile.period)?;
    (expected >= ENOUGH && ticks * 5 < expected * 4).then(|| {
        format!(
            "sampled {} times per second of CPU time, {} were asked for: the kernel gives no more ticks; the values are those of the CPU clock",
            (ticks as f64 * SECOND_NS as f64 / nanos as f64).round(),
            SECOND_NS / profile.period,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Labels, Sample, SampleType};

    #[test]
    fn a_rate_that_was_not_reached_is_told_and_what_has_no_sample_does_not_count() {
        let types = vec![SampleType::new("samples", "count"), SampleType::new("cpu", "nanoseconds")];
        let mut profile = Profile { period: 1_000_000, ..Profile::new(types) };
        let stack = profile.stacks.intern([Frame::named("main")]);
        let mut add = |ticks, nanos| {
            profile.samples.push(Sample {
                stack,
                thread: None,
                labels: Labels::new(),
                values: crate::values![ticks, nanos],
            });
            rate_reached(&profile)
        };
        assert_eq!(add(0, 9_000_000_000), None, "unsampled");
        assert_eq!(add(10, 40_000_000), None, "too few to tell");
        let told = add(240, 960_000_000).unwrap();
        assert!(told.starts_with("sampled 250 times per second of CPU time, 1000 were asked for"), "{told}");
        assert_eq!(add(3000, 3_000_000_000), None);
    }

    #[test]
    fn other_profiles_have_no_such_rate() {
        assert_eq!(rate_reached(&Profile::new(vec![SampleType::new("wall", "nanoseconds")])), None);
    }
}
