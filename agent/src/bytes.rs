//! Numbers of bytes, as people write them.

/// A number of bytes: `1`, `4096`, `512KiB`, `2M`. Powers of 1024, except where the `B` stands without its `i`: `1kB` is 1000.
///
/// # Errors
/// If it is none from 1 to 1024 GiB.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
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
    "it must be a number of bytes from 1 to 1024GiB, like 512KiB".to_owned()
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
}
