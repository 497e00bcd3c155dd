//! Exact numbers in the titles of a flame graph's frames: the library that draws makes doubles of them, which end at 2^53.

use inferno::flamegraph::{self, Options};
use std::io::{self, Write};

/// From this sum on numbers are written here. Below it a double, and its product with 0.001, round as integers do.
const WIDE: u128 = 1 << 50;

/// Stands before the unit in a title until the number before it is exact. No name has control characters.
const MARK: char = '\u{1}';

/// Draws lines whose values have this sum. `shown` makes the number of a title, which is so many of a unit, of its frame's width, which is in that of the lines.
pub(crate) fn draw<'a>(
    mut options: Options<'_>,
    unit: &str,
    sum: u128,
    lines: impl Iterator<Item = &'a str>,
    shown: impl Fn(u64) -> u128,
    out: &mut dyn Write,
) -> io::Result<()> {
    if sum < WIDE {
        options.count_name = unit.to_owned();
        return flamegraph::from_lines(&mut options, lines, out);
    }
    options.count_name = format!("{MARK}{unit}");
    let mut picture = Vec::new();
    flamegraph::from_lines(&mut options, lines, &mut picture)?;
    write(&picture, shown, out)
}

/// Writes a picture with exact numbers.
fn write(picture: &[u8], shown: impl Fn(u64) -> u128, out: &mut dyn Write) -> io::Result<()> {
    let picture = std::str::from_utf8(picture).map_err(io::Error::other)?;
    let mut rest = picture;
    while let Some((before, after)) = rest.split_once(MARK) {
        let width = after.split_once("fg:w=\"").and_then(|(_, width)| width.split_once('"')?.0.parse().ok());
        let width = width.ok_or_else(|| io::Error::other("a frame of the flame graph has no width"))?;
        let text = before.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, ',' | ' '));
        write!(out, "{text}{} ", Thousands(shown(width)))?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// A number as the library writes it, with commas.
struct Thousands(u128);

impl std::fmt::Display for Thousands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.0.to_string();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_before_a_mark_becomes_that_of_the_width_and_nothing_else_changes() {
        let picture = "<title>f 12 (1,000 \u{1}a (b, 5.00%)</title><rect fg:w=\"1234567\"/><title>x (7 \u{1}a)</title><rect fg:w=\"999\"/>";
        let mut out = Vec::new();
        write(picture.as_bytes(), |width| u128::from(width) * 10, &mut out).unwrap();
        let expected = "<title>f 12 (12,345,670 a (b, 5.00%)</title><rect fg:w=\"1234567\"/><title>x (9,990 a)</title><rect fg:w=\"999\"/>";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert!(write("(1 \u{1}a)".as_bytes(), u128::from, &mut Vec::new()).is_err());
    }
}
