//! A file that is read in pieces of any size.

use std::cell::RefCell;

thread_local! {
    static CONTENTS: RefCell<(Vec<u8>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

/// From now on, every file has these contents, and a read gives at most `piece` bytes.
pub(crate) fn set(contents: &[u8], piece: usize) {
    CONTENTS.set((contents.to_vec(), piece));
}

pub(crate) struct File(RefCell<usize>);

impl File {
    pub(crate) const READ: usize = 0;

    pub(crate) fn open(path: &[u8], _flags: usize) -> Result<Self, ()> {
        assert_eq!(path.last(), Some(&0));
        Ok(Self(RefCell::new(0)))
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, ()> {
        CONTENTS.with_borrow(|(contents, piece)| {
            let mut at = self.0.borrow_mut();
            let length = (contents.len() - *at).min(buffer.len()).min(*piece);
            buffer[..length].copy_from_slice(&contents[*at..*at + length]);
            *at += length;
            Ok(length)
        })
    }
}
