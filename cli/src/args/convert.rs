//! `profrec convert` on the command line.

use super::{Names, Shown, Symbols};
use crate::convert::Naming;
use crate::error::Error;
use crate::outputs::OutputPath;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// What `convert` was asked for.
#[derive(Debug)]
pub(crate) struct Convert {
    /// The profile to read; `-` is standard input.
    pub(crate) input: PathBuf,
    /// Files to write, as they were named; at least one.
    pub(crate) outputs: Vec<OutputPath>,
    /// How names are found and shown.
    pub(crate) naming: Naming,
    /// How stacks are shown.
    pub(crate) shown: Shown,
    /// Title of flame graphs and pages.
    pub(crate) title: Option<String>,
    /// Say nothing unless something goes wrong.
    pub(crate) quiet: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  profrec convert profile.profrec -o profile.svg -o profile.pb.gz   several formats from one recording
  profrec convert profile.profrec -o p.html --symbols ./symbols     names from files that another machine recorded
  profrec convert cpu.pb.gz -o cpu.speedscope.json                  any readable format to any writable one
  curl -s http://127.0.0.1:6060/debug/pprof/heap | profrec convert - -o heap.svg --names short

The format of INPUT is told by its contents, gzipped or not; that of each FILE by its extension.
DIR holds files as DIR/.build-id/ab/cdef.debug, DIR/PATH or DIR/NAME. Only a file with the recorded build id is used.
After 'profrec record --symbols none -o p.profrec', converting gives what recording with names would have given.";

#[derive(Debug, Args)]
pub(super) struct TypedConvert {
    /// The profile to read, or '-' for standard input
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Write the profile here, in the format of the extension; can be given several times
    #[arg(short, long = "output", value_name = "FILE", required = true, value_parser = OsStringValueParser::new().try_map(OutputPath::new))]
    outputs: Vec<OutputPath>,
    #[command(flatten)]
    naming: TypedNaming,
    #[command(flatten)]
    shown: Shown,
    /// Title of flame graphs and pages [default: the recorded program's name]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// What both commands that read profiles are told of names.
#[derive(Debug, Args)]
pub(super) struct TypedNaming {
    /// Look here for the recorded files and their debug information, before /usr/lib/debug; can be given several times
    #[arg(long = "symbols", value_name = "DIR")]
    symbol_dirs: Vec<PathBuf>,
    /// What to find out about addresses that have no names yet
    #[arg(long, value_name = "DETAIL", value_enum, default_value = "full")]
    detail: Symbols,
    /// How names are shown
    #[arg(long, value_name = "STYLE", value_enum, default_value = "full")]
    names: Names,
}

impl TypedNaming {
    pub(super) fn understand(self) -> Result<Naming, Error> {
        check_directories(&self.symbol_dirs)?;
        Ok(Naming { symbol_dirs: self.symbol_dirs, detail: self.detail.into(), style: self.names.into() })
    }
}

impl TypedConvert {
    pub(super) fn understand(self) -> Result<Convert, Error> {
        if let Some(twice) = OutputPath::first_repeated(&self.outputs) {
            return Err(Error::usage(format!("'{twice}' is given twice as an output; name each file once")));
        }
        Ok(Convert {
            input: self.input,
            outputs: self.outputs,
            naming: self.naming.understand()?,
            shown: self.shown,
            title: self.title,
            quiet: self.quiet,
        })
    }
}

/// Refuses what `--symbols` names that is no directory.
pub(super) fn check_directories(directories: &[PathBuf]) -> Result<(), Error> {
    let missing = directories.iter().find(|directory| !directory.is_dir());
    missing.map_or(Ok(()), |missing| {
        Err(Error::usage(format!("'{}' for '--symbols <DIR>' is not a directory", missing.display())))
    })
}
