//! `profrec list`: the recorders of this user that listen.

use crate::args::List;
use crate::ending::Ending;
use crate::error::Error;
use crate::output::to_standard_output;
use ::agent::recorders::{Recorder, recorders};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Entry<'a> {
    pid: u32,
    name: &'a str,
    exe: &'a str,
    url: &'a str,
}

/// Prints them.
pub(crate) fn list(list: &List) -> Result<Ending, Error> {
    let recorders = recorders();
    to_standard_output(|out| if list.json { json(&recorders, out) } else { table(&recorders, out) })?;
    Ok(Ending::Code(0))
}

fn json(recorders: &[Recorder], out: &mut dyn Write) -> io::Result<()> {
    let entry = |r: &Recorder| serde_json::to_value(Entry { pid: r.pid, name: r.name(), exe: &r.exe, url: &r.url });
    let entries: Vec<_> = recorders.iter().map(entry).collect::<Result<_, _>>()?;
    serde_json::to_writer_pretty(&mut *out, &entries)?;
    writeln!(out)
}

fn table(recorders: &[Recorder], out: &mut dyn Write) -> io::Result<()> {
    if recorders.is_empty() {
        return writeln!(
            out,
            "no recorder of yours listens; start a program with PROFILE_RECORDER_SERVER_URL_PATTERN='unix:///tmp/app-{{PID}}.sock'"
        );
    }
    let longest = recorders.iter().map(|r| r.name().chars().count()).max().unwrap_or(0).max(4);
    writeln!(out, "{:>8}  {:<longest$}  ADDRESS", "PID", "NAME")?;
    for recorder in recorders {
        writeln!(out, "{:>8}  {:<longest$}  {}", recorder.pid, recorder.name(), recorder.url)?;
    }
    Ok(())
}
