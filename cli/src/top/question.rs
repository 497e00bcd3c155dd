//! What the target is asked, again and again.

use crate::args::Top;
use profile::Mode;
use std::time::Duration;

/// Lengths of a measurement that keys go through, in seconds.
const LENGTHS: [u32; 6] = [1, 2, 5, 10, 30, 60];

/// One question. An answer is about the last `seconds` if time is measured; of allocations it is what there is by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) mode: Mode,
    pub(super) seconds: u32,
    hz: Option<u32>,
}

impl Question {
    /// What the command line asks.
    pub(super) fn of(top: &Top) -> Self {
        Self { mode: top.mode, seconds: top.seconds, hz: top.hz }
    }

    /// The request. Names alone: lines cost the target a hundred times as much, every time.
    pub(super) fn path(self) -> String {
        let mut path = format!("/debug/pprof/{}?format=raw&symbols=names", self.mode.name());
        if self.mode.is_time() {
            path.push_str(&format!("&seconds={}", self.seconds));
            if let Some(hz) = self.hz {
                path.push_str(&format!("&hz={hz}"));
            }
        }
        path
    }

    /// How long the target measures before it answers.
    pub(super) fn measures(self) -> Duration {
        if self.mode.is_time() { self.length() } else { Duration::ZERO }
    }

    /// How long to wait before asking again.
    pub(super) fn pause(self) -> Duration {
        self.length() - self.measures()
    }

    /// Time between two tables.
    pub(super) fn length(self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// The next longer question.
    pub(super) fn longer(self) -> Self {
        let seconds = LENGTHS.into_iter().find(|length| *length > self.seconds).unwrap_or(self.seconds);
        Self { seconds, ..self }
    }

    /// The next shorter question.
    pub(super) fn shorter(self) -> Self {
        let seconds = LENGTHS.into_iter().rev().find(|length| *length < self.seconds).unwrap_or(self.seconds);
        Self { seconds, ..self }
    }

    /// The same about the mode after this one.
    pub(super) fn next_mode(self) -> Self {
        let modes = Mode::ALL;
        let at = modes.iter().position(|mode| *mode == self.mode).map_or(0, |at| at + 1);
        Self { mode: modes.get(at).or(modes.first()).copied().unwrap_or(self.mode), ..self }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::top) fn question(mode: Mode) -> Question {
        Question { mode, seconds: 2, hz: Some(499) }
    }

    #[test]
    fn time_is_asked_for_a_window_and_memory_for_what_there_is() {
        let time = question(Mode::Wall);
        assert_eq!(time.path(), "/debug/pprof/wall?format=raw&symbols=names&seconds=2&hz=499");
        assert_eq!((time.measures(), time.pause()), (Duration::from_secs(2), Duration::ZERO));
        let memory = question(Mode::Heap);
        assert_eq!(memory.path(), "/debug/pprof/heap?format=raw&symbols=names");
        assert_eq!((memory.measures(), memory.pause()), (Duration::ZERO, Duration::from_secs(2)));
    }

    #[test]
    fn keys_reach_every_mode_and_stop_at_the_longest_and_the_shortest() {
        let mut at = question(Mode::Cpu);
        let reached: Vec<&str> = Mode::ALL
            .iter()
            .map(|_| {
                at = at.next_mode();
                at.mode.name()
            })
            .collect();
        assert_eq!(reached, ["wall", "offcpu", "allocs", "heap", "threads", "cpu"]);
        assert_eq!((at.longer().seconds, at.shorter().seconds), (5, 1));
        assert_eq!((at.shorter().shorter().seconds, Question { seconds: 60, ..at }.longer().seconds), (1, 60));
        assert_eq!(Question { seconds: 3, ..at }.longer().seconds, 5, "from a length that keys do not reach");
    }
}
