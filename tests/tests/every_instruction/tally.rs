//! How walks compared with the truth, by the place that they went wrong in.
//!
//! Filled in a signal handler: all memory is there from the start.

use super::report::Report;
use super::shadow::{Caller, Event};
use layout::{Frame, ModuleIndex, Pseudo, Truncated};
use std::collections::VecDeque;
use std::fmt;

const PLACES: usize = 4096;
const DIFFERENCES: usize = 16;
const MAX_FRAMES: usize = 96;
/// Walks that wait for what the function will do, and for how many instructions.
const UNDECIDED: usize = 2048;

/// The frames of one walk.
#[derive(Clone, Copy)]
pub(crate) struct Chain {
    frames: [Frame; MAX_FRAMES],
    len: usize,
}

impl Chain {
    const EMPTY: Self = Self { frames: [Frame::from_bits(0); MAX_FRAMES], len: 0 };

    /// The first frames of these.
    fn of(frames: impl Iterator<Item = Frame>) -> Self {
        let mut chain = Self::EMPTY;
        for (slot, frame) in chain.frames.iter_mut().zip(frames) {
            *slot = frame;
            chain.len += 1;
        }
        chain
    }

    fn pc(&self) -> u64 {
        self.frames().next().map_or(0, Frame::avma)
    }

    /// The frames.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> + Clone + '_ {
        self.frames[..self.len].iter().copied()
    }
}

/// What was found at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finding {
    /// The walk from this instruction is not true.
    Wrong,
    /// A walk ended at this frame, for that reason. It was true until there.
    Truncated(Truncated),
    /// The walk from this instruction says where its function will jump to, which leaves without returning: before it drops its return address.
    Early,
    /// The walk from this instruction went wrong above a function that then left for elsewhere, with its return address replaced. libgcc's unwinder
    /// copies the registers of the frame that it leaves for over its own frame, where they no longer are what the unwind information says.
    Replaced,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wrong => "wrong",
            Self::Truncated(reason) => reason.reason(),
            Self::Early => "early",
            Self::Replaced => "replaced",
        })
    }
}

/// Compares; how the walk ends early or goes wrong, and the last frame that is right.
fn compare(walk: impl Iterator<Item = Frame>, mut truth: impl Iterator<Item = Caller>) -> Option<(u64, Finding)> {
    let mut last = 0;
    for frame in walk {
        if let Some(Pseudo::Truncated(reason)) = frame.as_pseudo() {
            return Some((last, Finding::Truncated(reason)));
        }
        let equal = match truth.next() {
            Some(Caller::Called(address)) => !frame.is_instruction() && frame.avma() == address,
            Some(Caller::Interrupted(pc)) => frame.is_instruction() && frame.avma() == pc,
            None => false,
        };
        if !equal {
            return Some((last, Finding::Wrong));
        }
        last = frame.avma();
    }
    truth.next().map(|_| (last, Finding::Wrong))
}

/// A walk whose truth depends on what its function does next.
struct Undecided {
    step: u64,
    walk: Chain,
    /// The truth that it is not, if its function returns; `None` if that has dropped its return address, and only the jump will tell.
    truth: Option<Chain>,
}

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    pub(crate) calls: u64,
    pub(crate) signals: u64,
    pub(crate) left: u64,
    pub(crate) watched: u64,
    pub(crate) deepest: usize,
}

/// Counts, and what was found.
pub(crate) struct Tally {
    counts: Counts,
    /// Addresses with what was found there and how often, by their hash.
    places: Box<[Option<(u64, Finding, u64)>; PLACES]>,
    undecided: VecDeque<Undecided>,
    /// Of each instruction from which walks are wrong: the first, and the truth.
    differences: Box<[[Chain; 2]; DIFFERENCES]>,
    different: usize,
}

impl Tally {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            counts: Counts::default(),
            places: Box::new([None; PLACES]),
            undecided: VecDeque::with_capacity(UNDECIDED),
            differences: Box::new([[Chain::EMPTY; 2]; DIFFERENCES]),
            different: 0,
        }
    }

    /// Instructions so far.
    pub(crate) fn instructions(&self) -> u64 {
        self.counts.instructions
    }

    /// An instruction ran; that many calls wait. The next one is watched for, or not.
    pub(crate) fn ran(&mut self, event: Event, depth: usize, watched: bool) {
        let counts = &mut self.counts;
        counts.instructions += 1;
        counts.calls += u64::from(event == Event::Call);
        counts.signals += u64::from(event == Event::Signal);
        counts.left += u64::from(matches!(event, Event::Left { .. }));
        counts.watched += u64::from(watched);
        counts.deepest = counts.deepest.max(depth);
    }

    /// Compares a walk with the truth: the instruction that is about to run, and who waits.
    pub(crate) fn compare(
        &mut self,
        event: Event,
        pc: u64,
        walk: impl Iterator<Item = Frame> + Clone,
        callers: impl Iterator<Item = Caller> + Clone,
    ) {
        if event == Event::Leaving {
            return self.wait(Chain::of(walk), None);
        }
        if let Event::Left { replaced_since } = event {
            self.decide(pc, replaced_since, callers.clone());
        }
        let truth = core::iter::once(Caller::Interrupted(pc)).chain(callers);
        if compare(walk.clone(), truth.clone()).is_some() {
            self.wait(Chain::of(walk), Some(Chain::of(truth.map(frame))));
        }
        let now = self.counts.instructions;
        while self.undecided.front().is_some_and(|oldest| oldest.step + (UNDECIDED as u64) < now) {
            self.give_up_oldest();
        }
    }

    fn wait(&mut self, walk: Chain, truth: Option<Chain>) {
        if self.undecided.len() == UNDECIDED {
            self.give_up_oldest();
        }
        self.undecided.push_back(Undecided { step: self.counts.instructions, walk, truth });
    }

    /// A function has left for `destination`, where `callers` wait.
    fn decide(&mut self, destination: u64, replaced_since: Option<u64>, callers: impl Iterator<Item = Caller> + Clone) {
        while let Some(Undecided { step, walk, truth }) = self.undecided.pop_front() {
            let pc = walk.pc();
            let left = [Caller::Interrupted(pc), Caller::Called(destination)].into_iter().chain(callers.clone());
            let found = compare(walk.frames(), left.clone());
            match (truth, found) {
                (None, None) => {}
                (Some(_), None) => _ = self.found(pc, Finding::Early),
                // The landing pad is there, but not as a return address is: nothing called before it, and unwind information is looked up there.
                (None, Some((at, _))) if replaced_since.is_some() && at == destination => {
                    self.found(pc, Finding::Replaced);
                }
                (None, Some(_)) => self.count(&walk, &Chain::of(left.map(frame))),
                (Some(_), Some(_)) if replaced_since.is_some_and(|since| since <= step) => {
                    self.found(pc, Finding::Replaced);
                }
                (Some(truth), Some(_)) => self.count(&walk, &truth),
            }
        }
    }

    /// For so long, no function has left.
    fn give_up_oldest(&mut self) {
        if let Some(Undecided { walk, truth, .. }) = self.undecided.pop_front() {
            self.count(&walk, &truth.unwrap_or(Chain::EMPTY));
        }
    }

    fn count(&mut self, walk: &Chain, truth: &Chain) {
        match compare(walk.frames(), truth.frames().map(caller)) {
            Some((at, finding @ Finding::Truncated(_))) => _ = self.found(at, finding),
            _ => self.wrong(walk, truth),
        }
    }

    fn wrong(&mut self, walk: &Chain, truth: &Chain) {
        let is_new = self.found(walk.pc(), Finding::Wrong);
        if is_new && let Some(difference) = self.differences.get_mut(self.different) {
            *difference = [*walk, *truth];
            self.different += 1;
        }
    }

    /// Counts; whether it is the first time there.
    fn found(&mut self, at: u64, finding: Finding) -> bool {
        let hash = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        for probe in 0..PLACES {
            match &mut self.places[(hash as usize + probe) % PLACES] {
                Some((known, known_finding, count)) if (*known, *known_finding) == (at, finding) => {
                    *count += 1;
                    return false;
                }
                Some(_) => {}
                empty @ None => {
                    *empty = Some((at, finding, 1));
                    return true;
                }
            }
        }
        panic!("more places than there is room for");
    }

    /// The same with names.
    pub(crate) fn report(&mut self) -> Report {
        while !self.undecided.is_empty() {
            self.give_up_oldest();
        }
        let places = self.places.iter().flatten().copied().collect();
        Report::new(self.counts, places, &self.differences[..self.different])
    }
}

fn caller(frame: Frame) -> Caller {
    if frame.is_instruction() { Caller::Interrupted(frame.avma()) } else { Caller::Called(frame.avma()) }
}

/// A caller as the product writes one, without its module.
fn frame(caller: Caller) -> Frame {
    match caller {
        Caller::Called(address) => Frame::return_address(ModuleIndex::NONE, address),
        Caller::Interrupted(address) => Frame::instruction(ModuleIndex::NONE, address),
    }
}
