//! Numbers that users may give: how they are written and which are allowed.
//!
//! One definition for the environment, for query parameters and for the body of `POST /sample`.

use std::num::NonZeroU64;

/// What would have been allowed, to complete a sentence like `"x" is not ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed(pub(crate) &'static str);

/// Ticks per second unless told.
pub(crate) const DEFAULT_HZ: u32 = 99;
/// Seconds of a recording of time unless told, as in Go.
pub(crate) const DEFAULT_SECONDS: f64 = 30.0;
/// Highest rate.
pub(crate) const MAX_HZ: u32 = 10_000;
/// Longest session.
pub(crate) const MAX_SECONDS: f64 = 3600.0;
/// Most samples that one `POST /sample` may ask for.
pub(crate) const MAX_SAMPLES: u64 = 1_000_000;
/// Widest mean distance between sampled allocations.
pub(crate) const MAX_INTERVAL: u64 = 1 << 40;

const NANOS_PER_SECOND: f64 = 1e9;
/// The `timeInterval`s whose rate is allowed.
const TIME_INTERVAL_NANOS: std::ops::RangeInclusive<f64> = 100e3..=NANOS_PER_SECOND;

/// A rate in ticks per second.
pub(crate) fn hz(text: &str) -> Result<u32, Allowed> {
    digits(text)
        .and_then(|hz| u32::try_from(hz).ok())
        .filter(|hz| (1..=MAX_HZ).contains(hz))
        .ok_or(Allowed("a whole number from 1 to 10000"))
}

/// The length of a recording in seconds, decimals allowed.
pub(crate) fn seconds(text: &str) -> Result<f64, Allowed> {
    decimal(text)
        .filter(|seconds| *seconds > 0.0 && *seconds <= MAX_SECONDS)
        .ok_or(Allowed("a number of seconds greater than 0, at most 3600"))
}

/// A number of bytes, with or without a unit: `1`, `512KiB`, `1 MB`.
pub(crate) fn interval(text: &str) -> Result<NonZeroU64, Allowed> {
    profile::parse_bytes(text).ok_or(Allowed(profile::BYTES_ALLOWED))
}

/// The nanoseconds of `10 ms`; units h, hr, min, s, ms, us, ns, and milliseconds without one.
pub(crate) fn time_interval(text: &str) -> Result<f64, Allowed> {
    let (number, unit) = split_unit(text.trim());
    let nanos_per_unit = match unit.to_ascii_lowercase().as_str() {
        "h" | "hr" => Some(3600e9),
        "min" => Some(60e9),
        "s" => Some(NANOS_PER_SECOND),
        "ms" | "" => Some(1e6),
        "us" | "µs" => Some(1e3),
        "ns" => Some(1.0),
        _ => None,
    };
    decimal(number)
        .zip(nanos_per_unit)
        .map(|(number, unit)| number * unit)
        .filter(|nanos| TIME_INTERVAL_NANOS.contains(nanos))
        .ok_or(Allowed("a time from 100 us to 1 s such as \"10 ms\" (units: h, hr, min, s, ms, us, ns; none: ms)"))
}

/// The rate that takes one sample in so many nanoseconds.
pub(crate) fn hz_of_time_interval(nanos: f64) -> u32 {
    // In range by `time_interval`; the cast saturates.
    ((NANOS_PER_SECOND / nanos).round() as u32).clamp(1, MAX_HZ)
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.trim_end(), unit)
}

/// Decimal digits alone: no sign, no blanks, as `str::parse` would accept a plus.
fn digits(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Digits with at most one point: no sign, exponent, `inf` or `nan`.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.bytes().any(|b| b.is_ascii_digit());
    if plain { text.parse().ok().filter(|number: &f64| number.is_finite()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_whole_and_bounded() {
        for (text, hz_expected) in [("1", 1), ("99", 99), ("10000", 10_000), ("0100", 100)] {
            assert_eq!(hz(text), Ok(hz_expected), "{text}");
        }
        for text in
            ["", "0", "10001", "-1", "+5", "1.5", "99hz", " 9", "99999999999999999999", "nan", "0x10", "\u{663}"]
        {
            assert!(hz(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_positive_and_at_most_an_hour() {
        for (text, expected) in [("1", 1.0), ("0.25", 0.25), ("3600", 3600.0), (".5", 0.5), ("5.", 5.0)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in
            ["", "0", "0.0", "-1", "3600.1", "1e3", "inf", "nan", "NaN", "1s", ".", "1.2.3", "9".repeat(400).as_str()]
        {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn time_intervals_take_the_units_of_swift_profile_recorder() {
        let cases = [
            ("10 ms", 10e6),
            ("10ms", 10e6),
            (" 10 MS ", 10e6),
            ("10", 10e6),
            ("1 s", 1e9),
            ("100us", 100e3),
            ("100000 ns", 100e3),
            ("0.5 s", 0.5e9),
            ("0.01 min", 0.6e9),
            ("0.0001 h", 0.36e9),
            ("0.0001 hr", 0.36e9),
        ];
        for (text, expected) in cases {
            let nanos = time_interval(text).unwrap();
            assert!((nanos - expected).abs() < 1.0, "{text}: {nanos}");
        }
        for text in [
            "",
            "0",
            "0 ms",
            "-5 ms",
            "72 min",
            "2 h",
            "1001 ms",
            "99 us",
            "10 fortnights",
            "ms",
            "1e3 us",
            "ten",
            "1,5 s",
        ] {
            assert!(time_interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_interval_gives_the_nearest_rate() {
        for (nanos, expected) in [(1e9, 1), (100e6, 10), (10e6, 100), (7e6, 143), (100e3, 10_000)] {
            assert_eq!(hz_of_time_interval(nanos), expected);
        }
    }
}
