//! Reading a store out of its bytes: bounds-checked, tolerant of a writer that stopped anywhere.

use crate::{CHUNK, Chunk, DIRECTORY_OFFSET, HeaderFields, Labels, MAGIC, Record, RecordId, VERSION};
use core::fmt;

/// Why bytes are not a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadStore {
    /// Too short, or the magic number is missing: the writer may not have come that far.
    NotAStore,
    /// Another version of the layout.
    Version(u32),
    /// The header contradicts itself.
    Corrupt,
}

impl fmt::Display for BadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAStore => write!(f, "not a store"),
            Self::Version(version) => write!(f, "store of version {version}, this program reads version {VERSION}"),
            Self::Corrupt => write!(f, "corrupt store header"),
        }
    }
}

impl core::error::Error for BadStore {}

/// A store in memory: a copy of the file or of the region, from its first byte to at least its last chunk in use.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    bytes: &'a [u8],
    chunks: usize,
    first: usize,
}

impl<'a> View<'a> {
    /// Checks the header. Bytes past the last chunk in use are ignored; missing ones count as unused.
    pub fn new(bytes: &'a [u8]) -> Result<Self, BadStore> {
        let header = HeaderFields::read(bytes).filter(|h| h.magic == MAGIC).ok_or(BadStore::NotAStore)?;
        if header.version != VERSION {
            return Err(BadStore::Version(header.version));
        }
        let first = header.data_offset as usize / CHUNK;
        let directory_end = DIRECTORY_OFFSET as u64 + u64::from(header.capacity_chunks) * 8;
        if !(header.data_offset as usize).is_multiple_of(CHUNK) || u64::from(header.data_offset) < directory_end {
            return Err(BadStore::Corrupt);
        }
        let chunks = (header.used_chunks.min(header.capacity_chunks) as usize).min(bytes.len() / CHUNK);
        Ok(Self { bytes, chunks, first })
    }

    /// The header's fields.
    pub fn header(&self) -> HeaderFields {
        HeaderFields::read(self.bytes).expect("checked when the view was made")
    }

    /// The first id past those of all records.
    pub fn end(&self) -> RecordId {
        RecordId::at_offset(self.chunks * CHUNK)
    }

    /// The record with this id, or `None` if it lies outside the store.
    pub fn get<R: Record>(&self, id: RecordId) -> Option<R> {
        if id.offset() < self.first * CHUNK {
            return None;
        }
        R::read(self.bytes.get(id.offset()..self.chunks * CHUNK)?)
    }

    /// Every record of a kind, empty ones included, with its id and its chunk's owner.
    pub fn records<R: Record>(&self) -> impl Iterator<Item = (RecordId, RecordId, R)> + 'a {
        let view = *self;
        (view.first..view.chunks)
            .filter_map(move |i| Some((i, view.chunk(i)?)))
            .filter(|(_, c)| Some(c.kind) == R::KIND)
            .flat_map(move |(i, chunk)| {
                (0..CHUNK / R::SIZE).filter_map(move |k| {
                    let id = RecordId::at_offset(i * CHUNK + k * R::SIZE);
                    Some((id, chunk.owner, view.get::<R>(id)?))
                })
            })
    }

    /// Bytes of a text; `None` if it lies outside the store.
    pub fn text(&self, id: RecordId, length: usize) -> Option<&'a [u8]> {
        if id.offset() < self.first * CHUNK {
            return None;
        }
        self.bytes.get(id.offset()..id.offset().checked_add(length)?)
    }

    /// The label set with this id; `None` if there is none, or not yet in full.
    pub fn labels(&self, id: RecordId) -> Option<Labels<'a>> {
        if id.offset() < self.first * CHUNK {
            return None;
        }
        Labels::new(self.bytes.get(id.offset()..)?)
    }

    fn chunk(&self, index: usize) -> Option<Chunk> {
        let at = DIRECTORY_OFFSET + index * 8;
        Chunk::from_bits(u64::from_le_bytes(self.bytes.get(at..at + 8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_store_are_refused() {
        assert_eq!(View::new(&[]).unwrap_err(), BadStore::NotAStore);
        assert_eq!(View::new(&[0; 100_000]).unwrap_err(), BadStore::NotAStore);
        let mut bytes = [0; 8192];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8] = 99;
        assert_eq!(View::new(&bytes).unwrap_err(), BadStore::Version(99));
        bytes[8] = VERSION as u8;
        assert_eq!(View::new(&bytes).unwrap_err(), BadStore::Corrupt);
    }
}
