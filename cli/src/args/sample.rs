//! `profrec sample`, `list`, `completions` and `man` on the command line.

use super::OutputPath;
use crate::error::Error;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap_complete::Shell;
use profile::Mode;
use std::path::PathBuf;

/// What `sample` was asked for.
#[derive(Debug)]
pub(crate) struct Sample {
    /// Pid, socket, URL or name.
    pub(crate) target: String,
    /// What to measure.
    pub(crate) mode: Mode,
    /// How long; `None`: what the recorder has by now.
    pub(crate) seconds: Option<u32>,
    /// Samples a second.
    pub(crate) hz: Option<u32>,
    /// The file to write.
    pub(crate) output: OutputPath,
    /// Say nothing unless something goes wrong.
    pub(crate) quiet: bool,
}

/// What `list` was asked for.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct List {
    /// Print a JSON array instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `completions` was asked for.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// What `man` was asked for.
#[derive(Clone, Debug, Args)]
pub(crate) struct Man {
    /// The directory to write them to, one file for each command
    pub(crate) directory: PathBuf,
}

pub(super) const SAMPLE_EXAMPLES: &str = "\
Examples:
  profrec sample 4711                                               ten seconds of CPU time, to profile.html
  profrec sample app --mode wall --seconds 5 -o wall.svg            where its threads wait
  profrec sample /run/app.sock --mode heap -o heap.pb.gz            who allocated what is live now
  profrec sample http://127.0.0.1:6060 --mode allocs --seconds 10   what is allocated in ten seconds

Ctrl-C ends a recording early and writes what it has; a second one gives it up. The target carries the library and listens (PROFILE_RECORDER_SERVER_URL). PROFILE_RECORDER_TOKEN or PROFILE_RECORDER_TOKEN_FILE hold the token, if it wants one.";

pub(super) const LIST_EXAMPLES: &str = "\
Examples:
  profrec list
  profrec list --json | jq -r '.[].url'

Recorders of this user are listed that listen now: programs that carry the library and were started with PROFILE_RECORDER_SERVER_URL.";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  profrec completions bash > ~/.local/share/bash-completion/completions/profrec
  profrec completions zsh > ~/.zfunc/_profrec
  profrec completions fish > ~/.config/fish/completions/profrec.fish";

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  profrec man ~/.local/share/man/man1 && man profrec-diff";

#[derive(Debug, Args)]
pub(super) struct TypedSample {
    /// Process id, path of a socket, URL, or a name as 'profrec list' prints it
    target: String,
    /// What to measure
    #[arg(long, value_name = "MODE", value_parser = super::mode::asked(), default_value = "cpu")]
    mode: Mode,
    /// How long, 1 to 3600 [default: 10; of allocs, heap and threads what there is by now, since the start]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Samples a second, 1 to 10000 [default: the recorder's, 99]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hz: Option<u32>,
    /// Write the profile here, in the format of the extension
    #[arg(short, long, value_name = "FILE", default_value = "profile.html", value_parser = OsStringValueParser::new().try_map(OutputPath::new))]
    output: OutputPath,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

impl TypedSample {
    pub(super) fn understand(self) -> Result<Sample, Error> {
        if self.target.is_empty() {
            return Err(Error::usage("the target is empty; 'profrec list' shows what there is"));
        }
        if self.mode == Mode::Threads && self.seconds.is_some() {
            return Err(Error::usage("--seconds means nothing with --mode threads, which is one moment"));
        }
        let seconds = self.seconds.or(self.mode.is_time().then_some(10));
        Ok(Sample {
            target: self.target,
            mode: self.mode,
            seconds,
            hz: self.hz,
            output: self.output,
            quiet: self.quiet,
        })
    }
}
