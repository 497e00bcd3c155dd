//! The thread that empties a queue.

use super::Way;
use super::http::Outcome;
use crate::queue::{Queue, Settled};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First wait after a failure; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait that nobody asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What it needs.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) queue: Arc<Queue>,
    pub(super) way: Way,
}

impl Worker {
    /// Sends one item after the other until the queue is closed.
    pub(super) fn run(self) {
        let mut failures = 0_u32;
        let mut earliest = None;
        while let Some(item) = self.queue.next(earliest) {
            let Some(body) = self.queue.begin(item) else { continue };
            let outcome = self.send(&body);
            self.queue.settle(item, &outcome.settled);
            let name = &self.name;
            earliest = match outcome.settled {
                Settled::Sent => {
                    if failures > 0 {
                        tracing::info!(sink = name, "profiles arrive again");
                    }
                    failures = 0;
                    None
                }
                Settled::GivenUp(_) => {
                    tracing::error!(sink = name, error = outcome.why, "a profile was refused");
                    None
                }
                Settled::Kept | Settled::Unknown => {
                    let wait = outcome.wait.unwrap_or_else(|| pause(failures, fastrand::f64()));
                    // Once for each outage, and then only for whoever looks closely.
                    if failures == 0 {
                        tracing::warn!(
                            sink = name,
                            error = outcome.why,
                            "profiles do not arrive; they are kept and sent later"
                        );
                    } else {
                        tracing::debug!(sink = name, error = outcome.why, wait_s = wait.as_secs_f64(), "not yet");
                    }
                    failures = failures.saturating_add(1);
                    Some(Instant::now() + wait)
                }
            };
        }
    }

    fn send(&self, body: &[u8]) -> Outcome {
        match &self.way {
            Way::Http(client) => client.send(body),
            Way::Directory(writer) => match writer.write(body) {
                Ok(()) => Outcome { settled: Settled::Sent, why: String::new(), wait: None },
                Err(why) => Outcome { settled: Settled::Kept, why, wait: None },
            },
        }
    }
}

/// How long to wait after so many failures: between half and the whole of a doubling time, so that machines do not come back in step.
fn pause(failures: u32, random: f64) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << failures.min(16)).min(LONGEST_WAIT);
    doubled.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        assert_eq!((pause(0, 0.0), pause(0, 1.0)), (Duration::from_millis(250), Duration::from_millis(500)));
        assert_eq!(pause(3, 1.0), Duration::from_secs(4));
        assert_eq!((pause(u32::MAX, 0.0), pause(99, 1.0)), (LONGEST_WAIT / 2, LONGEST_WAIT));
    }
}
