//! What the raw format consists of, for its writer and its reader.
//!
//! ```text
//! file  = "PROFREC\0" version:u8 chunk*
//! chunk = kind:u8 length:u32 crc:u32 payload      little-endian; the CRC-32 is that of kind and payload; the payload is deflated
//! ```
//!
//! A chunk refers only to what chunks before it hold, so that a file can be written while a recording goes on, and whatever is left of
//! a file that was cut off is a profile. Within a version kinds are only added, and a reader skips those that it does not know.
//!
//! A payload is a sequence of records. Numbers are LEB128, signed ones with the sign in the lowest bit; a text is its length and its
//! bytes; an id that may be missing is 0 or the id plus one.

/// What a file begins with.
pub(crate) const MAGIC: &[u8; 8] = b"PROFREC\0";
/// Version of the format.
pub(crate) const VERSION: u8 = 1;
/// Kind, length and CRC of a chunk.
pub(crate) const CHUNK_HEAD: usize = 9;

/// Sample types (number; kind and unit of each), default (id), period type (0, or 1 and kind and unit), period, start and duration. A later
/// one replaces an earlier one, but for the sample types, which stay.
pub(crate) const HEAD: u8 = 1;
/// Start, end, file offset, bias, path, build id (a text of bytes).
pub(crate) const MAPPINGS: u8 = 2;
/// pid, tid, name, process, slot.
pub(crate) const THREADS: u8 = 3;
/// 0 and a name; or 1 (instruction) or 2 (return address), mapping (id), address, and the functions there: their number, and of each name,
/// system name (0, or 1 and a text), file (the same), line, start (0, or 1 and an address), inlined (0 or 1).
pub(crate) const FRAMES: u8 = 4;
/// Parent and frame: the first stack of a file is number 1, the empty one number 0.
pub(crate) const STACKS: u8 = 5;
/// Stack, thread (id), labels (their number; of each key, and 0 and a text, or 1 and a number, or 2 and a number and its unit), values
/// (signed, as many as there are sample types).
pub(crate) const SAMPLES: u8 = 6;
/// Time (signed, since the event before it in the chunk), thread, stack, weight (signed).
pub(crate) const EVENTS: u8 = 7;
/// Texts.
pub(crate) const COMMENTS: u8 = 8;
/// The file is whole: number of samples, number of events.
pub(crate) const END: u8 = 255;

/// CRC-32 of a chunk.
pub(crate) fn crc(kind: u8, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(payload);
    hasher.finalize()
}

/// A signed number with its sign in the lowest bit.
pub(crate) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The reverse of [`zigzag`].
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_numbers_come_back() {
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!((zigzag(-1), zigzag(1)), (1, 2));
    }
}
