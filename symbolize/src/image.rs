//! Bytes that are read at an offset: a file, or a copy of one in memory.
//!
//! Nothing is mapped: a file that shrinks while it is read answers `None` and does not raise SIGBUS, and of a file of
//! hundreds of megabytes only the tables that are asked for are read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a string that are read at once; nearly all symbol names fit.
const STRING_CHUNK: usize = 256;

/// A readable sequence of bytes of known length.
#[derive(Debug)]
pub(crate) enum Image {
    /// A regular file and its length when it was opened.
    File(File, u64),
    /// A copy, such as the vDSO or an unpacked section.
    Memory(Vec<u8>),
}

impl Image {
    /// Opens a regular file. Pipes and devices are refused, since opening or reading them may block.
    pub(crate) fn open(path: &Path) -> io::Result<Image> {
        let refused = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        if !std::fs::metadata(path)?.is_file() {
            return Err(refused());
        }
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Image::File(file, length))
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Image::File(_, length) => *length,
            Image::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `buffer` from `offset`; `None` if the bytes are not there.
    pub(crate) fn fill(&self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        match self {
            Image::File(file, _) => file.read_exact_at(buffer, offset).ok(),
            Image::Memory(bytes) => {
                let start = usize::try_from(offset).ok()?;
                buffer.copy_from_slice(bytes.get(start..start.checked_add(buffer.len())?)?);
                Some(())
            }
        }
    }

    /// The bytes from `offset`, unless they reach beyond the end or are more than `limit`.
    pub(crate) fn read(&self, offset: u64, length: u64, limit: u64) -> Option<Vec<u8>> {
        if length > limit || offset.checked_add(length)? > self.len() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.fill(offset, &mut bytes)?;
        Some(bytes)
    }

    /// The bytes from `offset` up to the next NUL, which has to come before `end` and within `limit` bytes.
    pub(crate) fn string(&self, offset: u64, end: u64, limit: usize) -> Option<Vec<u8>> {
        let end = end.min(self.len());
        let mut string = Vec::new();
        let mut at = offset;
        while at < end && string.len() < limit {
            let length = usize::try_from(end - at).map_or(STRING_CHUNK, |rest| rest.min(STRING_CHUNK));
            let mut chunk = [0; STRING_CHUNK];
            let chunk = chunk.get_mut(..length)?;
            self.fill(at, chunk)?;
            if let Some(length) = chunk.iter().position(|&byte| byte == 0) {
                string.extend_from_slice(chunk.get(..length)?);
                return Some(string);
            }
            string.extend_from_slice(chunk);
            at += length as u64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_at_its_nul_and_not_beyond_the_table() {
        let mut bytes = b"\0short\0".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', 700));
        bytes.push(0);
        let image = Image::Memory(bytes);
        assert_eq!(image.string(1, 100, 4096), Some(b"short".to_vec()));
        assert_eq!(image.string(7, 708, 4096).map(|s| s.len()), Some(700));
        assert_eq!(image.string(7, 300, 4096), None);
        assert_eq!(image.string(7, 708, 300), None);
        assert_eq!(image.string(10_000, 20_000, 4096), None);
        assert_eq!(image.string(u64::MAX, u64::MAX, 4096), None);
    }

    #[test]
    fn a_directory_and_a_device_are_not_opened() {
        assert!(Image::open(Path::new("/")).is_err());
        assert!(Image::open(Path::new("/dev/zero")).is_err());
    }
}
