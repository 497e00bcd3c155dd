//! `profrec agent` and `profrec push`: the parts of them that belong to the terminal.

use crate::args::{Agent, PushFiles};
use crate::convert::input;
use crate::ending::Ending;
use crate::error::{self, Error};
use crate::output::to_standard_output;
use crate::summary;
use ::agent::Account;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

/// Runs the agent, or checks what it was told.
pub(crate) fn agent(typed: &Agent) -> Result<Ending, Error> {
    let settings = typed.settings()?;
    if typed.check {
        let lines = ::agent::check(settings)?;
        to_standard_output(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))?;
        return Ok(Ending::Code(0));
    }
    let continuous = settings.continuous;
    let finished = ::agent::run(settings, &|| typed.settings())?;
    summary::print(accounts(&finished.accounts));
    // Whoever ends a continuous agent early has not been refused anything.
    let nothing = finished.profiles == 0 && !continuous;
    let ending = if nothing { Ending::Code(1) } else { Ending::Code(0) };
    Ok(if finished.output_errors > 0 { ending.but_failed() } else { ending })
}

/// Sends files.
pub(crate) fn push(typed: &PushFiles) -> Result<Ending, Error> {
    let mut profiles = Vec::new();
    for path in &typed.files {
        let (mut profile, symbols) = input::read(path)?;
        place(&mut profile, path, typed.window)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        profiles.push((name.split('.').next().unwrap_or_default().to_owned(), profile, symbols));
    }
    let accounts_of = ::agent::push(&typed.push, profiles)?;
    if !typed.quiet {
        summary::print(accounts(&accounts_of));
    }
    let has_failed = |account: &Account| account.kept > 0 || !account.given_up.is_empty();
    if let Some((sink, _)) = accounts_of.iter().find(|(_, account)| has_failed(account)) {
        error::print(&Error::failure(format!("not everything arrived at '{sink}'")));
        return Ok(Ending::Code(1));
    }
    Ok(Ending::Code(0))
}

fn accounts(accounts: &BTreeMap<String, Account>) -> Vec<String> {
    let line = |(sink, account): (&String, &Account)| {
        let given_up: Vec<String> =
            account.given_up.iter().map(|(why, count)| format!(", {count} given up: {why}")).collect();
        let repeated = if account.repeated > 0 { format!(", {} sent again", account.repeated) } else { String::new() };
        format!("{sink}: {} sent, {} kept{}{repeated}", account.sent, account.kept, given_up.concat())
    };
    accounts.iter().map(line).collect()
}

/// Sets a profile's start and length: as they were given, as it says itself, or by when its file was written.
fn place(
    profile: &mut profile::Profile,
    path: &Path,
    (start, end): (Option<SystemTime>, Option<SystemTime>),
) -> Result<(), Error> {
    let nanos = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    };
    let (start, end) = (start.map(nanos), end.map(nanos));
    match (start, end) {
        (Some(start), end) => {
            profile.start_unix_ns = start;
            profile.duration_ns = end.map_or(profile.duration_ns, |end| end - start);
        }
        (None, Some(end)) => profile.start_unix_ns = end - profile.duration_ns,
        (None, None) if profile.start_unix_ns == 0 => {
            let written = std::fs::metadata(path).and_then(|metadata| metadata.modified()).map(nanos);
            let written = written.map_err(|_| {
                Error::usage(format!("'{}' does not tell when it was recorded; say it with --start", path.display()))
            })?;
            profile.start_unix_ns = written - profile.duration_ns;
        }
        (None, None) => {}
    }
    Ok(())
}
