//! Many numbers as one text.

use crate::raw::zigzag;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

/// Numbers as LEB128; in JSON a text in base64.
#[derive(Debug, Default)]
pub(super) struct Column(Vec<u8>);

impl Column {
    /// No numbers yet, and room for so many small ones.
    pub(super) fn with_capacity(numbers: usize) -> Self {
        Self(Vec::with_capacity(numbers + numbers / 2))
    }

    pub(super) fn push(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(super) fn push_signed(&mut self, number: i64) {
        self.push(zigzag(number));
    }
}

impl FromIterator<u32> for Column {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let numbers = numbers.into_iter();
        let mut column = Self::with_capacity(numbers.size_hint().0);
        numbers.for_each(|number| column.push(number.into()));
        column
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_many_bytes_as_they_need() {
        let mut column: Column = [0, 127, 128].into_iter().collect();
        column.push(u64::MAX);
        column.push_signed(-1);
        assert_eq!(column.0[..4], [0, 127, 0x80, 1]);
        assert_eq!(column.0[4..14], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(column.0[14..], [1]);
        assert_eq!(serde_json::to_string(&column).unwrap(), "\"AH+AAf///////////wEB\"");
    }
}
