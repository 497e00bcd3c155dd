//! From the store that a recorded process writes to profiles.

use crate::Profile;
use layout::{FUNCTIONS, Function};
use std::fmt;

pub use layout::BadStore as StoreError;

/// What the store of one process holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The process.
    pub pid: u32,
    /// Its parent when recording began.
    pub parent_pid: u32,
    /// Path of its executable.
    pub exe: String,
    /// What was recorded: bits of [`layout::modes`].
    pub modes: u32,
    /// Whether the process ended in an orderly way.
    pub ended: bool,
    /// Exact counters of the allocation functions.
    pub counts: Counts,
    /// Allocations, if they were recorded.
    pub allocs: Option<Profile>,
    /// CPU time, if it was recorded.
    pub cpu: Option<Profile>,
    /// Elapsed time, if it was recorded.
    pub wall: Option<Profile>,
    /// What could not be recorded; also in the comments of the profiles.
    pub lost: Vec<Loss>,
}

/// Something that was not recorded where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: layout::Lost,
    /// How many events.
    pub events: u64,
    /// What they stood for: bytes of allocations, nanoseconds of time.
    pub weight: u64,
}

/// Calls of every allocation function, and the bytes asked of it; indexed by [`Function`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of calls.
    pub calls: [u64; FUNCTIONS],
    /// Bytes asked in those calls.
    pub bytes: [u64; FUNCTIONS],
}

impl Counts {
    /// Calls of one function.
    pub const fn calls_of(&self, function: Function) -> u64 {
        self.calls[function as usize]
    }

    /// Bytes asked of one function.
    pub const fn bytes_of(&self, function: Function) -> u64 {
        self.bytes[function as usize]
    }

    /// Adds the counts of another thread or process.
    pub fn add(&mut self, calls: &[u64; FUNCTIONS], bytes: &[u64; FUNCTIONS]) {
        for i in 0..FUNCTIONS {
            self.calls[i] = self.calls[i].saturating_add(calls[i]);
            self.bytes[i] = self.bytes[i].saturating_add(bytes[i]);
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.add(&other.calls, &other.bytes);
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lost {} events ({})", self.events, self.reason.reason())
    }
}

/// Reads the bytes of a store, whole or cut off anywhere.
pub fn decode(bytes: &[u8]) -> Result<Decoded, StoreError> {
    let view = layout::View::new(bytes)?;
    Ok(Decoded { pid: view.header().pid, ..Decoded::default() })
}
