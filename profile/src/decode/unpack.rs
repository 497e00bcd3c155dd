//! Files that are compressed as a whole, by what they begin with: gzip (pprof, and others by habit) and zstd (heaptrack).

use super::{DecodeError, Limits};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::borrow::Cow;
use std::io::{Cursor, Read};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// What a frame of zstd may look back: what every decoder must know, and at most what zstd itself takes without being told to.
const WINDOW: (usize, usize) = (8 << 20, 128 << 20);
/// Deflate makes at most so many bytes of one.
const MOST_OF_ONE: usize = 1032;

/// The bytes as they are, or unpacked if they are compressed.
pub(super) fn unpack(bytes: &[u8], limits: Limits) -> Result<Cow<'_, [u8]>, DecodeError> {
    let unpacked = if bytes.starts_with(&GZIP) {
        gunzip(bytes, limits)
    } else if bytes.starts_with(&ZSTD) {
        unzstd(bytes, limits)
    } else {
        return Ok(Cow::Borrowed(bytes));
    };
    let unpacked = unpacked?;
    if unpacked.len() > limits.bytes { Err(DecodeError::too_large(limits)) } else { Ok(Cow::Owned(unpacked)) }
}

/// The same for whoever takes them piece by piece. It passes on one byte more than is allowed at most.
pub(super) fn reader(bytes: &[u8], limits: Limits) -> Result<Box<dyn Read + '_>, DecodeError> {
    if bytes.starts_with(&GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(bytes).take(most(limits))));
    }
    match unpack(bytes, limits)? {
        Cow::Borrowed(bytes) if bytes.len() > limits.bytes => Err(DecodeError::too_large(limits)),
        Cow::Borrowed(bytes) => Ok(Box::new(bytes)),
        Cow::Owned(unpacked) => Ok(Box::new(Cursor::new(unpacked))),
    }
}

/// The first bytes of a file, if it is gzipped and not damaged there.
pub(super) fn beginning(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut beginning = Vec::new();
    let mut unpacked = bytes.starts_with(&GZIP).then(|| MultiGzDecoder::new(bytes))?.take(super::BEGINNING as u64);
    unpacked.read_to_end(&mut beginning).is_ok().then_some(beginning)
}

/// One byte more than is allowed tells that there is more.
fn most(limits: Limits) -> u64 {
    (limits.bytes as u64).saturating_add(1)
}

fn gunzip(bytes: &[u8], limits: Limits) -> Result<Vec<u8>, DecodeError> {
    // The last four bytes are how long the last member is, mostly the only one. The hint is worth following: a vector that grows copies all that it has.
    let stated = bytes.last_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let mut unpacked = Vec::with_capacity(stated.min(limits.bytes).min(bytes.len().saturating_mul(MOST_OF_ONE)) + 1);
    MultiGzDecoder::new(bytes).take(most(limits)).read_to_end(&mut unpacked).map_err(DecodeError::damaged_gzip)?;
    Ok(unpacked)
}

fn unzstd(bytes: &[u8], limits: Limits) -> Result<Vec<u8>, DecodeError> {
    let damaged = |what: &dyn std::fmt::Display| DecodeError::corrupt(format!("damaged zstd data: {what}"));
    let window = limits.bytes.clamp(WINDOW.0, WINDOW.1) as u64;
    let (mut rest, mut unpacked) = (bytes, Vec::new());
    while !rest.is_empty() && unpacked.len() <= limits.bytes {
        let mut decoder = match StreamingDecoder::new_with_max_window_size(&mut rest, window) {
            Ok(decoder) => decoder,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                rest = rest.get(length as usize..).ok_or_else(|| damaged(&"a frame that is not there"))?;
                continue;
            }
            Err(error) => return Err(damaged(&error)),
        };
        let left = most(limits) - unpacked.len() as u64;
        (&mut decoder).take(left).read_to_end(&mut unpacked).map_err(|error| damaged(&error))?;
        let decoder: FrameDecoder = decoder.into_frame_decoder();
        let is_whole = unpacked.len() <= limits.bytes;
        if let (true, Some(stated)) = (is_whole, decoder.get_checksum_from_data())
            && decoder.get_calculated_checksum() != Some(stated)
        {
            return Err(damaged(&"its checksum is another"));
        }
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::DecodeErrorKind;
    use std::io::Write;

    /// What `printf 'main;f 41\nmain;f 41\nmain;f 41\nmain;f 41\n' | zstd` writes, with its checksum.
    const PACKED: [u8; 29] = [
        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x85, 0x00, 0x00, 0x50, 0x6d, 0x61, 0x69, 0x6e, 0x3b, 0x66, 0x20, 0x34,
        0x31, 0x0a, 0x01, 0x00, 0x15, 0x0b, 0x12, 0x9d, 0xe6, 0x26, 0xd0,
    ];

    fn text() -> Vec<u8> {
        b"main;f 41\n".repeat(4)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn frames_and_members_one_after_the_other_are_one_file() {
        // A frame that readers skip lies between the two.
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let zstd = [&PACKED[..], &skipped, &PACKED].concat();
        let gzip = [gzip(&text()), gzip(&text())].concat();
        for packed in [zstd, gzip] {
            assert_eq!(unpack(&packed, Limits::default()).unwrap(), text().repeat(2));
            let error = unpack(&packed, Limits { bytes: 79 }).unwrap_err();
            assert_eq!(error.kind(), DecodeErrorKind::TooLarge);
            assert_eq!(unpack(&packed, Limits { bytes: 80 }).unwrap().len(), 80);
        }
    }

    #[test]
    fn a_damaged_file_is_an_error_wherever_it_is_damaged() {
        for packed in [PACKED.to_vec(), gzip(&text())] {
            for length in 5..packed.len() {
                unpack(&packed[..length], Limits::default()).unwrap_err();
            }
            // At its end: a gzip header has bytes that say nothing. A change may say the same in other words, and never anything else.
            let last = packed.len() - 9..packed.len();
            let errors = last.filter(|at| {
                let mut changed = packed.clone();
                changed[*at] ^= 0x10;
                unpack(&changed, Limits::default()).map(|bytes| assert_eq!(bytes, text())).is_err()
            });
            assert!(errors.count() >= 8);
        }
    }
}
