//! `profrec convert`: a profile of any readable format in any writable one, with names for the addresses that have none.

mod input;

use crate::args::Convert;
use crate::ending::Ending;
use crate::error::{Error, warn};
use crate::{found, outputs, summary};
use profile::Options;
use symbolize::NameStyle;

/// Does all of it.
pub(crate) fn convert(convert: &Convert) -> Result<Ending, Error> {
    let (profile, symbols) = input::read(&convert.input)?;
    // Before the long work, so that a name that cannot be written is told at once.
    let outputs = outputs::open_each(&convert.outputs)?;
    let (mut profile, mut symbols, notes) = found::complete(profile, symbols, convert.detail, &convert.symbol_dirs);
    if let (false, Some(note)) = (convert.quiet, crate::record::one_note(&notes)) {
        warn(note);
    }
    // What was noted when it was recorded is not noted twice.
    let new: Vec<String> = notes.into_iter().filter(|note| !profile.comments.contains(note)).collect();
    profile.comments.extend(new);
    if convert.names == NameStyle::Short {
        (profile, symbols) = symbolize::short(&profile, &symbols);
    }
    let options = Options { title: convert.title.clone(), ..Options::default() };
    let (mut written, mut failed) = (Vec::new(), false);
    for (format, file) in outputs {
        match file.finish(|out| format.encode(&profile, &symbols, &options, out)) {
            Ok(path) => {
                if let (false, Some(line)) = (convert.quiet, summary::large_file(&path, format)) {
                    warn(line);
                }
                written.push(path);
            }
            Err(error) => {
                error.print();
                failed = true;
            }
        }
    }
    if !convert.quiet {
        summary::print(summary::written(&written));
    }
    let ending = Ending::Code(0);
    Ok(if failed { ending.but_failed() } else { ending })
}
