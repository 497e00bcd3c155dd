//! Samples as they stand in a file, before it is known what their numbers mean: locations, strings and most else come after them.

use super::tables::of_another_type;
use super::{LABEL, LOCATION, VALUE, not_proto};
use crate::decode::DecodeError;
use crate::decode::wire::{Field, field, number};
use crate::{Labels, Sample, StackId, ThreadId, Values};
use prost::encoding::encode_varint;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::borrow::Cow;
use std::hash::BuildHasher;

/// Pieces of a file, each once.
#[derive(Default)]
pub(super) struct Once {
    /// One after the other, by their numbers.
    bytes: Vec<u8>,
    all: Vec<Piece>,
    /// By their hashes. If two have the same, the second has the next one that is free.
    by_hash: FxHashMap<u64, Piece>,
}

/// A piece: its number, and where it is. A table that holds both is looked into once.
#[derive(Clone, Copy)]
struct Piece {
    number: u32,
    length: u32,
    start: usize,
}

impl Piece {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..self.start + self.length as usize]
    }
}

impl Once {
    /// The number of these bytes, in the order in which they came first.
    fn number(&mut self, bytes: &[u8]) -> u32 {
        let mut hash = FxBuildHasher.hash_one(bytes);
        while let Some(piece) = self.by_hash.get(&hash) {
            if piece.of(&self.bytes) == bytes {
                return piece.number;
            }
            hash = hash.wrapping_add(1);
        }
        let (number, length) = (self.all.len() as u32, bytes.len() as u32);
        let piece = Piece { number, length, start: self.bytes.len() };
        self.bytes.extend_from_slice(bytes);
        self.all.push(piece);
        self.by_hash.insert(hash, piece);
        number
    }

    fn get(&self, number: u32) -> &[u8] {
        self.all[number as usize].of(&self.bytes)
    }

    /// All of them, by their numbers.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().map(|piece| piece.of(&self.bytes))
    }
}

/// All samples of a file.
pub(super) struct Samples {
    /// With the numbers of their locations for a stack, and of their labels for a thread.
    pub(super) all: Vec<Sample>,
    /// Locations as they are encoded; the first are none.
    pub(super) locations: Once,
    /// Labels, the fields one after the other.
    pub(super) labels: Once,
    /// The locations of the last sample: samples of one stack often stand together.
    last: u32,
    columns: usize,
}

impl Samples {
    pub(super) fn new() -> Self {
        let mut locations = Once::default();
        let last = locations.number(&[]);
        Self { all: Vec::new(), locations, labels: Once::default(), last, columns: 0 }
    }

    /// Takes a sample, as it is encoded.
    pub(super) fn add(&mut self, sample: &[u8]) -> Result<(), DecodeError> {
        let mut locations = Cow::Borrowed(&[][..]);
        // All of them are mostly next to each other.
        let (mut labels, mut labels_end) = (Cow::Borrowed(&[][..]), 0);
        // Most have as many as the one before.
        let mut values = Values::with_capacity(self.columns);
        let mut rest = sample;
        while !rest.is_empty() {
            let at = sample.len() - rest.len();
            match field(&mut rest).map_err(not_proto)? {
                (LOCATION, Field::Bytes(packed)) if locations.is_empty() => locations = Cow::Borrowed(packed),
                (LOCATION, Field::Bytes(packed)) => locations.to_mut().extend_from_slice(packed),
                (LOCATION, Field::Number(id)) => encode_varint(id, locations.to_mut()),
                (VALUE, Field::Number(value)) => values.push(value as i64),
                (VALUE, Field::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        values.push(number(&mut packed).map_err(not_proto)? as i64);
                    }
                }
                (LABEL, Field::Bytes(_)) => {
                    let end = sample.len() - rest.len();
                    match &mut labels {
                        Cow::Borrowed(before) if before.is_empty() => *before = &sample[at..end],
                        Cow::Borrowed(before) if labels_end == at => *before = &sample[at - before.len()..end],
                        _ => labels.to_mut().extend_from_slice(&sample[at..end]),
                    }
                    labels_end = end;
                }
                (LOCATION | VALUE | LABEL, _) => return Err(of_another_type()),
                _ => {}
            }
        }
        self.columns = values.len();
        if *locations != *self.locations.get(self.last) {
            self.last = self.locations.number(&locations);
        }
        let labels = self.labels.number(&labels);
        let (stack, thread) = (StackId(self.last), Some(ThreadId(labels)));
        self.all.push(Sample { stack, thread, labels: Labels::new(), values });
        Ok(())
    }
}
