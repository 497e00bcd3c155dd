//! What is known of a process's live memory.

/// Bytes by which the live memory of a thread changes before it is brought into the process's. Both of the thread's numbers have so many more, so that one instruction and the sign of its result
/// tell that this is passed.
pub const LIVE_GRAIN: i64 = 16 << 10;

/// Most live bytes of a thread since it brought them in, by its two numbers: what it has now, if that is more than it noted.
pub const fn most_live_bytes(max: u64, below_max: u64) -> i64 {
    let below_max = below_max as i64;
    (max as i64).wrapping_sub(if below_max < LIVE_GRAIN { below_max } else { LIVE_GRAIN })
}

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
