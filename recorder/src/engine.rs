//! What several clients share: the sampling thread of a time mode, and the allocation interval in force.

use crate::lock::Lock;
use crate::sampler::{self, cpu, wall};
use crate::session::SessionError;
use crate::{last_thread, objects, own, rights};
use alloc_hook::record;
use capture::region;
use capture::tree::Tree;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A kind of time sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Cpu,
    Wall,
}

struct Running {
    hz: u32,
    users: Users,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Asks the thread to account for all time up to now, and to say when it has.
    settle: Sender<Sender<()>>,
}

impl Running {
    /// To be called without the lock that this is in: it takes a while.
    fn settling(&self) -> impl FnOnce() + use<> {
        let (said, is_done) = channel();
        let asked =
            self.thread.as_ref().filter(|_| self.settle.send(said).is_ok()).map(|thread| thread.thread().clone());
        move || {
            if let Some(thread) = asked {
                thread.unpark();
                // A thread that ends has settled everything.
                let _ = is_done.recv();
            }
        }
    }
}

/// Who uses something together: when each of them will leave, if nobody cuts it off before.
#[derive(Default)]
struct Users(Vec<Instant>);

impl Users {
    fn enter(&mut self, ends: Instant) {
        self.0.push(ends);
    }

    /// Takes one off; whether nobody is left.
    fn leave(&mut self, ends: Instant) -> bool {
        if let Some(place) = self.0.iter().position(|other| *other == ends) {
            self.0.swap_remove(place);
        }
        self.0.is_empty()
    }

    /// How long to wait until the last of them is gone.
    fn busy(&self) -> SessionError {
        let last = self.0.iter().max().map(|ends| ends.saturating_duration_since(Instant::now()));
        SessionError::Busy { retry_after: last.unwrap_or_default() }
    }
}

static CPU: Lock<Option<Running>> = Lock::new(None);
static WALL: Lock<Option<Running>> = Lock::new(None);
/// Tree of what is entered on behalf of other threads.
static TREE: Lock<Tree> = Lock::new(Tree::new());

fn slot(engine: Engine) -> &'static Lock<Option<Running>> {
    match engine {
        Engine::Cpu => &CPU,
        Engine::Wall => &WALL,
    }
}

/// One client's share; the last one to be dropped ends the sampling.
pub(crate) struct Joined(Engine, Instant);

/// Joins the sampling of a kind at this rate, and starts it if need be.
pub(crate) fn join(engine: Engine, hz: u32, window: Duration) -> Result<Joined, SessionError> {
    let mut guard = slot(engine).lock();
    let ends = Instant::now() + window;
    if let Some(running) = &mut *guard {
        if running.hz != hz {
            return Err(running.users.busy());
        }
        running.users.enter(ends);
        let settle = running.settling();
        drop(guard);
        settle();
        return Ok(Joined(engine, ends));
    }
    let others = match engine {
        Engine::Cpu => WALL.try_lock().is_none_or(|w| w.is_some()),
        Engine::Wall => CPU.try_lock().is_none_or(|c| c.is_some()),
    };
    if !others && sampler::timers::self_armed_period_ns().is_none() {
        region::recycle_log();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (settle, asked_to_settle) = channel();
    let thread = if engine == Engine::Cpu && sampler::timers::self_armed_period_ns().is_some() {
        // Every thread records itself since the start of the process: at that rate, there is nothing to do.
        let period = u64::from(1_000_000_000 / hz);
        if sampler::timers::self_armed_period_ns() != Some(period) {
            return Err(SessionError::Busy { retry_after: Duration::from_secs(60) });
        }
        None
    } else {
        Some(spawn(engine, hz, &stop, asked_to_settle)?)
    };
    *guard = Some(Running { hz, users: Users(vec![ends]), stop, thread, settle });
    Ok(Joined(engine, ends))
}

/// Joins the sampling of a kind at the rate at which it runs, or starts it at this one; also the rate in force.
pub(crate) fn join_at_any_rate(engine: Engine, hz: u32) -> Result<(Joined, u32), SessionError> {
    loop {
        let running = slot(engine).lock().as_ref().map(|running| running.hz);
        let rate = running.unwrap_or(hz);
        match join(engine, rate, Duration::ZERO) {
            Ok(joined) => return Ok((joined, rate)),
            // Another client started or ended it meanwhile.
            Err(SessionError::Busy { .. }) if slot(engine).lock().as_ref().map(|now| now.hz) != Some(rate) => {}
            Err(error) => return Err(error),
        }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let mut guard = slot(self.0).lock();
        let Some(running) = &mut *guard else { return };
        if running.users.leave(self.1) {
            running.stop.store(true, Ordering::Release);
            if let Some(thread) = running.thread.take() {
                thread.thread().unpark();
                let _ = thread.join();
            }
            *guard = None;
        } else {
            let settle = running.settling();
            drop(guard);
            settle();
        }
    }
}

fn spawn(
    engine: Engine,
    hz: u32,
    stop: &Arc<AtomicBool>,
    asked_to_settle: Receiver<Sender<()>>,
) -> Result<JoinHandle<()>, SessionError> {
    let (ready, is_ready) = channel();
    let stop = Arc::clone(stop);
    let period = Duration::from_nanos(u64::from(1_000_000_000 / hz));
    let thread = own::spawn("profrec-sampler", move || match engine {
        Engine::Cpu => {
            // The process's clock tells what is missing.
            drop(asked_to_settle);
            let timers = cpu::Timers::start(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
            let _ = ready.send(timers.is_some());
            if let Some(timers) = timers {
                sample_cpu(timers, period, &stop);
            }
        }
        Engine::Wall => {
            let watch = wall::Watch::start();
            let _ = ready.send(watch.is_some());
            if let Some(watch) = watch {
                sample_wall(watch, period, &stop, &asked_to_settle);
            }
        }
    });
    let unavailable = |what: &str| SessionError::Unavailable(what.to_owned());
    let thread = thread.map_err(|_| unavailable("the sampling thread cannot be started"))?;
    match is_ready.recv() {
        Ok(true) => Ok(thread),
        _ => Err(unavailable("the signal handler cannot be installed")),
    }
}

/// How long to wait until new threads and objects are looked for: after some were found, and when there were none for a while. To wake up costs more than to look.
const RESCAN: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(80)];

/// A handler can neither notice that objects were opened or closed nor read the list. Whether there was something to read.
fn look_at_objects() -> bool {
    objects::notice_changes();
    capture::modules::refresh_on_request()
}

fn sample_cpu(mut timers: cpu::Timers, period: Duration, stop: &AtomicBool) {
    let [soon, late] = RESCAN;
    let (mut rescanned, mut pause) = (Instant::now(), soon);
    while !stop.load(Ordering::Acquire) {
        let has_refused = timers.has_refused();
        std::thread::park_timeout(if has_refused { pause.min(period) } else { pause });
        if has_refused {
            timers.ask();
        }
        if rescanned.elapsed() >= pause {
            rescanned = Instant::now();
            let found = timers.rescan() | look_at_objects();
            pause = if found { soon } else { (pause + soon / 4).min(late) };
        }
    }
    timers.stop(&mut TREE.lock());
}

/// Once in a period until the flag is raised and the thread unparked, asks the threads that record themselves and have no timer.
pub(crate) fn ask_for_cpu(period: Duration, stop: &AtomicBool) {
    sampler::handler::expect_bare_signals(true);
    while !stop.load(Ordering::Acquire) && !region::is_stopped() {
        std::thread::park_timeout(period);
        sampler::timers::ask();
        look_at_objects();
        last_thread::end_if_alone();
        rights::repeat();
    }
    sampler::handler::expect_bare_signals(false);
}

/// Looks once in a period until the flag is raised and the thread unparked, and once more then; at all threads for a client that joins or leaves others.
pub(crate) fn sample_wall(
    mut watch: wall::Watch,
    period: Duration,
    stop: &AtomicBool,
    asked_to_settle: &Receiver<Sender<()>>,
) {
    let mut next = Instant::now() + period;
    while !stop.load(Ordering::Acquire) && !region::is_stopped() {
        // All of them: several may have unparked this thread at once.
        let asked: Vec<Sender<()>> = asked_to_settle.try_iter().collect();
        if !asked.is_empty() {
            watch.settle();
            for said in asked {
                let _ = said.send(());
            }
        }
        rights::repeat();
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            watch.tick();
            sampler::timers::ask();
            look_at_objects();
            last_thread::end_if_alone();
            // Ticks that were missed are not made up for: each look counts the time since the one before.
            next = (next + watch.pause(period)).max(Instant::now());
        } else {
            std::thread::park_timeout(left);
        }
    }
    watch.stop();
}

/// Forgets the sessions of the parent, in a child after fork.
///
/// # Safety
/// The process has one thread, which does not use this module at the moment.
#[allow(unsafe_code)]
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the function's own contract.
    let (cpu, wall, interval, tree) =
        unsafe { (CPU.take_in_child(), WALL.take_in_child(), INTERVAL.take_in_child(), TREE.take_in_child()) };
    // Threads that they name are not here.
    std::mem::forget((cpu, wall, tree));
    sampler::handler::arm_wall(false);
    if interval.is_none_or(|interval| interval.is_some()) {
        record::set_interval(CONFIGURED.load(Ordering::Relaxed));
    }
}

/// A client's hold on the allocation interval.
pub(crate) struct Sampling {
    /// Until when; `None`: it holds nothing.
    holds: Option<Instant>,
}

static INTERVAL: Lock<Option<(u64, Users)>> = Lock::new(None);

impl Sampling {
    /// Sets the interval for a window; without one, the interval in force is used.
    pub(crate) fn join(interval: Option<u64>, seconds: Option<f64>) -> Result<Self, SessionError> {
        let (Some(wanted), Some(seconds)) = (interval, seconds) else { return Ok(Self { holds: None }) };
        let ends = Instant::now() + Duration::from_secs_f64(seconds);
        let mut held = INTERVAL.lock();
        match &mut *held {
            Some((interval, users)) if *interval == wanted => users.enter(ends),
            Some((_, users)) => return Err(users.busy()),
            None => {
                CONFIGURED.store(record::interval(), Ordering::Relaxed);
                record::set_interval(wanted);
                *held = Some((wanted, Users(vec![ends])));
            }
        }
        Ok(Self { holds: Some(ends) })
    }
}

/// Samples allocations at this interval, outside of windows that ask for their own.
pub(crate) fn configure(interval: u64) {
    let held = INTERVAL.lock();
    CONFIGURED.store(interval, Ordering::Relaxed);
    if held.is_none() {
        record::set_interval(interval);
    }
}

/// The interval outside windows that ask for their own.
static CONFIGURED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Drop for Sampling {
    fn drop(&mut self) {
        let Some(ends) = self.holds else { return };
        let mut held = INTERVAL.lock();
        if held.as_mut().is_some_and(|(_, users)| users.leave(ends)) {
            record::set_interval(CONFIGURED.load(Ordering::Relaxed));
            *held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_child::in_child;

    #[test]
    #[allow(unsafe_code)]
    fn an_interval_that_is_named_during_a_window_holds_after_it() {
        assert!(crate::start::in_library(0));
        assert!(in_child(|| {
            // SAFETY: the child has one thread.
            unsafe { reset_in_child() };
            let Ok(window) = Sampling::join(Some(1), Some(1e6)) else { return false };
            configure(4096);
            let during = record::interval();
            drop(window);
            during == 1 && record::interval() == 4096
        }));
    }

    #[test]
    fn clients_that_join_at_once_need_not_wait_for_a_tick() {
        assert!(crate::start::in_library(0));
        let (ask, asked) = channel();
        let (first, second) = (channel(), channel());
        ask.send(first.0).unwrap();
        ask.send(second.0).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ends = &stop;
            let sampler = scope.spawn(move || {
                let watch = wall::Watch::start().unwrap();
                sample_wall(watch, Duration::from_secs(3600), ends, &asked);
            });
            let patience = Duration::from_secs(60);
            let answers = [first.1.recv_timeout(patience), second.1.recv_timeout(patience)];
            stop.store(true, Ordering::Release);
            sampler.thread().unpark();
            assert_eq!(answers, [Ok(()), Ok(())]);
        });
    }
}
