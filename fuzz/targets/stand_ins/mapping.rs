//! Memory from the kernel.

pub(crate) struct Mapping(Vec<u8>);

impl Mapping {
    pub(crate) fn new(length: usize) -> Option<Self> {
        Some(Self(vec![0; length]))
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
