//! What is measured, and its name: on command lines, in variables, URLs, files and answers.

use std::fmt;

/// What a recording measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// CPU time of running threads.
    Cpu,
    /// Elapsed time of every thread, running or not.
    Wall,
    /// Elapsed time of blocked threads alone.
    OffCpu,
    /// Allocations made, freed or not.
    Allocs,
    /// Allocations still live.
    Heap,
    /// Every thread's stack, once.
    Threads,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 6] = [Self::Cpu, Self::Wall, Self::OffCpu, Self::Allocs, Self::Heap, Self::Threads];

    /// The name in `--mode`, `mode=`, `PROFILE_RECORDER_MODE` and the paths below `/debug/pprof/`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::OffCpu => "offcpu",
            Self::Allocs => "allocs",
            Self::Heap => "heap",
            Self::Threads => "threads",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The sample type that a reader wants to see first.
    pub const fn default_sample_type(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::OffCpu => "off_cpu",
            Self::Allocs => "alloc_objects",
            Self::Heap => "inuse_space",
            Self::Threads => "threads",
        }
    }

    /// Whether allocations are measured: since the start, or in a window.
    pub const fn is_memory(self) -> bool {
        matches!(self, Self::Allocs | Self::Heap)
    }

    /// Whether time is measured, so that a recording has a rate and always a duration.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::Cpu | Self::Wall | Self::OffCpu)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
