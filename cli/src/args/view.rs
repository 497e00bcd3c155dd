//! `profrec view` on the command line.

use super::convert::TypedNaming;
use crate::convert::Naming;
use crate::error::Error;
use clap::Args;
use std::path::PathBuf;

/// What `view` was asked for.
#[derive(Debug)]
pub(crate) struct View {
    /// The profiles to show; at least one.
    pub(crate) files: Vec<PathBuf>,
    /// How names are found and shown.
    pub(crate) naming: Naming,
    /// The port to listen on; 0 is any.
    pub(crate) port: u16,
    /// Whether a browser is opened.
    pub(crate) browser: bool,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  profrec view profile.pb.gz                                        the flame graph page, in the browser
  profrec view base.pb.gz head.pb.gz                                the second compared with the first
  profrec view p.profrec --symbols ./symbols                        names from files that another machine recorded
  profrec view --no-browser --port 8000 p.profrec                   over 'ssh -L 8000:localhost:8000'; open the address it prints

Two files are compared; of more, the first is shown and the others can be chosen. The page answers on loopback and only to whoever knows its address, until Ctrl-C.";

#[derive(Debug, Args)]
pub(super) struct TypedView {
    /// The profiles: .profrec, pprof, perf script, collapsed stacks, .col, DHAT, gzipped or not
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    naming: TypedNaming,
    /// Listen on this port of loopback [default: any]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    port: u16,
    /// Print the address and open nothing
    #[arg(long)]
    no_browser: bool,
}

impl TypedView {
    pub(super) fn understand(self) -> Result<View, Error> {
        Ok(View { files: self.files, naming: self.naming.understand()?, port: self.port, browser: !self.no_browser })
    }
}
