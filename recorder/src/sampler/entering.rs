//! Where a wall-clock session enters what it saw from outside: stacks of blocked threads, and time that has no stack.

use super::account;
use super::status::Descriptors;
use capture::region::LogCursor;
use capture::thread::{self, ThreadState};
use capture::tree::Place;
use capture::walk;
use layout::{Frame, Pseudo, RecordId, Root, State, Truncated};
use std::collections::HashMap;

/// Where stacks are entered that were taken from outside.
pub(super) struct Entering {
    pub(super) recording: Box<thread::Recording>,
    log: LogCursor,
    pub(super) descriptors: Descriptors,
    /// When this tick began, by CLOCK_MONOTONIC.
    pub(super) now_ns: u64,
    /// Threads that are registered, once they were asked for at this tick.
    pub(super) states: Option<HashMap<u32, &'static ThreadState>>,
}

impl Entering {
    pub(super) fn new() -> Self {
        Self {
            recording: Box::default(),
            log: LogCursor::new(),
            descriptors: Descriptors::new(),
            now_ns: 0,
            states: None,
        }
    }

    /// The state of a thread, if it is registered.
    pub(super) fn state(&mut self, tid: u32) -> Option<&'static ThreadState> {
        self.states.get_or_insert_with(states).get(&tid).copied()
    }

    /// Adds time to a node that was entered before.
    pub(super) fn add(&mut self, watched: RecordId, tid: u32, node: RecordId, samples: u64, elapsed_ns: u64) {
        if elapsed_ns == 0 {
            return;
        }
        if self.recording.tree.add_time(node, samples, elapsed_ns) {
            super::log(&mut self.log, self.now_ns, watched, tid, node, elapsed_ns);
        } else {
            capture::region::lose(layout::Lost::TimeStoreFull, samples, elapsed_ns);
        }
    }

    /// Enters the captured stack with `leaves` below it.
    pub(super) fn enter(&mut self, thread: RecordId, leaves: &[Frame]) -> Option<RecordId> {
        let recording = &mut *self.recording;
        let root = recording.tree.child(Place::NOWHERE, Frame::pseudo(Pseudo::Root(Root::Wall, thread)))?;
        let below = match recording.labels {
            RecordId::NONE => root,
            set => recording.tree.child(root, Frame::pseudo(Pseudo::Labels(set)))?,
        };
        let mut place = walk::intern_below(recording, below)?;
        for leaf in leaves {
            place = recording.tree.child(place, *leaf)?;
        }
        Some(place.node())
    }

    /// Enters what the thread was asked for and has not answered.
    pub(super) fn unanswered(&mut self, state: &ThreadState, reason: Truncated) {
        let (on_cpu, runnable) = account::take(state);
        self.recording.labels = state.label_set();
        for (of, time) in [(State::OnCpu, on_cpu), (State::Runnable, runnable)] {
            self.without_stack(state.record_id(), state.tid(), reason, of, time);
        }
    }

    /// Enters time of a state without a stack, for this reason.
    pub(super) fn without_stack(
        &mut self,
        thread: RecordId,
        tid: u32,
        reason: Truncated,
        state: State,
        elapsed_ns: u64,
    ) {
        if elapsed_ns == 0 {
            return;
        }
        match self.enter_without_stack(thread, reason, state) {
            Some(node) => self.add(thread, tid, node, 1, elapsed_ns),
            None => capture::region::lose(layout::Lost::TimeStoreFull, 1, elapsed_ns),
        }
    }

    pub(super) fn enter_without_stack(
        &mut self,
        thread: RecordId,
        reason: Truncated,
        state: State,
    ) -> Option<RecordId> {
        self.recording.depth = 0;
        self.enter(thread, &[Frame::pseudo(Pseudo::Truncated(reason)), Frame::pseudo(Pseudo::State(state))])
    }
}

/// Threads that are registered.
fn states() -> HashMap<u32, &'static ThreadState> {
    let mut states = HashMap::new();
    thread::each(|state| {
        states.insert(state.tid(), state);
    });
    states
}
