//! What one server counts of itself, and how fast sessions may begin.

use std::cmp::Ordering::Less;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use profile::Mode;

/// Sessions that may begin at once, and how many more every second: enough for any tool, too few to keep a processor busy with snapshots.
const BURST: f64 = 128.0;
const PER_SECOND: f64 = 16.0;

/// Counters of one server.
#[derive(Debug)]
pub(super) struct Meter {
    /// Answers by the first digit of their status.
    answers: [AtomicU64; 6],
    /// Sessions begun, by mode.
    begun: [AtomicU64; Mode::ALL.len()],
    running: AtomicU64,
    bucket: Mutex<Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    filled: Instant,
}

impl Bucket {
    /// Takes one; else how long until there is one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        self.left = (self.left + now.saturating_duration_since(self.filled).as_secs_f64() * PER_SECOND).min(BURST);
        self.filled = now;
        if self.left.partial_cmp(&1.0) == Some(Less) {
            return Err(Duration::from_secs_f64((1.0 - self.left) / PER_SECOND));
        }
        self.left -= 1.0;
        Ok(())
    }
}

/// A session that runs; over when dropped.
#[derive(Debug)]
pub(super) struct RunningSession<'a>(&'a Meter);

impl Drop for RunningSession<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Meter {
    pub(super) fn new() -> Self {
        Self {
            answers: Default::default(),
            begun: Default::default(),
            running: AtomicU64::new(0),
            bucket: Mutex::new(Bucket { left: BURST, filled: Instant::now() }),
        }
    }

    /// Counts an answer.
    pub(super) fn answered(&self, status: u16) {
        if let Some(cell) = self.answers.get(usize::from(status / 100)) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins a session; else how long until one may begin.
    pub(super) fn begin(&self, mode: Mode) -> Result<RunningSession<'_>, Duration> {
        // Nobody panics while holding it, and its content is whole at any time.
        let mut bucket = self.bucket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        bucket.take(Instant::now())?;
        let position = Mode::ALL.iter().position(|known| *known == mode);
        if let Some(cell) = position.and_then(|position| self.begun.get(position)) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
        self.running.fetch_add(1, Ordering::Relaxed);
        Ok(RunningSession(self))
    }

    /// Answers by class: `2xx`, `3xx` ...
    pub(super) fn answers(&self) -> impl Iterator<Item = (usize, u64)> {
        self.answers.iter().enumerate().skip(1).map(|(class, cell)| (class, cell.load(Ordering::Relaxed)))
    }

    /// Sessions begun, by mode.
    pub(super) fn begun(&self) -> impl Iterator<Item = (Mode, u64)> {
        Mode::ALL.into_iter().zip(&self.begun).map(|(mode, cell)| (mode, cell.load(Ordering::Relaxed)))
    }

    /// Sessions running now.
    pub(super) fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_begin_in_a_burst_and_then_at_a_rate() {
        let start = Instant::now();
        let mut bucket = Bucket { left: BURST, filled: start };
        for _ in 0..128 {
            assert_eq!(bucket.take(start), Ok(()));
        }
        let wait = bucket.take(start).unwrap_err();
        assert_eq!(wait, Duration::from_secs_f64(1.0 / 16.0));
        assert_eq!(bucket.take(start + wait), Ok(()));
        assert!(bucket.take(start + wait).is_err());
        let later = start + Duration::from_secs(1000);
        assert_eq!((0..1000).filter(|_| bucket.take(later).is_ok()).count(), 128, "it holds a burst at most");
    }

    #[test]
    fn a_session_counts_as_running_until_it_is_dropped() {
        let meter = Meter::new();
        let session = meter.begin(Mode::Heap).unwrap();
        assert_eq!(meter.running(), 1);
        drop(session);
        assert_eq!(meter.running(), 0);
        assert_eq!(meter.begun().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [(Mode::Heap, 1)]);
    }
}
