//! Samples as they stand in a file, before it is known what their numbers mean: locations, strings and most else come after them.

use super::{LABEL, LOCATION, VALUE, not_proto};
use crate::decode::DecodeError;
use crate::decode::wire::{Field, field, number};
use crate::{Sample, StackId, ThreadId, Values};
use prost::encoding::encode_varint;
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// Pieces of a file, each once.
#[derive(Default)]
pub(super) struct Once(FxHashMap<Box<[u8]>, u32>);

impl Once {
    /// The number of these bytes, in the order in which they came first.
    fn number(&mut self, bytes: &[u8]) -> u32 {
        if let Some(known) = self.0.get(bytes) {
            return *known;
        }
        let next = self.0.len() as u32;
        self.0.insert(bytes.into(), next);
        next
    }

    /// All of them, by their numbers.
    pub(super) fn in_order(self) -> Vec<Box<[u8]>> {
        let mut all = vec![Box::default(); self.0.len()];
        self.0.into_iter().for_each(|(bytes, number)| all[number as usize] = bytes);
        all
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
    /// Samples of one stack often stand together.
    last: (Vec<u8>, u32),
    /// The labels of the sample at hand.
    fields: Vec<u8>,
    columns: usize,
}

impl Samples {
    pub(super) fn new() -> Self {
        let mut locations = Once::default();
        let last = (Vec::new(), locations.number(&[]));
        Self { all: Vec::new(), locations, labels: Once::default(), last, fields: Vec::new(), columns: 0 }
    }

    /// Takes a sample, as it is encoded.
    pub(super) fn add(&mut self, mut rest: &[u8]) -> Result<(), DecodeError> {
        let mut locations = Cow::Borrowed(&[][..]);
        // Most have as many as the one before.
        let mut values = Values::with_capacity(self.columns);
        self.fields.clear();
        while !rest.is_empty() {
            let from = rest;
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
                    let (label, _) = from.split_at(from.len() - rest.len());
                    self.fields.extend_from_slice(label);
                }
                (LOCATION | VALUE | LABEL, _) => {
                    return Err(DecodeError::corrupt("not a pprof profile: a field of a sample is of another type"));
                }
                _ => {}
            }
        }
        self.columns = values.len();
        if *locations != *self.last.0 {
            self.last.1 = self.locations.number(&locations);
            self.last.0.clear();
            self.last.0.extend_from_slice(&locations);
        }
        let labels = self.labels.number(&self.fields);
        let (stack, thread) = (StackId(self.last.1), Some(ThreadId(labels)));
        self.all.push(Sample { stack, thread, labels: Vec::new(), values });
        Ok(())
    }
}
