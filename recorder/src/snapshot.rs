//! A consistent copy of the store as profiles; counting goes on.

use crate::sampler::spent;
use crate::{own, room};
use capture::mapping::Mapping;
use capture::{copy, region, thread};
use layout::ChunkKind;
use profile::store::{self, Counters, Decoded};

/// Copies and decodes the store. `None` if there is none.
pub(crate) fn take() -> Option<Decoded> {
    store::decode(&bytes()?).ok()
}

/// The counters alone.
pub(crate) fn counters() -> Option<Counters> {
    let mut part = part(ChunkKind::Threads)?;
    store::counters(part.bytes_mut()).ok()
}

/// The store's head and its chunks of a kind; where others lie there is memory that nobody touches, so that this takes little and is there where a recording is refused.
pub(crate) fn part(kind: ChunkKind) -> Option<Mapping> {
    region::header()?;
    region::note_sign();
    let mut part = Mapping::new(region::used_bytes())?;
    copy::copy_of(part.bytes_mut(), |other| other == kind);
    Some(part)
}

/// A copy of the store itself; `None` without one, and where the process may not have the memory to make use of it.
pub(crate) fn bytes() -> Option<Vec<u8>> {
    region::header()?;
    if !room::for_a_recording() {
        return None;
    }
    thread::note_names();
    spent::note(own::spent_ns());
    region::note_sign();
    let mut bytes = vec![0; region::used_bytes()];
    let length = copy::copy(&mut bytes);
    bytes.truncate(length);
    Some(bytes)
}
