//! `profrec top` on the command line.

use crate::error::Error;
use clap::{Args, ValueEnum};
use profile::Mode;
use std::io::{IsTerminal, stdout};

/// What `top` was asked for.
#[derive(Clone, Debug, Args)]
pub(crate) struct Top {
    /// Process id, path of a socket, URL, or a name as 'profrec list' prints it
    pub(crate) target: String,
    /// What to measure
    #[arg(long, value_name = "MODE", value_parser = super::mode::asked(), default_value = "cpu")]
    pub(crate) mode: Mode,
    /// A row for each function or for each stack
    #[arg(long, value_name = "ROWS", value_enum, default_value = "function")]
    pub(crate) by: By,
    /// What the numbers are: bytes, allocs, live, or a sample type as the profile calls it [default: the mode's]
    #[arg(long, value_name = "M")]
    pub(crate) metric: Option<String>,
    /// Show rows with this text in their names, whatever its case
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
    /// Length of a measurement, and time between two tables, 1 to 60
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) seconds: u32,
    /// Samples a second, 1 to 10000 [default: the recorder's, 99]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) hz: Option<u32>,
    /// Print one table as text, as is done without being told if standard output is no terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Rows of the table that is printed as text; 0: all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) lines: usize,
    /// When to use colours; NO_COLOR in the environment stands for never
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(crate) color: When,
}

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// A function
    Function,
    /// A stack, its leaf first
    Stack,
}

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Whatever the environment says
    Always,
    /// Not at all
    Never,
}

impl When {
    /// Whether to use them, where `environment` is the value of `NO_COLOR`.
    pub(crate) fn applies(self, no_color: Option<&std::ffi::OsStr>) -> bool {
        match self {
            Self::Auto => no_color.is_none_or(std::ffi::OsStr::is_empty),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

impl Top {
    pub(super) fn understand(self) -> Result<Self, Error> {
        if self.target.is_empty() {
            return Err(Error::usage("the target is empty; 'profrec list' shows what there is"));
        }
        let moves_a_cursor = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        let once = self.once || !stdout().is_terminal() || !moves_a_cursor;
        Ok(Self { once, ..self })
    }
}

pub(super) const EXAMPLES: &str = "\
Examples:
  profrec top 4711                                                  who takes CPU time now
  profrec top app --mode allocs --metric bytes                      who allocates now, and has since the start
  profrec top app --mode heap --by stack                            whose memory is live, and who holds more of it every second
  profrec top app --mode wall --once --lines 5 | mail ...           one table as text

On the terminal '?' lists the keys. The target carries the library and listens (PROFILE_RECORDER_SERVER_URL).
PROFILE_RECORDER_TOKEN or PROFILE_RECORDER_TOKEN_FILE hold the token, if it wants one.";

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn colours_follow_the_option_then_the_environment() {
        assert!(When::Auto.applies(None) && When::Auto.applies(Some(OsStr::new(""))));
        assert!(!When::Auto.applies(Some(OsStr::new("1"))) && !When::Never.applies(None));
        assert!(When::Always.applies(Some(OsStr::new("1"))));
    }
}
