//! How stacks are shown, in what `record` and `convert` write.

use clap::{Args, ValueEnum};
use profile::Options;
use profile::encode::Growth;

/// Options of formats that show stacks one way or another.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Stacks")]
pub(crate) struct Shown {
    /// Begin flame graphs at the leaf: who called a function lies on it
    #[arg(long)]
    reversed: bool,
    /// Which way flame graphs grow
    #[arg(long, value_name = "WAY", value_enum, default_value = "down")]
    grow: Way,
    /// Begin each stack with a frame that names its thread, in formats that know no threads
    #[arg(long)]
    thread_frames: bool,
    /// Continue with a frame for each label, in formats that know no labels
    #[arg(long)]
    label_frames: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Way {
    /// From the top: an icicle graph
    Down,
    /// From the bottom
    Up,
}

impl Shown {
    /// What the formats are told, with this title.
    pub(crate) fn options(&self, title: Option<String>) -> Options {
        Options {
            title,
            reversed: self.reversed,
            growth: match self.grow {
                Way::Down => Growth::Down,
                Way::Up => Growth::Up,
            },
            thread_frames: self.thread_frames,
            label_frames: self.label_frames,
            ..Options::default()
        }
    }
}
