//! CPU sessions in a running process: a timer for each thread, started from outside.

use super::{handler, tasks};
use capture::syscall::{CpuTimer, clock_ns, thread_cpu_clock};
use capture::tree::Tree;
use capture::{region, thread};
use layout::{Lost, RecordId};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// The timers of a session.
pub(crate) struct Timers {
    period_ns: u64,
    running: HashMap<u32, Armed>,
    free: Vec<usize>,
    /// Threads for which no timer could be made.
    refused: HashSet<u32>,
}

struct Armed {
    timer: CpuTimer,
    slot: usize,
}

impl Timers {
    /// Starts a timer for every thread. `None` if the handler cannot be installed.
    pub(crate) fn start(period_ns: u64) -> Option<Self> {
        if !handler::install() {
            return None;
        }
        capture::rules::set_up();
        capture::modules::refresh();
        capture::modules::prepare_for_handlers();
        handler::arm_cpu(true);
        let free = (1..handler::SLOTS).rev().collect();
        let mut timers = Self { period_ns, running: HashMap::new(), free, refused: HashSet::new() };
        timers.rescan();
        Some(timers)
    }

    /// Finds threads that began or ended since.
    pub(crate) fn rescan(&mut self) {
        let listed: HashSet<u32> = tasks::list().into_iter().collect();
        self.running.retain(|tid, armed| {
            let alive = listed.contains(tid);
            if !alive {
                armed.timer.delete();
                self.free.push(armed.slot);
            }
            alive
        });
        self.refused.retain(|tid| listed.contains(tid));
        for tid in listed {
            if self.running.contains_key(&tid) || self.refused.contains(&tid) {
                continue;
            }
            let Some(slot) = self.free.pop() else { return };
            handler::set_baseline(slot, clock_ns(thread_cpu_clock(tid)));
            match CpuTimer::start(tid, handler::SIGNAL, handler::value(slot), self.period_ns, self.period_ns) {
                Ok(timer) => {
                    self.running.insert(tid, Armed { timer, slot });
                }
                Err(_) => {
                    self.free.push(slot);
                    self.refused.insert(tid);
                    region::lose(Lost::NoTimer, 1, 0);
                }
            }
        }
    }

    /// Ends all timers, and gives each thread's CPU time since its last sample to the stack of that sample.
    pub(crate) fn stop(self, tree: &mut Tree) {
        self.running.values().for_each(|armed| armed.timer.delete());
        handler::arm_cpu(false);
        let session = handler::session();
        thread::each(|state| {
            let last = RecordId(state.last_node.load(Ordering::Relaxed));
            let clock = clock_ns(thread_cpu_clock(state.tid()));
            if state.session.load(Ordering::Relaxed) != session || last.is_none() || clock == 0 {
                return;
            }
            let tail = clock.saturating_sub(state.sampled_cpu_ns.swap(clock, Ordering::Relaxed));
            if let Some(place) = tree.copy(last).filter(|_| tail > 0) {
                tree.add_time(place.node(), 0, tail);
            }
        });
    }
}
