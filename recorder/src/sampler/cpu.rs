//! CPU sessions in a running process: a timer for each thread.
//!
//! A thread that begins during a session starts its own when it is registered, at its first allocation; all others are found in the list of threads. A thread that can have no timer
//! (RLIMIT_SIGPENDING is used up) is sent a tick whenever its CPU clock moved on by a period.

use super::{action, asking, handler, tasks, timers};
use capture::syscall::{CpuTimer, clock_ns, thread_cpu_clock};
use capture::thread::{self, ThreadState};
use capture::tree::Tree;
use capture::{clock, region};
use layout::{Lost, RecordId};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// The timers of a session.
pub(crate) struct Timers {
    period_ns: u64,
    /// That the running ones send.
    signal: i32,
    running: HashMap<u32, Armed>,
    free: Vec<usize>,
    listing: tasks::Listing,
    /// Threads for which no timer could be made.
    refused: HashMap<u32, Refused>,
    /// Threads beyond the number of slots, each of which is counted as one without a timer.
    beyond: HashSet<u32>,
}

struct Armed {
    timer: CpuTimer,
    slot: usize,
}

/// A thread without a timer.
struct Refused {
    slot: usize,
    /// CPU clock when it was sent a tick last.
    cpu_ns: u64,
    /// Whether it was sent one before it was registered.
    is_asked: bool,
}

impl Timers {
    /// Starts a timer for every thread. `None` if the handler cannot be installed.
    pub(crate) fn start(period_ns: u64) -> Option<Self> {
        if !action::install() {
            return None;
        }
        capture::rules::set_up();
        capture::modules::refresh();
        capture::modules::prepare_for_handlers();
        handler::arm_cpu(true);
        handler::expect_bare_signals(true);
        let free = (1..handler::SLOTS).rev().collect();
        let mut timers = Self {
            period_ns,
            signal: action::signal(),
            running: HashMap::new(),
            free,
            listing: tasks::Listing::new(),
            refused: HashMap::new(),
            beyond: HashSet::new(),
        };
        timers.rescan();
        timers::arm_new_threads(period_ns);
        Some(timers)
    }

    /// Finds threads that began or ended since. Whether there were any.
    pub(crate) fn rescan(&mut self) -> bool {
        self.renew();
        let Some(listed) = self.listing.changed(clock::monotonic_ns()) else { return false };
        let before = self.running.len() + self.refused.len();
        let free = &mut self.free;
        self.running.retain(|tid, armed| {
            let alive = listed.contains(tid);
            if !alive {
                armed.timer.delete();
                free.push(armed.slot);
            }
            alive
        });
        self.refused.retain(|tid, refused| {
            let alive = listed.contains(tid);
            if !alive {
                free.push(refused.slot);
            }
            alive
        });
        // While elapsed time is recorded too, they are asked whether they ran.
        if !handler::is_wall_armed() {
            thread::retire_ended_guests(|tid| listed.contains(&tid));
        }
        self.beyond.retain(|tid| listed.contains(tid));
        let mut changed = self.running.len() + self.refused.len() != before;
        let by_themselves = timers::armed_by_themselves();
        for tid in listed {
            let known = self.running.contains_key(&tid) || self.refused.contains_key(&tid);
            if !known && !by_themselves.contains(&tid) {
                changed |= self.arm(tid);
            }
        }
        changed
    }

    /// Whether the thread is new.
    fn arm(&mut self, tid: u32) -> bool {
        let Some(slot) = self.free.pop() else {
            let is_new = self.beyond.insert(tid);
            if is_new {
                region::lose(Lost::NoTimer, 1, 0);
            }
            return is_new;
        };
        self.beyond.remove(&tid);
        let cpu_ns = clock_ns(thread_cpu_clock(tid));
        handler::set_baseline(slot, cpu_ns);
        let first = timers::first_tick(self.period_ns, tid, cpu_ns);
        match CpuTimer::start(tid, self.signal, handler::value(slot), first, self.period_ns) {
            Ok(timer) => {
                self.running.insert(tid, Armed { timer, slot });
            }
            Err(_) => {
                self.refused.insert(tid, Refused { slot, cpu_ns, is_asked: false });
            }
        }
        true
    }

    /// Has the timers send another signal if ours is another now.
    fn renew(&mut self) {
        let signal = action::signal();
        if std::mem::replace(&mut self.signal, signal) == signal {
            return;
        }
        for (tid, Armed { timer, slot }) in &mut self.running {
            let first = timers::first_tick(self.period_ns, *tid, clock_ns(thread_cpu_clock(*tid)));
            if let Ok(new) = CpuTimer::start(*tid, signal, handler::value(*slot), first, self.period_ns) {
                std::mem::replace(timer, new).delete();
            }
        }
    }

    /// Whether there are threads without a timer, which [`Timers::ask`] is for.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Sends a tick to each thread without a timer that ran for a period since the last one.
    pub(crate) fn ask(&mut self) {
        let states = registered();
        for (tid, refused) in &mut self.refused {
            let cpu_ns = clock_ns(thread_cpu_clock(*tid));
            if cpu_ns.saturating_sub(refused.cpu_ns) < self.period_ns {
                continue;
            }
            refused.cpu_ns = cpu_ns;
            match states.get(tid) {
                Some(state) => asking::ask_for_cpu(state, refused.slot as u32),
                // This signal registers the thread if it comes with its value; what it used until the next is that one's.
                None => refused.is_asked |= asking::ask(*tid, refused.is_asked),
            }
        }
    }

    /// Ends all timers, and gives each thread's CPU time since its last sample to the stack of that sample.
    pub(crate) fn stop(self, tree: &mut Tree) {
        self.running.values().for_each(|armed| armed.timer.delete());
        timers::disarm_new_threads();
        handler::arm_cpu(false);
        handler::expect_bare_signals(false);
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

/// Threads that are registered.
fn registered() -> HashMap<u32, &'static ThreadState> {
    let mut states = HashMap::new();
    thread::each(|state| {
        states.insert(state.tid(), state);
    });
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_beyond_the_limit_is_counted_once() {
        assert!(crate::start::in_library(0));
        let mut timers = Timers {
            period_ns: 1_000_000_000,
            signal: action::signal(),
            running: HashMap::new(),
            free: Vec::new(),
            listing: tasks::Listing::new(),
            refused: HashMap::new(),
            beyond: HashSet::new(),
        };
        let tid = capture::syscall::gettid();
        assert!(timers.arm(tid), "new");
        assert!(!timers.arm(tid), "counted before");
        timers.free.push(1);
        assert!(timers.arm(tid) && timers.beyond.is_empty(), "there is room for it now");
        timers.running.values().for_each(|armed| armed.timer.delete());
    }
}
