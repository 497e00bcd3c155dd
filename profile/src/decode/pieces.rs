//! The fields of a message from a file that is unpacked piece by piece: most of a profile is samples, which need not be there all at once, and memory that is touched for the first time costs more
//! than unpacking into memory that is at hand.

use super::unpack::reader;
use super::wire::{Field, field};
use super::{DecodeError, Limits};
use std::io::Read;

/// Bytes of a piece; more where a field is longer.
const PIECE: usize = 1 << 17;

/// The message in the making.
pub(super) struct Pieces<'a> {
    input: Box<dyn Read + 'a>,
    buffer: Vec<u8>,
    /// What of the buffer was read and not taken yet.
    at: usize,
    end: usize,
    /// Bytes that were read.
    read: usize,
    is_over: bool,
    limits: Limits,
}

impl<'a> Pieces<'a> {
    /// The message that these bytes hold, compressed or not.
    pub(super) fn of(bytes: &'a [u8], limits: Limits) -> Result<Self, DecodeError> {
        let input = reader(bytes, limits)?;
        Ok(Self { input, buffer: vec![0; PIECE], at: 0, end: 0, read: 0, is_over: false, limits })
    }

    /// Passes on each field: its number, what it holds, and all its bytes.
    pub(super) fn each(
        mut self,
        mut take: impl FnMut(u32, Field<'_>, &[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        loop {
            let left = self.buffer.get(self.at..self.end).unwrap_or_default();
            let mut rest = left;
            match (!rest.is_empty()).then(|| field(&mut rest)) {
                Some(Ok((number, found))) => {
                    let (whole, _) = left.split_at(left.len() - rest.len());
                    take(number, found, whole)?;
                    self.at += whole.len();
                }
                None if self.is_over => return Ok(()),
                Some(Err(error)) if self.is_over => return Err(super::pprof::not_proto(error)),
                // It may only be a part of a field.
                _ => self.fill()?,
            }
        }
    }

    fn fill(&mut self) -> Result<(), DecodeError> {
        self.buffer.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
        let read = self.input.read(free).map_err(DecodeError::damaged_gzip)?;
        self.is_over = read == 0;
        self.end += read;
        self.read += read;
        if self.read > self.limits.bytes { Err(DecodeError::too_large(self.limits)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of so many bytes, and what was in them.
    fn fields(lengths: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let (mut message, mut contents) = (Vec::new(), Vec::new());
        for (i, length) in lengths.iter().enumerate() {
            let content: Vec<u8> = (0..*length).map(|at| (at * 7 + i) as u8).collect();
            prost::encoding::bytes::encode(2, &content, &mut message);
            prost::encoding::uint64::encode(9, &(*length as u64), &mut message);
            contents.push(content);
        }
        (message, contents)
    }

    #[test]
    fn fields_come_whole_wherever_a_piece_ends() {
        // Shorter than a piece, ending where it ends, and longer than several.
        let lengths = [0, 1, 5, PIECE - 20, 3, PIECE, 100, 5 * PIECE, 7, 300];
        let (message, contents) = fields(&lengths);
        let (mut found, mut numbers, mut whole) = (Vec::new(), Vec::new(), Vec::new());
        let each = |number, field: Field<'_>, bytes: &[u8]| {
            match field {
                Field::Bytes(content) => found.push(content.to_vec()),
                Field::Number(value) => numbers.push(value as usize),
                Field::Other => panic!("field {number} is of another type"),
            }
            whole.extend_from_slice(bytes);
            Ok(())
        };
        Pieces::of(&message, Limits::default()).unwrap().each(each).unwrap();
        assert!(found == contents && whole == message);
        assert_eq!(numbers, lengths);
    }

    #[test]
    fn a_message_that_is_cut_off_is_an_error_wherever_that_is() {
        let (message, _) = fields(&[3, 200, 70_000]);
        let whole: Vec<usize> = (0..=message.len())
            .filter(|end| Pieces::of(&message[..*end], Limits::default()).unwrap().each(|_, _, _| Ok(())).is_ok())
            .collect();
        // After each field, and before the first.
        assert_eq!(whole.len(), 7);
    }
}
