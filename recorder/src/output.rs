//! `PROFILE_RECORDER_OUTPUT`: a profile of the whole process, written when it ends in an orderly way.

use crate::config::{AllocInterval, Config};
use crate::lock::Lock;
use crate::log::log;
use crate::own;
use crate::record::{self, Profile, WITHOUT_END};
use crate::session::{self, Cancel, Request};
use profile::Format;
use profile::Mode;
use std::io;
use std::thread::JoinHandle;
use symbolize::Detail;

/// A profile that is being recorded for the file.
pub(crate) struct Writing {
    thread: JoinHandle<()>,
    cancel: Cancel,
}

impl Writing {
    /// Begins to record what the file shall hold; `None`, and a line that says why, if it could not be written.
    pub(crate) fn begin(config: &Config) -> Option<Self> {
        let path = config.output.clone()?;
        let refuse = |reason: &dyn std::fmt::Display| {
            log!(Error, "{} will not be written: {reason}", path.display());
            None::<Self>
        };
        if let Err(error) = Format::from_path(&path) {
            return refuse(&error);
        }
        // A wrong directory is said now, and not when there is something to lose.
        if let Err(error) = record::try_to_create(&path) {
            return refuse(&error);
        }
        if config.mode.is_memory() && config.alloc_interval == AllocInterval::Off {
            return refuse(&"PROFILE_RECORDER_ALLOC_INTERVAL is off");
        }
        let (mode, hz) = (config.mode, config.hz);
        let interval = config.alloc_interval.bytes();
        let cancel = Cancel::new();
        let flag = cancel.clone();
        let thread = own::spawn("profrec-record", move || {
            let recorded = record(mode, hz, interval, &flag);
            match recorded.and_then(|profile| Profile::named(profile, mode, Detail::Full).write_to(&path)) {
                Ok(()) => log!(Info, "wrote {}", path.display()),
                Err(error) => log!(Error, "{} was not written: {error}", path.display()),
            }
        });
        match thread {
            Ok(thread) => Some(Self { thread, cancel }),
            Err(error) => {
                log!(Error, "no profile will be written: cannot start a thread: {error}");
                None
            }
        }
    }

    /// Ends the recording and writes the file. Waits for it.
    pub(crate) fn finish(self) {
        self.cancel.finish();
        let _ = self.thread.join();
    }
}

/// The profile of a program that carries the library, finished by the C library's `exit`.
static OF_PROGRAM: Lock<Option<(u32, Writing)>> = Lock::new(None);

/// Records what the file shall hold from now on, and writes it when the process ends by `exit` or by returning from `main`. Once in a process.
pub(crate) fn at_exit(config: &Config) {
    let mut of_program = OF_PROGRAM.lock();
    if of_program.is_none() {
        *of_program = Writing::begin(config).map(|writing| (std::process::id(), writing));
        if of_program.is_some() {
            exit::call(finish_of_program);
        }
    }
}

/// Forgets what the parent will write, in a child after fork.
///
/// # Safety
/// The process has one thread, which does not use this module at the moment.
#[allow(unsafe_code)]
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the function's own contract.
    std::mem::forget(unsafe { OF_PROGRAM.take_in_child() });
}

extern "C" fn finish_of_program() {
    // A child that no fork hook announced has nothing to finish, and its copy of the lock may never be free.
    let Some(mut of_program) = OF_PROGRAM.try_lock() else { return };
    if let Some((_, writing)) = of_program.take_if(|(pid, _)| *pid == std::process::id()) {
        writing.finish();
    }
}

mod exit {
    //! # Safety
    //! The function has the type that the C library calls.
    #![allow(unsafe_code)]

    pub(super) fn call(function: extern "C" fn()) {
        // SAFETY: as the module says. A refusal (no memory) means that nothing is written.
        unsafe { libc::atexit(function) };
    }
}

fn record(mode: Mode, hz: u32, interval: u64, cancel: &Cancel) -> io::Result<profile::Profile> {
    let failed = |error| io::Error::other(format!("{error:?}"));
    session::prepare(interval).map_err(failed)?;
    let seconds = mode.is_time().then_some(WITHOUT_END);
    if seconds.is_none() {
        // Counters only grow: everything since the start is there at the end.
        cancel.wait_until(None);
    }
    let request = Request { mode, hz, seconds, interval: None };
    // What finishes a recording of time does not cut off one of a moment.
    let until = if mode.is_time() { cancel.clone() } else { Cancel::new() };
    session::record(&request, &until).map_err(failed)
}
