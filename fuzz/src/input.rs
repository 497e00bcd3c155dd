//! Numbers from arbitrary bytes.

/// Takes numbers off the front of some bytes; zeros once they are used up.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of the bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes, fewer at the end.
    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let taken = self.take(N);
        bytes[..taken.len()].copy_from_slice(taken);
        bytes
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.number())
    }

    /// Two bytes, signed.
    pub fn i16(&mut self) -> i16 {
        i16::from_le_bytes(self.number())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.number())
    }
}
