//! Numbers of bytes, as people write them.

use std::num::NonZeroU64;

/// What [`parse_bytes`] takes, to complete a sentence like `it must be ...`.
pub const BYTES_ALLOWED: &str =
    "a number of bytes from 1 to 1TiB, like 512KiB (units: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)";

/// A number of bytes: `1`, `4096`, `512KiB`, `2M`. Powers of 1024, except where the `B` stands without its `i`: `1kB` is 1000. `None` if it is none, or more than 1 TiB (allocation sampling counts down in
/// signed numbers).
pub fn parse_bytes(text: &str) -> Option<NonZeroU64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        // A blank alone is no unit.
        "" if !unit.is_empty() => return None,
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes <= 1 << 40).and_then(NonZeroU64::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_and_without_units() {
        let cases = [
            ("1", 1),
            ("524288", 524_288),
            ("512KiB", 512 << 10),
            ("512 kib", 512 << 10),
            ("512K", 512 << 10),
            ("2M", 2 << 20),
            ("1kB", 1000),
            ("1MB", 1_000_000),
            ("7b", 7),
            ("1TiB", 1 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text).map(NonZeroU64::get), Some(bytes), "{text}");
        }
    }

    #[test]
    fn bytes_that_make_no_sense_are_refused() {
        for text in [
            "",
            "0",
            "0KiB",
            "-1",
            "+1",
            "1.5",
            "1.5MiB",
            "KiB",
            "1XB",
            "1 apple",
            "off",
            " 1",
            "1 ",
            "1KiB ",
            "2TiB",
            "1025GiB",
            "99999999TB",
            "18446744073709551615G",
            "18446744073709551616",
        ] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }
}
