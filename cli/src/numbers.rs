//! Numbers as people write and read them.

/// A number of bytes: `1`, `4096`, `512KiB`, `2M`. Powers of 1024, except where the `B` stands without its `i`: `1kB` is 1000.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(wrong_bytes()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(wrong_bytes)?;
    // The sampler counts down in signed numbers.
    if (1..=1 << 40).contains(&bytes) { Ok(bytes) } else { Err(wrong_bytes()) }
}

fn wrong_bytes() -> String {
    "it must be a number of bytes from 1 (every allocation) to 1024GiB, like 1 or 512KiB".to_owned()
}

/// A number with commas between thousands, as `perf stat` prints it.
pub(crate) fn with_commas(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (i, digit) in digits.chars().enumerate() {
        if i != 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// Bytes in the unit that gives a short number.
pub(crate) fn human_bytes(bytes: i64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value.abs() < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// A time span in the unit that gives a short number.
pub(crate) fn human_nanos(nanos: i64) -> String {
    match nanos as f64 {
        n if n.abs() >= 1e9 => format!("{:.2} s", n / 1e9),
        n if n.abs() >= 1e6 => format!("{:.1} ms", n / 1e6),
        0.0 => "0 s".to_owned(),
        n => format!("{:.0} us", n / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_with_and_without_units() {
        for (text, bytes) in
            [("1", 1), ("512KiB", 512 << 10), ("512 kib", 512 << 10), ("2M", 2 << 20), ("1kB", 1000), ("7b", 7)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn bytes_that_make_no_sense_are_refused() {
        for text in ["", "0", "-1", "1.5", "KiB", "1XB", "99999999999999999999", "1025GiB", "18446744073709551615G"] {
            assert!(parse_bytes(text).unwrap_err().contains("512KiB"), "{text}");
        }
    }

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (-1_234_567, "-1,234,567")] {
            assert_eq!(with_commas(number), text);
        }
    }

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1_258_291), "1.2 MiB");
        assert_eq!(human_nanos(1_234_000_000), "1.23 s");
        assert_eq!(human_nanos(12_340_000), "12.3 ms");
    }
}
