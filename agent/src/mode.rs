//! What is measured of a process.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// What the agent asks a recorder for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum Mode {
    /// CPU time of running threads.
    Cpu,
    /// Elapsed time of every thread.
    Wall,
    /// Elapsed time of blocked threads.
    OffCpu,
    /// What was allocated during a cycle.
    Allocs,
    /// What is live at the end of a cycle.
    Heap,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Wall, Self::OffCpu, Self::Allocs, Self::Heap];

    /// Its name in requests, in the configuration and in names of files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::OffCpu => "offcpu",
            Self::Allocs => "allocs",
            Self::Heap => "heap",
        }
    }

    /// Whether what there is at one moment is asked for, and not what happens in a window.
    pub(crate) const fn is_moment(self) -> bool {
        matches!(self, Self::Heap)
    }

    /// Whether it is sampled so many times a second.
    pub(crate) const fn is_time(self) -> bool {
        matches!(self, Self::Cpu | Self::Wall | Self::OffCpu)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| format!("no mode is named '{name}'; there are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}
