//! Messages to stderr: one line each, prefixed with the product's name.

use std::fmt::Arguments;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// How much is said, as `PROFILE_RECORDER_LOG` names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum LogLevel {
    /// Nothing.
    Off = 0,
    /// What could not be done.
    Error = 1,
    /// What was done otherwise than asked.
    #[default]
    Warn = 2,
    /// Where the server listens, which sessions ran.
    Info = 3,
    /// Connections and requests.
    Debug = 4,
}

impl LogLevel {
    /// Every level.
    pub(crate) const ALL: [Self; 5] = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// The name in `PROFILE_RECORDER_LOG`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// The level of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Warn as u8);

/// Sets how much this process says.
pub(crate) fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Says a line if the level asks for it.
pub(crate) fn say(level: LogLevel, message: Arguments<'_>) {
    if (level as u8) > LEVEL.load(Ordering::Relaxed) {
        return;
    }
    // One write, so that lines of several threads do not mix; a closed stderr is nobody's problem.
    let line = format!("profile-recorder: {}: {message}\n", level.name());
    if !HAS_FOREIGN_DESCRIPTORS.load(Ordering::Relaxed) {
        let _ = std::io::stderr().write_all(line.as_bytes());
    } else if let Some(mut stderr) = host_stderr() {
        let _ = stderr.write_all(line.as_bytes());
    }
}

/// Whether the recorder's threads have a table of descriptors of their own, in which there is no stderr.
static HAS_FOREIGN_DESCRIPTORS: AtomicBool = AtomicBool::new(false);

/// From now on stderr is looked for in the table of the process's first thread. It is not kept: who waits for its end waits for the host alone.
pub(crate) fn set_foreign_descriptors() {
    HAS_FOREIGN_DESCRIPTORS.store(true, Ordering::Relaxed);
}

/// The host's stderr: as it is, or where the kernel does not hand it over, its file opened again.
fn host_stderr() -> Option<File> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    // What a service may not do, since only debuggers do it, ends it.
    let may_ask = !capture::syscall::is_filtered();
    let shared = may_ask.then(|| {
        pidfd_open(getpid(), PidfdFlags::empty())
            .and_then(|process| pidfd_getfd(process, 2, PidfdGetfdFlags::empty()))
            .map(File::from)
    });
    shared.and_then(Result::ok).or_else(|| OpenOptions::new().append(true).open("/proc/self/fd/2").ok())
}

macro_rules! log {
    ($level:ident, $($argument:tt)+) => {
        $crate::log::say($crate::log::LogLevel::$level, format_args!($($argument)+))
    };
}
pub(crate) use log;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_found_by_their_names_alone() {
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::from_name(level.name()), Some(level));
        }
        assert_eq!(LogLevel::from_name("Warn "), None);
    }
}
