//! `profrec sample`: a profile of a program that carries the library and listens.

use crate::args::Sample;
use crate::ending::Ending;
use crate::error::Error;
use crate::signals::asked_to_end;
use crate::{outputs, summary};
use ::agent::reason;
use ::agent::recorders::{Address, get};
use profile::Mode;
use std::io::IsTerminal;
use std::time::Duration;

/// Asks, waits, and writes what was answered; asked to end meanwhile, what was recorded by then.
pub(crate) fn sample(sample: &Sample) -> Result<Ending, Error> {
    let address = Address::of(&sample.target)?;
    // With one mode, whatever it is, the file keeps its name.
    let outputs = outputs::open(std::slice::from_ref(&sample.output), &[Mode::Cpu])?;
    let Some(output) = outputs.into_iter().next() else { return Ok(Ending::Code(0)) };
    let mode = sample.mode.name();
    let mut path = format!("/debug/pprof/{mode}?format={}", output.format.name());
    if let Some(seconds) = sample.seconds {
        path.push_str(&format!("&seconds={seconds}"));
    }
    if let Some(hz) = sample.hz {
        path.push_str(&format!("&hz={hz}"));
    }
    let seconds = sample.seconds.unwrap_or(0);
    if !sample.quiet && seconds > 0 && std::io::stderr().is_terminal() {
        summary::print([format!("recording {seconds} s of {mode} at {address}")]);
    }
    let asked = asked_to_end().map_err(|e| Error::failure(format!("cannot wait for signals: {}", reason(&e))))?;
    let body = get(&address, &path, Duration::from_secs(seconds.into()), Some(&asked))?;
    let written = output.file.finish(|out| out.write_all(&body))?;
    if !sample.quiet {
        summary::print(summary::written(&[written]));
    }
    Ok(Ending::Code(0))
}
