//! What is known of a process's live memory.

/// What the live bytes of a store are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Live {
    /// Not known.
    #[default]
    Unknown = 0,
    /// Bytes asked for blocks that were not given back; an estimate if allocations are sampled.
    Requested = 1,
    /// Bytes of the blocks, which allocators make somewhat larger than asked.
    Allocated = 2,
}

impl Live {
    /// The kind with this number; unknown numbers are [`Live::Unknown`].
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Requested,
            2 => Self::Allocated,
            _ => Self::Unknown,
        }
    }
}
