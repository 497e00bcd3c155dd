//! Names from a string table, many at once.
//!
//! The names of thousands of addresses lie all over a table of tens of megabytes. One by one, each is a system call; here neighbours are read together, and what
//! lies between them is passed over as long as reading it is cheaper than another call.

use crate::elf::Section;
use crate::image::Image;
use std::borrow::Cow;
use std::ffi::CStr;

/// Longest gap that is read and thrown away.
const GAP: u64 = 8 << 10;
/// Bytes that are read at once.
const RUN: u64 = 256 << 10;
/// Bytes behind the beginning of the last name of a run; nearly all names fit.
const TAIL: u64 = 256;
/// Longest name.
const NAME: usize = 1 << 20;

/// Names by their offsets.
#[derive(Debug)]
pub(crate) struct Strings(Vec<(u32, String)>);

impl Strings {
    /// Reads the names at these offsets in the table. What does not end in it is left out.
    pub(crate) fn read(image: &Image, table: &Section, offsets: impl Iterator<Item = u32>) -> Strings {
        let mut offsets: Vec<u32> = offsets.collect();
        offsets.sort_unstable();
        offsets.dedup();
        let end = table.offset.saturating_add(table.size).min(image.len());
        let place = |offset: u32| table.offset.saturating_add(u64::from(offset));
        let mut names = Vec::with_capacity(offsets.len());
        let mut buffer = Vec::new();
        let mut rest = offsets.as_slice();
        while let Some(first) = rest.first() {
            let start = place(*first);
            let near = rest.windows(2).take_while(|pair| {
                place(pair[1]) - place(pair[0]) <= GAP && place(pair[1]) + TAIL <= start.saturating_add(RUN)
            });
            let (run, after) = rest.split_at(1 + near.count());
            rest = after;
            let last = run.last().map_or(start, |last| place(*last));
            let length = usize::try_from(last.saturating_add(TAIL).min(end).saturating_sub(start)).unwrap_or(0);
            // Never made smaller: what it is made larger by is zeroed.
            buffer.resize(length.max(buffer.len()), 0);
            let Some(bytes) = buffer.get_mut(..length) else { continue };
            if image.fill(start, bytes).is_none() {
                continue;
            }
            for offset in run {
                let here = bytes.get((place(*offset) - start) as usize..).unwrap_or_default();
                let name = match CStr::from_bytes_until_nul(here) {
                    Ok(name) => Some(Cow::Borrowed(name.to_bytes())),
                    Err(_) => image.string(place(*offset), end, NAME).map(Cow::Owned),
                };
                names.extend(name.map(|name| (*offset, String::from_utf8_lossy(&name).into_owned())));
            }
        }
        Strings(names)
    }

    /// The name at an offset, if it was asked for and is there.
    pub(crate) fn get(&self, offset: u32) -> Option<&str> {
        let at = self.0.binary_search_by_key(&offset, |(at, _)| *at).ok()?;
        self.0.get(at).map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::elf::{SHT_STRTAB, SectionFlags};

    #[test]
    fn names_are_found_wherever_they_lie_and_end_in_the_table() {
        // Before the table, something else; in it, names next to each other, far apart, longer than a tail, and one without an end.
        let mut bytes = b"none of it".to_vec();
        let offset = bytes.len() as u64;
        let mut expected = Vec::new();
        for (gap, length) in
            [(0, 3), (0, 0), (1, 5), (100, 255), (0, 256), (0, 257), (9000, 4), (300_000, 70_000), (8192, 9)]
        {
            bytes.extend(std::iter::repeat_n(b'-', gap));
            let name: String = (0..length).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
            expected.push(((bytes.len() as u64 - offset) as u32, name.clone()));
            bytes.extend(name.bytes());
            bytes.push(0);
        }
        let endless = (bytes.len() as u64 - offset) as u32;
        bytes.extend(b"endless");
        let size = bytes.len() as u64 - offset;
        bytes.extend(b"behind it\0");
        let table =
            Section { name: Vec::new(), kind: SHT_STRTAB, flags: SectionFlags(0), address: 0, offset, size, link: 0 };
        let asked = expected.iter().map(|(at, _)| *at).rev().chain([endless, endless + 500, u32::MAX]).chain([0, 0]);
        let strings = Strings::read(&Image::Memory(bytes), &table, asked);
        for (at, name) in &expected {
            assert_eq!(strings.get(*at), Some(name.as_str()), "{at}");
        }
        assert!([endless, endless + 500, u32::MAX, 1].iter().all(|at| strings.get(*at).is_none()));
    }
}
