//! The stores of all processes as one profile with names.

use profile::Mode;
use profile::store::{Decoded, keep_blocked, rate_reached};
use profile::{Profile, Symbols};
use symbolize::{Detail, NameStyle, Options, short, symbolize};

/// A part of the store that profiles come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Samples of CPU time.
    Cpu,
    /// Looks at every thread.
    Wall,
    /// Those that found the thread blocked.
    OffCpu,
    /// Allocations, and which of them are live if that was followed.
    Allocs,
}

impl Source {
    /// Where a mode finds its values.
    pub(super) const fn of(mode: Mode) -> Self {
        match mode {
            Mode::Cpu => Self::Cpu,
            Mode::Wall | Mode::Threads => Self::Wall,
            Mode::OffCpu => Self::OffCpu,
            Mode::Allocs | Mode::Heap => Self::Allocs,
        }
    }
}

/// What was recorded from one source.
#[derive(Debug)]
pub(super) struct Measured {
    /// The source.
    pub(super) source: Source,
    /// All processes together.
    pub(super) profile: Profile,
    /// Names of its addresses.
    pub(super) symbols: Symbols,
}

impl Measured {
    /// Takes the profiles out of the stores. The notes tell of files that could not be used; they are in the comments too.
    pub(super) fn take(
        source: Source,
        stores: &mut [Decoded],
        detail: Detail,
        names: NameStyle,
    ) -> (Self, Vec<String>) {
        let taken = stores.iter_mut().filter_map(|store| match source {
            Source::Cpu => store.cpu.take(),
            // Both of these modes are made of it.
            Source::Wall | Source::OffCpu => store.wall.clone(),
            Source::Allocs => store.allocs.take(),
        });
        let mut profile = Profile::merge(taken);
        if source == Source::OffCpu {
            keep_blocked(&mut profile);
        }
        profile.sort();
        let (perf_map_pids, file_pids) = (profile.pids(), profile.pids());
        profile.comments.extend(rate_reached(&profile));
        let options = Options { detail, perf_map_pids, file_pids, ..Options::default() };
        let found = symbolize(&profile, &options);
        profile.comments.extend(found.notes.iter().cloned());
        let mut symbols = found.symbols;
        if names == NameStyle::Short {
            (profile, symbols) = short(&profile, &symbols);
        }
        (Self { source, profile, symbols }, found.notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Frame, Sample, SampleType, Thread, ThreadId};

    fn store(pid: u32, calls: i64) -> Decoded {
        let mut profile = Profile::new(vec![SampleType::new("alloc_objects", "count")]);
        profile.threads.push(Thread {
            pid,
            tid: pid,
            name: "main".into(),
            process: "victim".into(),
            ..Thread::default()
        });
        let stack = profile.stacks.intern([Frame::named("main"), Frame::named("malloc")]);
        profile.samples.push(Sample {
            stack,
            thread: Some(ThreadId(0)),
            labels: profile::Labels::new(),
            values: profile::values![calls],
        });
        Decoded { pid, allocs: Some(profile), ..Decoded::default() }
    }

    #[test]
    fn the_processes_are_together_in_one_profile_and_told_apart_by_pid() {
        let mut stores = [store(10, 1), store(11, 2)];
        let (measured, notes) = Measured::take(Source::Allocs, &mut stores, Detail::Full, NameStyle::Full);
        assert_eq!(measured.profile.total(0), 3);
        assert_eq!(measured.profile.pids(), [10, 11]);
        assert!(notes.is_empty());
        assert!(stores.iter().all(|store| store.allocs.is_none()));
    }

    #[test]
    fn nothing_recorded_is_an_empty_profile() {
        let (measured, _) = Measured::take(Source::Cpu, &mut [store(10, 1)], Detail::Full, NameStyle::Full);
        assert!(measured.profile.samples.is_empty());
    }
}
