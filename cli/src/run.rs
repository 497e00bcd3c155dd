//! Runs the command as the user gave it, with the preload library in it.

use crate::args::CommandLine;
use crate::error::Error;
use crate::pending::reason;
use crate::signals::Relay;
use crate::status::Status;
use crate::store::{StoreDirectory, Stores};
use crate::taking::Taking;
use crate::{preload, target};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// What the preload library is to do in each process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Names of modes, separated by commas.
    pub(crate) modes: String,
    /// Mean bytes between two sampled allocations.
    pub(crate) interval: u64,
    /// Samples a second of CPU time.
    pub(crate) hz: u32,
    /// Whether children are recorded.
    pub(crate) follow: bool,
    /// Whether a line shows what is recorded while the command runs.
    pub(crate) progress: bool,
}

/// What there is when the command has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// How the command ended.
    pub(crate) status: ExitStatus,
    /// From its start to its end.
    pub(crate) elapsed: Duration,
    /// CPU time of it and of the children it waited for, in user mode.
    pub(crate) user: Duration,
    /// The same in the kernel.
    pub(crate) system: Duration,
    /// What its processes recorded.
    pub(crate) stores: Stores,
}

/// Runs the command to its end.
pub(crate) fn run(command: &CommandLine, settings: &Settings) -> Result<Finished, Error> {
    let (user_before, system_before) = times();
    let mut running = Running::start(command, settings)?;
    let status = running.wait()?;
    let elapsed = running.began.elapsed();
    let (user, system) = times();
    let (user, system) = (user.saturating_sub(user_before), system.saturating_sub(system_before));
    Ok(Finished { status, elapsed, user, system, stores: running.take_stores() })
}

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    command: &'a CommandLine,
    child: Child,
    began: Instant,
    relay: Relay,
    progress: Option<Status>,
    /// Of what its processes record, until that was read.
    taking: Option<Taking>,
}

impl<'a> Running<'a> {
    /// Starts the command.
    pub(crate) fn start(command: &'a CommandLine, settings: &Settings) -> Result<Self, Error> {
        let library = preload::unpack()?;
        let mut directory = StoreDirectory::create()?;
        let mut process = Command::new(&command.program);
        process.args(&command.arguments).envs(environment(&library, directory.path(), settings));
        let relay = Relay::start().map_err(|e| Error::failure(format!("cannot receive signals: {}", reason(&e))))?;
        let began = Instant::now();
        let child = relay.spawn(&mut process).map_err(|e| target::cannot_run(&command.program, &reason(&e)))?;
        if !settings.follow {
            directory.keep_only(child.id());
        }
        let progress = settings.progress.then(|| {
            let taken = directory.taken();
            Status::start(directory.path(), taken)
        });
        Ok(Self { command, child, began, relay, progress, taking: Some(Taking::start(directory)) })
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, Error> {
        loop {
            if let Some(status) = self.wait_at_most(None)? {
                return Ok(status);
            }
        }
    }

    /// Waits until it has ended, or until it has run for so long: `None`.
    pub(crate) fn wait_at_most(&mut self, duration: Option<Duration>) -> Result<Option<ExitStatus>, Error> {
        let left = duration.map(|duration| duration.saturating_sub(self.began.elapsed()));
        self.relay
            .wait(&mut self.child, left)
            .map_err(|e| Error::failure(format!("cannot wait for '{}': {}", self.command.name(), reason(&e))))
    }

    /// What its processes recorded. Those that still run record no more, nor do those that they start.
    pub(crate) fn take_stores(&mut self) -> Stores {
        self.progress = None;
        let Some(mut directory) = self.taking.take().and_then(Taking::finish) else { return Stores::default() };
        directory.stop();
        directory.read()
    }
}

fn environment(library: &Path, directory: &Path, settings: &Settings) -> Vec<(&'static str, OsString)> {
    let mut preload = OsString::from(library);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    vec![
        ("LD_PRELOAD", preload),
        ("PROFILE_RECORDER_STORE", directory.into()),
        ("PROFILE_RECORDER_STORE_MODES", settings.modes.clone().into()),
        ("PROFILE_RECORDER_STORE_INTERVAL", settings.interval.to_string().into()),
        ("PROFILE_RECORDER_STORE_HZ", settings.hz.to_string().into()),
        ("PROFILE_RECORDER_STORE_BYTES", (64 << 20).to_string().into()),
        ("PROFILE_RECORDER_STORE_FOLLOW", u8::from(settings.follow).to_string().into()),
    ]
}

/// CPU time of all children that were waited for: this process has one child at a time.
fn times() -> (Duration, Duration) {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Default::default() };
    let duration = |time: nix::sys::time::TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
    (duration(usage.user_time()), duration(usage.system_time()))
}
