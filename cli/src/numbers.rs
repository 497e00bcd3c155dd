//! Numbers as people write and read them.

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
