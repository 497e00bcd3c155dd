//! `profrec convert`: a profile of any readable format in any writable one, with names for the addresses that have none.

pub(crate) mod input;

use crate::args::Convert;
use crate::ending::Ending;
use crate::error::{Error, warn};
use crate::outputs::{self, Writer};
use crate::{found, summary};
use profile::{Profile, Symbols};
use std::path::PathBuf;
use symbolize::{Detail, NameStyle};

/// How names are found and shown.
#[derive(Clone, Debug)]
pub(crate) struct Naming {
    /// Directories in which the recorded files and their debug information are looked for first.
    pub(crate) symbol_dirs: Vec<PathBuf>,
    /// How much to find out about addresses that have no names.
    pub(crate) detail: Detail,
    /// How names are shown.
    pub(crate) style: NameStyle,
}

/// Does all of it.
pub(crate) fn convert(convert: &Convert) -> Result<Ending, Error> {
    let read = input::read(&convert.input)?;
    // Before the long work, so that a name that cannot be written is told at once.
    let outputs = outputs::open_each(&convert.outputs)?;
    let (profile, symbols, note) = named(read, &convert.naming);
    if let (false, Some(note)) = (convert.quiet, note) {
        warn(note);
    }
    let mut writer = Writer::new(convert.quiet);
    for (format, file) in outputs {
        writer.put(file, format, (&profile, &symbols), &convert.shown.options(convert.title.clone()));
    }
    if !convert.quiet {
        summary::print(summary::written(writer.written()));
    }
    let ending = Ending::Code(0);
    Ok(if writer.has_failed() { ending.but_failed() } else { ending })
}

/// A profile with names for the addresses that had none, and what a user should know of those that have none still.
pub(crate) fn named((profile, symbols): (Profile, Symbols), naming: &Naming) -> (Profile, Symbols, Option<String>) {
    let (mut profile, mut symbols, notes) = found::complete(profile, symbols, naming.detail, &naming.symbol_dirs);
    let note = crate::record::one_note(&notes);
    // What was noted when it was recorded is not noted twice.
    let new: Vec<String> = notes.into_iter().filter(|note| !profile.comments.contains(note)).collect();
    profile.comments.extend(new);
    if naming.style == NameStyle::Short {
        (profile, symbols) = symbolize::short(&profile, &symbols);
    }
    (profile, symbols, note)
}
