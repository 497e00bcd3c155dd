//! Files that exist already, sent to sinks.

use crate::queue::Account;
use crate::settings::{Labels, SinkSettings};
use crate::sinks::{Origin, Sink};
use crate::{Error, machine, reason};
use profile::{Profile, Symbols};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is sent, and where.
#[derive(Clone, Debug)]
pub struct Push {
    /// Where it is sent.
    pub sinks: Vec<SinkSettings>,
    /// What each profile is of; `None`: its process, or the name of its file.
    pub service: Option<String>,
    /// Labels of all profiles, beside `hostname`.
    pub labels: Labels,
    /// How long it may take until everything has arrived.
    pub wait: Duration,
}

/// Sends profiles, each with a name of its file, and waits until they have arrived, or will not.
///
/// Every profile must know its start. What has not arrived in time is given up with the process: the account counts it as kept.
///
/// # Errors
/// If a sink cannot be used.
pub fn push(
    push: &Push,
    profiles: impl IntoIterator<Item = (String, Profile, Symbols)>,
) -> Result<BTreeMap<String, Account>, Error> {
    let states = tempfile::tempdir().map_err(|e| Error::failure(format!("no temporary directory: {}", reason(&e))))?;
    let mut settings = push.sinks.clone();
    for sink in &mut settings {
        sink.complete()?;
        // What waits here waits for nothing but this command.
        (sink.max_queue, sink.max_age) = (u64::MAX, push.wait + Duration::from_secs(3600));
    }
    let sinks = settings.iter().map(|sink| Sink::start(sink, states.path())).collect::<Result<Vec<_>, _>>()?;
    let mut labels = Labels::from([("hostname".to_owned(), machine::host_name())]);
    labels.extend(push.labels.clone());
    for (name, profile, symbols) in profiles {
        let process = profile.threads.first().map(|thread| thread.process.clone());
        let only = process.filter(|process| !process.is_empty() && !profile.has_several_processes());
        let service = push.service.clone().or(only).unwrap_or(name);
        let origin = Origin { service, labels: labels.clone(), mode: None };
        sinks.iter().for_each(|sink| sink.accept(&profile, &symbols, &origin));
    }
    let until = Instant::now() + push.wait;
    while sinks.iter().any(|sink| sink.account().kept > 0) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(sinks.iter().map(|sink| (sink.name().to_owned(), sink.account())).collect())
}
