//! How this process ends: as the command did.

use rustix::process::DumpableBehavior;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, exit};

/// What a parent of this process shall see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// An exit code.
    Code(u8),
    /// Death by a signal.
    Signal(i32),
}

impl Ending {
    /// The ending of a process that ended so.
    pub(crate) fn of(status: ExitStatus) -> Self {
        match (status.signal(), status.code()) {
            (Some(signal), _) => Self::Signal(signal),
            (None, Some(code)) => Self::Code(code as u8),
            (None, None) => Self::Code(1),
        }
    }

    /// The same, except that success becomes a failure: the command did its part, this program did not.
    pub(crate) fn but_failed(self) -> Self {
        if self == Self::Code(0) { Self::Code(1) } else { self }
    }

    /// Ends the process.
    pub(crate) fn end(self) -> ! {
        match self {
            Self::Code(code) => exit(code.into()),
            Self::Signal(signal) => {
                // The core file that counts is the command's.
                let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
                let _ = signal_hook::low_level::emulate_default_handler(signal);
                // A real-time signal, or one that ends nobody.
                exit(128 + signal)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_keeps_its_meaning() {
        assert_eq!(Ending::of(ExitStatus::from_raw(3 << 8)), Ending::Code(3));
        assert_eq!(Ending::of(ExitStatus::from_raw(9)), Ending::Signal(9));
    }

    #[test]
    fn only_success_turns_into_failure() {
        assert_eq!(Ending::Code(0).but_failed(), Ending::Code(1));
        assert_eq!(Ending::Code(7).but_failed(), Ending::Code(7));
        assert_eq!(Ending::Signal(6).but_failed(), Ending::Signal(6));
    }
}
