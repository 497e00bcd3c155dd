//! One recording from arm to disarm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use profile::store::Counts;

pub use crate::mode::Mode;

/// What one recording shall measure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) mode: Mode,
    /// Ticks per second of the time modes.
    pub(crate) hz: u32,
    /// Length of the window; `None`: since the start (allocs), now (heap).
    pub(crate) seconds: Option<f64>,
    /// Mean bytes between sampled allocations during the window; `None`: as configured.
    pub(crate) interval: Option<u64>,
}

/// Asks a running recording to end early.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why there is no profile.
#[derive(Debug)]
pub(crate) enum SessionError {
    /// Another session runs that cannot be shared.
    Busy { retry_after: Duration },
    /// This process cannot record that.
    Unavailable(String),
    /// The flag was raised.
    Cancelled,
}

/// Records on the calling thread until the window is over.
pub(crate) fn record(_request: &Request, cancel: &Cancel) -> Result<profile::Profile, SessionError> {
    if cancel.is_cancelled() {
        return Err(SessionError::Cancelled);
    }
    Err(SessionError::Unavailable("not built yet".to_owned()))
}

/// Exact counts of every allocation function so far.
pub(crate) fn counts() -> Counts {
    Counts::default()
}
