//! `profrec record`: runs a command and writes profiles of it.

mod measured;
mod per_process;
mod together;

use crate::args::Record;
use crate::ending::Ending;
use crate::error::{Error, warn};
use crate::outputs::{self, Output, OutputPath, Writer};
use crate::run::{Running, Settings};
use crate::store::Stores;
use crate::{summary, target};
use measured::{Measured, Source};
use profile::Mode;
use profile::{Profile, Symbols};
use together::together;

/// Does all of it. The ending is the command's, unless the command succeeded and this did not.
pub(crate) fn record(record: &Record) -> Result<Ending, Error> {
    target::check(&record.command.program, std::env::var_os("PATH").as_deref())?;
    let (each, whole): (Vec<OutputPath>, Vec<OutputPath>) =
        record.outputs.iter().cloned().partition(per_process::is_one);
    per_process::check(&each)?;
    let outputs = outputs::open(&whole, &record.modes)?;
    let modes: Vec<&str> = record.modes.iter().map(|mode| mode.name()).collect();
    let settings = Settings {
        modes: modes.join(","),
        interval: record.interval,
        hz: record.hz,
        follow: record.follow,
        progress: record.progress,
    };
    let mut running = Running::start(&record.command, &settings)?;
    let ended = running.wait_at_most(record.duration)?;
    let written = write_all(record, &each, outputs, running.take_stores());
    let status = match ended {
        Some(status) => status,
        None => {
            if !record.quiet {
                summary::print([format!("'{}' goes on, and is no longer recorded", record.command.name())]);
            }
            running.wait()?
        }
    };
    let ending = Ending::of(status);
    Ok(if written { ending } else { ending.but_failed() })
}

/// Writes and says what was recorded. False if anything is missing.
fn write_all(record: &Record, each: &[OutputPath], outputs: Vec<Output>, stores: Stores) -> bool {
    if stores.decoded.is_empty() {
        crate::error::print(&Error::failure(summary::nothing_recorded(&record.command, stores.empty)));
        return false;
    }
    let losses = summary::losses(&stores.decoded);
    if !record.quiet && record.modes.iter().any(|mode| Source::of(*mode) == Source::Allocs) {
        summary::unseen(&stores.decoded).into_iter().for_each(warn);
    }
    if !record.quiet && record.follow {
        summary::unfollowed(&stores.decoded).into_iter().for_each(warn);
    }
    let processes = summary::processes(&stores.decoded);
    let mut writer = Writer::new(record.quiet);
    per_process::write(each, &stores.decoded, record, &mut writer);
    write(outputs, measure(record, stores), record, processes, &mut writer);
    if !record.quiet {
        summary::print(losses.into_iter().chain(summary::written(writer.written())));
    }
    !writer.has_failed()
}

/// The profile of each source that a mode shows, with its names.
fn measure(record: &Record, mut stores: Stores) -> Vec<Measured> {
    let mut measured: Vec<Measured> = Vec::new();
    for mode in &record.modes {
        let source = Source::of(*mode);
        if measured.iter().any(|m| m.source == source) {
            continue;
        }
        let (made, notes) = Measured::take(source, &mut stores.decoded, record.symbols, record.names);
        if let (false, Some(note)) = (record.quiet, one_note(&notes)) {
            warn(note);
        }
        measured.push(made);
    }
    measured
}

/// The first of the notes on files that could not be used, and how many there are.
pub(crate) fn one_note(notes: &[String]) -> Option<String> {
    let (first, others) = notes.split_first()?;
    let others = match others.len() {
        0 => String::new(),
        number => format!(" (and {number} like it, listed in the profile)"),
    };
    Some(format!("{first}{others}"))
}

/// Writes the files of all processes together.
fn write(outputs: Vec<Output>, mut measured: Vec<Measured>, record: &Record, processes: usize, writer: &mut Writer) {
    let (of_all, mut of_one): (Vec<Output>, Vec<Output>) =
        outputs.into_iter().partition(|output| output.mode.is_none());
    // The program's name and not its arguments: those stay on this machine.
    let options = record.shown.options(Some(record.command.name()));
    let mut put = |output: Output, profile: &Profile, symbols: &Symbols| {
        writer.put(output.file, output.format, (profile, symbols), &options);
    };
    for mode in &record.modes {
        let Some(measured) = measured.iter_mut().find(|m| m.source == Source::of(*mode)) else { continue };
        show_first(&mut measured.profile, *mode);
        if !record.quiet {
            summary::print([summary::of(*mode, &measured.profile, processes)]);
            if *mode == Mode::Heap {
                summary::print_below(summary::live(&measured.profile, &measured.symbols));
            }
        }
        let (now, later) = of_one.into_iter().partition(|output| output.mode == Some(*mode));
        of_one = later;
        Vec::into_iter(now).for_each(|output| put(output, &measured.profile, &measured.symbols));
    }
    if !of_all.is_empty() {
        let (profile, symbols) = together(&measured);
        of_all.into_iter().for_each(|output| put(output, &profile, &symbols));
    }
}

/// Allocations and live memory are columns of the same profile; the mode says which one is looked at.
fn show_first(profile: &mut Profile, mode: Mode) {
    if let Some(column) = profile.column(mode.default_sample_type()) {
        profile.default_sample_type = Some(column);
    }
}
