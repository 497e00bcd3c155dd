//! Stacks that resemble the one before: walked incrementally, entered into the thread's tree as far as they are new.
//!
//! Called from: the allocation hook, under its guard, and the tick handler, each with one of its own. May: what a plain capture may there. Each kept frame remembers its node, so a
//! stack costs its new frames plus a comparison of the old ones (see [`unwind::kept`]). What was kept is dropped when objects were loaded or closed.
//! A stack too deep to keep is captured plainly.

mod sites;
mod tips;

use crate::modules::{self, All};
use crate::rules::Context;
use crate::stack::{Bounds, StackMemory};
use crate::thread::{MAX_FRAMES, Recording};
use crate::tree::Place;
use crate::walk::{self, Cached};
use layout::{Frame, ModuleIndex, Pseudo, RecordId, Root};
use unwind::arch::Registers;
use unwind::kept::{Extent, KeptFrame, Room, TooDeep, Word};
use unwind::{FrameAddress, Truncated};

pub use sites::Sites;
pub(crate) use tips::reset;

/// What is kept from one stack to the next. Zeroed memory is one that has kept nothing.
#[derive(Debug)]
pub struct Kept {
    extent: Extent,
    /// Frames of the last walk, from the root on, that were kept from the one before; `None` if it is not what is kept.
    shared: Option<usize>,
    generation: u32,
    /// End of the thread's own stack.
    stack_high: u64,
    end: Option<Truncated>,
    /// Number of the kind of root that the kept frames' nodes lie below, and the label set below it.
    root: (u8, RecordId),
    /// Frame whose caller was looked for by all registers, and not found.
    in_vain: Option<Registers>,
    frames: [KeptFrame<Registers, ModuleIndex>; MAX_FRAMES],
    words: [Word; 2 * MAX_FRAMES],
}

impl Kept {
    /// Forgets the walk before.
    pub fn clear(&mut self) {
        self.extent = Extent::default();
    }

    /// Captures the stack at `at` and enters it below the thread's root of a kind; its leaf's node, or `None` if the store is full.
    ///
    /// `below` is a frame that the caller is going to look for below that node. `all` are all registers at `at`: some frames have no other way to their caller. Where they are not known, a hook takes its own.
    #[inline]
    pub fn capture<C: Context>(
        &mut self,
        recording: &mut Recording,
        (stack, thread, root): (Bounds, RecordId, Root),
        (at, registers, all): (FrameAddress, Registers, Option<&All>),
        below: Option<Frame>,
    ) -> Option<Place> {
        if C::MAY_BUILD && modules::is_stale() {
            modules::refresh_if_stale();
        }
        let generation = modules::generation();
        // Words have their numbers in one stack; a state may be another thread's by now.
        if self.generation != generation || self.stack_high != stack.high {
            (self.generation, self.stack_high) = (generation, stack.high);
            self.extent = Extent::default();
        }
        self.shared = None;
        let mut memory = StackMemory::new(stack, registers.sp);
        let mut rules = Cached::<C>::new();
        let room = Room { frames: &mut self.frames, words: &mut self.words };
        let walked = match unwind::kept::walk(room, &mut self.extent, (at, registers), &mut rules, &mut memory) {
            Ok(walked) => walked,
            Err(TooDeep) => {
                plainly::<C>(recording, stack, at, registers.sp, registers.fp);
                return walk::intern(recording, root, thread);
            }
        };
        if walked.end == Err(Truncated::UnsupportedRule)
            && (C::MAY_BUILD || all.is_some())
            && self.recover::<C>(recording, stack, at, registers.sp, registers.fp, all)
        {
            return walk::intern(recording, root, thread);
        }
        #[cfg(feature = "oracle")]
        if C::MAY_BUILD {
            self.compare(recording, stack, at, registers, walked.end);
        }
        self.shared = Some(walked.shared);
        let kind = (root as u8, recording.labels);
        let mut place = recording.root(root, thread)?;
        if let Err(reason) = walked.end {
            place = recording.tree.child(place, Frame::pseudo(Pseudo::Truncated(walk::reason_of(reason))))?;
        }
        // Nodes hang below the root of their kind, and below the way the stack ends.
        let end = walked.end.err();
        let mut first = if (end, kind) == (self.end, self.root) { walked.shared } else { 0 };
        (self.end, self.root) = (end, kind);
        // Frames of a walk that could not be entered have no node.
        while let Some(before) = first.checked_sub(1)
            && Place::from_bits(self.frames.get(before)?.note).node().is_none()
        {
            first = before;
        }
        if let Some(before) = first.checked_sub(1) {
            place = Place::from_bits(self.frames.get(before)?.note);
        }
        let fresh = self.frames.get_mut(first..self.extent.depth)?;
        // Below another root the places of others have been here before. A frame that cannot be entered has a note without a node, as a new one has.
        if first < walked.shared {
            fresh.iter_mut().for_each(|frame| frame.note = 0);
        }
        // In two rounds, so that all places are on their way from memory before the first is looked at.
        let mut announced = place;
        for frame in &mut *fresh {
            if !modules::is_own(frame.tag) {
                announced = recording.tree.announce(announced, word_of(frame));
            }
            frame.note = announced.to_bits();
        }
        if let Some(below) = below {
            recording.tree.announce(announced, below);
        }
        for frame in fresh {
            if !modules::is_own(frame.tag) {
                place = recording.tree.announced_child(place, Place::from_bits(frame.note), word_of(frame))?;
            }
            frame.note = place.to_bits();
        }
        Some(place)
    }
}

#[inline]
fn word_of(frame: &KeptFrame<Registers, ModuleIndex>) -> Frame {
    match frame.address() {
        FrameAddress::Instruction(avma) => Frame::instruction(frame.tag, avma),
        FrameAddress::ReturnAddress(avma) => Frame::return_address(frame.tag, avma),
    }
}

/// A plain walk. The registers come one by one: if their address were taken, the usual walk would begin with a copy in memory that it has to wait for.
#[cold]
#[inline(never)]
fn plainly<C: Context>(recording: &mut Recording, stack: Bounds, at: FrameAddress, sp: u64, fp: Option<u64>) {
    walk::capture::<C>(recording, stack, at, Registers { pc: at.address(), sp, fp }, None);
}

impl Kept {
    /// Walks a stack on whose way a frame takes all registers. Nothing of it is kept. False if that is in vain.
    #[cold]
    #[inline(never)]
    fn recover<C: Context>(
        &mut self,
        recording: &mut Recording,
        stack: Bounds,
        at: FrameAddress,
        sp: u64,
        fp: Option<u64>,
        all: Option<&All>,
    ) -> bool {
        let registers = Registers { pc: at.address(), sp, fp };
        let Some(ended_at) = self.frames.first().map(KeptFrame::registers) else { return false };
        if self.in_vain == Some(ended_at) {
            return false;
        }
        match all {
            Some(all) => walk::capture::<C>(recording, stack, at, registers, Some(all)),
            None => {
                let all = crate::registers_here!();
                walk::capture::<C>(recording, stack, at, registers, Some(&all));
            }
        }
        let last = recording.depth.checked_sub(1).and_then(|last| recording.frames.get(last));
        let truncated = Frame::pseudo(Pseudo::Truncated(layout::Truncated::UnsupportedRule)).to_bits();
        let complete = last.is_some_and(|last| *last != truncated);
        if !complete {
            self.in_vain = Some(ended_at);
        }
        complete
    }
}

#[cfg(feature = "oracle")]
impl Kept {
    /// Walks the same stack plainly; a difference ends the process by an illegal instruction, which no test can miss. By itself, so that a hook without room for it takes none.
    #[inline(never)]
    fn compare(
        &self,
        recording: &mut Recording,
        stack: Bounds,
        at: FrameAddress,
        registers: Registers,
        end: Result<(), Truncated>,
    ) {
        walk::capture::<crate::rules::InHook>(recording, stack, at, registers, None);
        let end = end.err().map(|reason| Frame::pseudo(Pseudo::Truncated(walk::reason_of(reason))).to_bits());
        let kept =
            self.frames.get(..self.extent.depth).into_iter().flatten().rev().map(|frame| match frame.address() {
                FrameAddress::Instruction(avma) => Frame::instruction(frame.tag, avma),
                FrameAddress::ReturnAddress(avma) => Frame::return_address(frame.tag, avma),
            });
        let kept = kept.filter(|frame| !modules::is_own(frame.module())).map(Frame::to_bits).chain(end);
        let plain = recording.frames.get(..recording.depth).into_iter().flatten().copied();
        if !kept.eq(plain) {
            crate::syscall::trap();
        }
    }
}
