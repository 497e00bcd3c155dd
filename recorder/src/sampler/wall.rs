//! Wall-clock sessions: every thread is looked at on every tick, and the elapsed time since the last look goes to the stack it is at.
//!
//! A thread whose CPU clock did not change has not run, so it is where it was: counted, not disturbed. A thread that blocks in a system call is walked from outside. Only a thread that
//! runs gets a signal, and takes its stack itself: at the next tick of the kernel's clock that finds it on a processor ([`asking`]).
//!
//! # What a look stands for
//! The kernel tells how much of the elapsed time the thread was on a processor (its CPU clock) and how much it waited for one (`schedstat`); the rest it was blocked. Each part goes to the
//! stack that the thread has in that state: now, or at the next look that finds it there. So a thread's values sum to the elapsed time, and those on the CPU to its CPU time, at any rate.
//!
//! # Many threads
//! Threads that have not run for a while are looked at in turn, so many a second whatever their number. What they are given stays exact: the time since each was looked at last. While everybody sleeps, ticks are fewer, too.
//!
//! # Threads that come and go
//! The first look at a new thread gives it the time since it began, as the kernel notes that; its end, if it is registered, tells the rest ([`super::ended`]). So a thread has the
//! time for which it existed, however late the sampler comes, and one that no look found has its time without a stack.

use super::asking::When;
use super::ended::{End, Taker};
use super::entering::Entering;
use super::parts::Parts;
use super::status::{Blocked, Status, Task};
use super::{account, action, asking, handler, outside, tasks};
use crate::{own, start};
use capture::clock;
use capture::syscall::getpid;
use capture::thread::{self, ThreadState};
use layout::{Frame, Pseudo, RecordId, State, Truncated};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Looks a second at threads that do not run: one at each, within these limits.
const IDLE_LOOKS_PER_SECOND: [u64; 2] = [1000, 2000];
/// Periods that a tick may wait while everybody sleeps, and ticks that there are at least until all idle threads had their turn.
const PERIODS_ASLEEP: u32 = 4;
/// How long a thread that runs may leave a question unanswered: more than two ticks of the slowest of clocks. One that asks for its own CPU time all the time is found by few of them.
const PATIENCE_NS: u64 = 25_000_000;
/// Looks without a change after which a thread does not run.
const STILL: u32 = 4;

/// What is known of a thread.
struct Watched {
    task: Task,
    record: RecordId,
    /// A record that was made for it because it was not registered: what was entered before it was keeps that one.
    made: Option<RecordId>,
    /// Looks at it while it was awake, counted up to two. It may be registered, and get its name, after those of a tick were asked for and before the first look.
    looks: u8,
    /// Its state, which another thread may have since: see [`Watched::state`].
    known: Option<&'static ThreadState>,
    cpu_ns: u64,
    looked_ns: u64,
    /// When its CPU clock was read.
    asked_ns: u64,
    /// Looks since its CPU clock changed.
    still: u32,
    /// Whether it waits for its turn among those that do not run.
    idle: bool,
    /// Since when it has been asked and has not answered.
    unanswered_ns: Option<u64>,
    /// Whether it was asked before it was registered.
    is_asked: bool,
    /// The leaf node of the stack at which it blocks.
    blocked: Option<RecordId>,
    /// Time of a state in which it was not found yet.
    owed: Parts,
    /// Its end was told: the kernel may list it for a while.
    ended: bool,
}

/// Clients that want to see running threads too, which takes signals.
static WITH_RUNNING: AtomicUsize = AtomicUsize::new(0);

/// One of these clients, until dropped.
pub(crate) struct WithRunning(());

impl WithRunning {
    pub(crate) fn new() -> Self {
        WITH_RUNNING.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for WithRunning {
    fn drop(&mut self) {
        WITH_RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A wall-clock session.
pub(crate) struct Watch {
    threads: FxHashMap<u32, Watched>,
    /// Those that are looked at on every tick. What ended may still be there, until its turn.
    awake: Vec<u32>,
    /// Those that did not run for a while, in the order of their turns. As above.
    idle: VecDeque<u32>,
    begun_ns: u64,
    /// When the last tick began.
    looked_ns: u64,
    ends: Taker,
    others: Others,
    listing: tasks::Listing,
    entering: Entering,
}

/// Whether any thread ran but the recorder's own, as the process's CPU clock tells: asked once for as many looks as there are idle threads, it saves all of them while everybody sleeps.
#[derive(Default)]
struct Others {
    /// Most that they can have run up to the time when they were found to have run.
    cpu_ns: u64,
    /// When that was. Who was asked since then has not run until the last time that all were.
    ran_ns: u64,
    /// Looks until all are asked again.
    looks: usize,
}

impl Others {
    /// So many looks are due, of so many idle threads.
    fn ask(&mut self, due: usize, idle: usize, now: u64) {
        if due < self.looks {
            self.looks -= due;
            return;
        }
        self.looks = idle;
        // Between the two they have run as well: both bounds hold.
        let (before, process, after) = (own::spent_ns(), clock::process_cpu_ns(), own::spent_ns());
        if process.saturating_sub(after) > self.cpu_ns {
            (self.cpu_ns, self.ran_ns) = (process.saturating_sub(before), now);
        }
    }
}

impl Watch {
    /// Begins to look. `None` if the handler cannot be installed.
    pub(crate) fn start() -> Option<Self> {
        if !action::install() {
            return None;
        }
        capture::rules::set_up();
        capture::modules::refresh();
        capture::modules::prepare_for_handlers();
        handler::arm_wall(true);
        handler::expect_bare_signals(true);
        let entering = Entering::new();
        let ends = Taker::new();
        let now = clock::monotonic_ns();
        let mut watch = Self {
            threads: FxHashMap::default(),
            awake: Vec::new(),
            idle: VecDeque::new(),
            begun_ns: now,
            looked_ns: now,
            ends,
            others: Others::default(),
            listing: tasks::Listing::new(),
            entering,
        };
        for tid in watch.listing.anew(now) {
            watch.awake.push(tid);
            watch.threads.insert(tid, Watched::new(tid, watch.entering.state(tid), now));
        }
        Some(watch)
    }

    /// All is looked at since the process began, when its first thread's CPU clock was `cpu_ns`: a new process may be at work for a while before this thread gets a processor.
    pub(crate) fn since(mut self, begun_ns: u64, cpu_ns: u64) -> Self {
        let now = std::mem::replace(&mut self.begun_ns, begun_ns);
        for (&tid, watched) in &mut self.threads {
            if tid == getpid() {
                (watched.looked_ns, watched.cpu_ns) = (begun_ns, cpu_ns);
            } else {
                watched.begins_within(tid, [begun_ns, begun_ns, now]);
            }
        }
        self
    }

    /// Looks at every thread that may have run.
    pub(crate) fn tick(&mut self) {
        self.look(false);
    }

    fn look(&mut self, at_all: bool) {
        let now = clock::monotonic_ns();
        (self.entering.now_ns, self.entering.states) = (now, None);
        self.list(now, at_all);
        let since = now.saturating_sub(std::mem::replace(&mut self.looked_ns, now));
        let [least, most] = IDLE_LOOKS_PER_SECOND;
        let a_second = u64::try_from(self.idle.len()).unwrap_or(most).clamp(least, most);
        let turns = usize::try_from(since.saturating_mul(a_second).div_ceil(1_000_000_000));
        let turns = turns.ok().filter(|_| !at_all).map_or(self.idle.len(), |turns| turns.min(self.idle.len()));
        self.others.ask(turns, self.idle.len(), now);
        let whose_turn: Vec<u32> = self.idle.drain(..turns).collect();
        let ran_ns = self.others.ran_ns;
        let with_running = WITH_RUNNING.load(Ordering::Acquire) != 0;
        let Self { threads, awake, idle, entering, .. } = self;
        // Whether it is idle now; `None` if it ended, which an idle thread may have done before another got its number.
        let mut look = |tid: u32, was_idle: bool| {
            let watched = threads.get_mut(&tid).filter(|watched| watched.idle == was_idle && !watched.ended)?;
            if was_idle && !at_all && watched.asked_ns >= ran_ns {
                watched.sleeps_on(tid, now, entering);
                return Some(true);
            }
            watched.asked_ns = now;
            let wanted = with_running.then_some(if at_all { When::Now } else { When::AtATick });
            watched.look(tid, now, wanted, entering);
            if at_all {
                watched.name(tid);
            }
            watched.idle = watched.is_idle();
            Some(watched.idle)
        };
        awake.retain(|tid| match look(*tid, false) {
            Some(true) => {
                idle.push_back(*tid);
                false
            }
            awake => awake.is_some(),
        });
        for tid in whose_turn {
            match look(tid, true) {
                Some(true) => idle.push_back(tid),
                Some(false) => awake.push(tid),
                None => {}
            }
        }
    }

    /// Time until the next tick, at most one in a period. While everybody sleeps there is little to find out, and to wake up for it takes longer than all else: with many threads, whether any of them ran
    /// is asked less often than that.
    pub(crate) fn pause(&self, period: Duration) -> Duration {
        let next = self.idle.front().and_then(|tid| self.threads.get(tid));
        // All were asked since any was found to have run: so was the one whose turn it is, and the others were after it.
        let all_sleep = self.awake.is_empty() && next.is_some_and(|watched| watched.asked_ns >= self.others.ran_ns);
        let [least, _] = IDLE_LOOKS_PER_SECOND;
        let round = Duration::from_nanos(self.idle.len() as u64 * (1_000_000_000 / least));
        if all_sleep { (round / PERIODS_ASLEEP).clamp(period, period * PERIODS_ASLEEP) } else { period }
    }

    fn list(&mut self, now: u64, at_all: bool) {
        let before_ns = self.listing.listed_ns;
        // A thread that took another's place may not have been listed yet.
        let listed = if at_all { Some(self.listing.anew(now)) } else { self.listing.changed(now) };
        // After the listing: who is not there any more has told its end.
        self.take_ends();
        let Some(listed) = listed else { return };
        let listed_ns = clock::monotonic_ns();
        let Self { threads, awake, entering, begun_ns, .. } = self;
        threads.retain(|tid, watched| {
            // Another thread may have got the number of one that ended, which the kernel may list for a while.
            let is_another = |state: &ThreadState| state.tid() == *tid && !account::is_closed(state);
            let lives = listed.contains(tid) && !(watched.ended && entering.state(*tid).is_some_and(is_another));
            if !lives && !watched.ended {
                watched.task.release(&mut entering.descriptors);
                watched.vanish(*tid, entering);
            }
            lives
        });
        thread::retire_ended_guests(|tid| listed.contains(&tid));
        for tid in listed {
            threads.entry(tid).or_insert_with(|| {
                awake.push(tid);
                let mut watched = Watched::new(tid, entering.state(tid), now);
                watched.begins_within(tid, [*begun_ns, before_ns, listed_ns]);
                watched
            });
        }
    }

    /// Gives threads that ended their last time.
    fn take_ends(&mut self) {
        let Self { threads, entering, begun_ns, .. } = self;
        for end in self.ends.take() {
            // No look found it, or only another before it that had its number.
            let new = || Watched::unknown(end.tid, end.began_ns.max(*begun_ns));
            let watched = threads.entry(end.tid).or_insert_with(new);
            if watched.ended {
                *watched = new();
            }
            watched.end(end, entering);
        }
    }

    /// Looks at all threads: what elapsed up to now is accounted for, but for those that run, which tell it themselves in a moment.
    pub(crate) fn settle(&mut self) {
        self.look(true);
        self.take_ends();
    }

    /// Looks a last time, so that each thread's values sum to the elapsed time.
    pub(crate) fn stop(mut self) {
        self.look(true);
        asking::wait_for_answers();
        thread::each(asking::forget);
        handler::arm_wall(false);
        handler::expect_bare_signals(false);
        // Whoever takes it first, a thread that was asked or this one, has the time.
        let Self { threads, entering, .. } = &mut self;
        thread::each(|state| {
            let is_blocked = threads.get(&state.tid()).is_some_and(|watched| watched.blocked.is_some());
            // It had no time to answer, or does not.
            let reason = if is_blocked { Truncated::BetweenLooks } else { Truncated::StackUnreadable };
            entering.unanswered(state, reason);
        });
        asking::wait_for_who_answers();
        self.ends.wait();
        // Who ended meanwhile was not looked at any more.
        self.take_ends();
        for (tid, watched) in self.threads.iter_mut().filter(|(_, watched)| !watched.ended) {
            if watched.owed.off_cpu != 0 {
                // A wait that was under way at the last look may be over.
                let waited = watched.task.waited(&mut self.entering.descriptors);
                watched.owed.pass(0, 0, waited, false, false);
            }
            watched.settle(*tid, &mut self.entering);
        }
    }
}

impl Watched {
    /// A thread that is looked at from now on.
    fn new(tid: u32, known: Option<&'static ThreadState>, now: u64) -> Self {
        let made = if known.is_none() { thread::record_for(tid, &tasks::name(tid)) } else { None };
        let record = known.map(ThreadState::record_id).or(made).unwrap_or(RecordId::NONE);
        let new = Self::unknown(tid, now);
        Self { cpu_ns: new.task.cpu_ns(), record, made, known, ..new }
    }

    fn unknown(tid: u32, since_ns: u64) -> Self {
        Self {
            task: Task::new(tid),
            record: RecordId::NONE,
            made: None,
            looks: 0,
            known: None,
            cpu_ns: 0,
            looked_ns: since_ns,
            asked_ns: since_ns,
            still: 0,
            idle: false,
            unanswered_ns: None,
            is_asked: false,
            blocked: None,
            owed: Parts::default(),
            ended: false,
        }
    }

    /// It is new: all that it did since `begun_ns` is counted. It was listed at `last_ns`, and not at `first_ns`, though it may have been left out.
    fn begins_within(&mut self, tid: u32, [begun_ns, first_ns, last_ns]: [u64; 3]) {
        let registered_ns = self.known.map(|state| state.registered_ns.load(Ordering::Relaxed));
        let began_ns = tasks::began(tid).map_or(last_ns, |(first, last)| match registered_ns {
            Some(registered_ns) => registered_ns.clamp(first, last),
            // It has waited for a processor since it was made, or has just got one.
            None if self.cpu_ns == 0 || start::registers_threads_at_once() => last.max(first_ns),
            None => u64::midpoint(first, last).max(first_ns),
        });
        self.looked_ns = began_ns.min(last_ns.saturating_sub(self.cpu_ns)).max(begun_ns);
        (self.cpu_ns, self.task) = (0, Task::from_its_beginning(tid));
    }

    fn is_idle(&self) -> bool {
        self.still >= STILL && self.blocked.is_some()
    }

    /// The thread's state, if it is registered.
    fn state(&mut self, tid: u32, entering: &mut Entering) -> Option<&'static ThreadState> {
        if self.known.is_none_or(|state| state.tid() != tid) {
            self.known = entering.state(tid);
        }
        self.known
    }

    /// Whose values these are, and its name, which a thread may have changed while it ran: most get theirs after they began.
    fn identify(&mut self, tid: u32, state: Option<&'static ThreadState>) {
        // It may have been registered since: both of its records are one thread's.
        self.record = state.map_or(self.record, ThreadState::record_id);
        if self.looks != 0 {
            self.name(tid);
        }
        self.looks = self.looks.saturating_add(1).min(2);
    }

    /// Notes the name that it has now.
    fn name(&self, tid: u32) {
        if let Some(made) = self.made {
            thread::rename_record(made, &tasks::name(tid));
        }
    }

    fn look(&mut self, tid: u32, now: u64, running: Option<When>, entering: &mut Entering) {
        let cpu_ns = self.task.cpu_ns();
        if cpu_ns == 0 && self.cpu_ns != 0 {
            // It ended a moment ago: that is told next time.
            return;
        }
        let ran = cpu_ns.saturating_sub(self.cpu_ns);
        let is_identified = self.known.is_some() || self.looks == 2;
        if ran == 0 && self.blocked.is_some() && is_identified {
            self.still = self.still.saturating_add(1);
            if self.still == STILL {
                self.task.release(&mut entering.descriptors);
            }
            return self.sleeps_on(tid, now, entering);
        }
        let elapsed = self.elapsed(now);
        self.still = 0;
        self.cpu_ns = cpu_ns;
        let before = self.blocked.take();
        let status = self.task.status(&mut entering.descriptors);
        let runs = status == Status::Running;
        let waited = self.task.waited(&mut entering.descriptors);
        self.owed.pass(elapsed, ran, waited, runs, before.is_none());
        if running.is_none() {
            // Nobody wants it, and who does from some time on has no part in what was before.
            self.owed.take_running();
        }
        // After the status: a thread that blocks keeps its labels.
        let state = self.state(tid, entering);
        self.identify(tid, state);
        entering.recording.labels = state.map_or(RecordId::NONE, ThreadState::label_set);
        self.blocked = match status {
            Status::Running => None,
            Status::Blocked(at) => self.enter_blocked(at, entering),
            // It is not asked: a signal would break off what it waits in, or make it wait anew.
            Status::Hidden => entering.enter_without_stack(self.record, Truncated::StackUnreadable, State::OffCpu),
        };
        if let Some(node) = self.blocked {
            entering.add(self.record, tid, node, 1, self.owed.take_off_cpu());
        } else if let Some(node) = before {
            // Where it blocked before it ran.
            entering.add(self.record, tid, node, 0, self.owed.take_off_cpu());
        }
        if let Some(when) = running {
            let when = if runs && self.is_left_alone(state, now) { When::Now } else { when };
            self.ask(tid, state, runs, when);
        }
    }

    /// Whether no tick has found it since it was asked, for too long.
    fn is_left_alone(&mut self, state: Option<&'static ThreadState>, now: u64) -> bool {
        if !state.is_some_and(account::is_asked) {
            self.unanswered_ns = None;
            return false;
        }
        now.saturating_sub(*self.unanswered_ns.get_or_insert(now)) > PATIENCE_NS
    }

    /// Asks the thread where its time on a processor went, and what it waited for one.
    fn ask(&mut self, tid: u32, state: Option<&'static ThreadState>, runs: bool, when: When) {
        let asked = self.owed.take_running();
        let is_given = match state {
            Some(state) => asking::ask_for(tid, state, asked, runs, when),
            None => {
                // The signal registers the thread, and the next one counts.
                if runs {
                    self.is_asked |= asking::ask(tid, self.is_asked);
                }
                false
            }
        };
        if !is_given {
            self.owed.add_running(asked);
        }
    }

    /// It did not run: it is where it was.
    fn sleeps_on(&mut self, tid: u32, now: u64, entering: &mut Entering) {
        let elapsed = self.elapsed(now);
        if let Some(node) = self.blocked {
            entering.add(self.record, tid, node, 1, elapsed);
        }
    }

    /// Time since the last look.
    fn elapsed(&mut self, now: u64) -> u64 {
        let since = self.looked_ns;
        // A new thread may have begun after the look did.
        self.looked_ns = now.max(since);
        now.saturating_sub(since)
    }

    /// It ended: what it did since the last look goes to where it was then, or to no stack.
    fn end(&mut self, end: End, entering: &mut Entering) {
        self.task.release(&mut entering.descriptors);
        (self.record, self.ended) = (end.record, true);
        if let Some(made) = self.made {
            thread::rename_record(made, &thread::recorded_name(end.record));
        }
        let elapsed = self.elapsed(end.ended_ns);
        let before = self.blocked.take();
        let ran_before = before.is_none();
        self.owed.pass(elapsed, end.cpu_ns.saturating_sub(self.cpu_ns), None, ran_before, ran_before);
        if let Some(node) = before {
            entering.add(self.record, end.tid, node, 0, self.owed.take_off_cpu());
        }
        self.owed.add_running(end.asked_ns);
        self.settle(end.tid, entering);
    }

    /// It is not there any more, and did not tell its end.
    fn vanish(&mut self, tid: u32, entering: &mut Entering) {
        if let Some(state) = self.known.filter(|state| state.tid() == tid && state.is_guest()) {
            self.owed.add_running(account::take(state));
            asking::forget(state);
        }
        self.settle(tid, entering);
    }

    /// Enters the stack at which the thread blocks. `None` if it moved meanwhile, or the store is full.
    fn enter_blocked(&mut self, at: Blocked, entering: &mut Entering) -> Option<RecordId> {
        outside::capture(&mut entering.recording, at);
        // What was read is one stack if the thread did not run while it was read.
        let still =
            self.task.cpu_ns() == self.cpu_ns || self.task.status(&mut entering.descriptors) == Status::Blocked(at);
        let state = Frame::pseudo(Pseudo::State(State::OffCpu));
        let call = at.call.map(|number| Frame::pseudo(Pseudo::SystemCall(number)));
        let leaves: Vec<Frame> = std::iter::once(state).chain(call).collect();
        if still { entering.enter(self.record, &leaves) } else { None }
    }

    /// Enters what is owed: time of a state in which nobody saw the thread.
    fn settle(&mut self, tid: u32, entering: &mut Entering) {
        entering.recording.labels = RecordId::NONE;
        let ((on_cpu, runnable), off_cpu) = (self.owed.take_running(), self.owed.take_off_cpu());
        for (state, time) in [(State::OnCpu, on_cpu), (State::Runnable, runnable), (State::OffCpu, off_cpu)] {
            entering.without_stack(self.record, tid, Truncated::BetweenLooks, state, time);
        }
    }
}

#[cfg(test)]
mod tests;
