//! Stacks that resemble the one before: walked incrementally, entered into the thread's tree as far as they are new.
//!
//! Called from: the allocation hook, under its guard, and the tick handler, each with one of its own. May: what a plain capture may there. Each kept frame remembers its node, so a
//! stack costs its new frames plus a comparison of the old ones (see [`unwind::kept`]). What was kept is dropped when objects were loaded or closed.
//! A stack too deep to keep is captured plainly.

use crate::modules::{self, All};
use crate::rules::Context;
use crate::stack::{Bounds, StackMemory};
use crate::thread::{MAX_FRAMES, Recording};
use crate::walk::{self, Cached};
use layout::{Frame, ModuleIndex, Pseudo, RecordId, Root};
use unwind::arch::Registers;
use unwind::kept::{KeptFrame, Room, TooDeep, Words};
use unwind::{FrameAddress, Truncated};

/// What is kept from one stack to the next. Zeroed memory is one that has kept nothing.
#[derive(Debug)]
pub struct Kept {
    depth: usize,
    generation: u32,
    end: Option<Truncated>,
    /// Number of the kind of root that the kept frames' nodes lie below.
    root: u8,
    /// Frame whose caller was looked for by all registers, and not found.
    in_vain: Option<Registers>,
    frames: [KeptFrame<Registers, ModuleIndex>; MAX_FRAMES],
    words: [Words; MAX_FRAMES],
}

impl Kept {
    /// Forgets the walk before.
    pub fn clear(&mut self) {
        self.depth = 0;
    }

    /// Captures the stack at `at` and enters it below the thread's root of a kind, with `leaf` below it; the leaf's node, or `None` if the store is full.
    ///
    /// `all` are all registers at `at`: some frames have no other way to their caller. Where they are not known, a hook takes its own.
    #[inline]
    pub fn capture<C: Context>(
        &mut self,
        recording: &mut Recording,
        (stack, thread, root): (Bounds, RecordId, Root),
        (at, registers, all): (FrameAddress, Registers, Option<&All>),
        leaf: Option<Frame>,
    ) -> Option<RecordId> {
        if C::MAY_BUILD && modules::is_stale() {
            modules::refresh_if_stale();
        }
        let generation = modules::generation();
        if self.generation != generation {
            self.generation = generation;
            self.depth = 0;
        }
        let mut memory = StackMemory::new(stack, registers.sp);
        let mut rules = Cached::<C>::new();
        let room = Room { frames: &mut self.frames, words: &mut self.words };
        let walked = match unwind::kept::walk(room, &mut self.depth, (at, registers), &mut rules, &mut memory) {
            Ok(walked) => walked,
            Err(TooDeep) => {
                walk::capture::<C>(recording, stack, at, registers, None);
                return walk::intern(recording, root, thread, leaf);
            }
        };
        if walked.end == Err(Truncated::UnsupportedRule)
            && (C::MAY_BUILD || all.is_some())
            && self.recover::<C>(recording, stack, (at, registers, all))
        {
            return walk::intern(recording, root, thread, leaf);
        }
        #[cfg(feature = "oracle")]
        if C::MAY_BUILD {
            self.compare(recording, stack, at, registers, walked.end);
        }
        let kind = root as u8;
        let mut node = recording.tree.root(root, thread)?;
        if let Err(reason) = walked.end {
            node = recording.tree.child(node, Frame::pseudo(Pseudo::Truncated(walk::reason_of(reason))))?;
        }
        // Nodes hang below the root of their kind, and below the way the stack ends.
        let end = walked.end.err();
        let mut first = if (end, kind) == (self.end, self.root) { walked.shared } else { 0 };
        (self.end, self.root) = (end, kind);
        // Frames of a walk that could not be entered have no node.
        while let Some(before) = first.checked_sub(1)
            && self.frames.get(before)?.note == 0
        {
            first = before;
        }
        if let Some(before) = first.checked_sub(1) {
            node = RecordId(self.frames.get(before)?.note);
        }
        let mut entered = Some(node);
        for frame in self.frames.get_mut(first..self.depth)? {
            entered = entered.and_then(|node| {
                let frame = match frame.address() {
                    FrameAddress::Instruction(avma) => Frame::instruction(frame.tag, avma),
                    FrameAddress::ReturnAddress(avma) => Frame::return_address(frame.tag, avma),
                };
                if modules::is_own(frame.module()) { Some(node) } else { recording.tree.child(node, frame) }
            });
            frame.note = entered.map_or(0, |node| node.0);
        }
        match leaf {
            Some(leaf) => recording.tree.child(entered?, leaf),
            None => entered,
        }
    }
}

impl Kept {
    /// Walks a stack on whose way a frame takes all registers. Nothing of it is kept. False if that is in vain.
    #[cold]
    #[inline(never)]
    fn recover<C: Context>(
        &mut self,
        recording: &mut Recording,
        stack: Bounds,
        (at, registers, all): (FrameAddress, Registers, Option<&All>),
    ) -> bool {
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
    /// Walks the same stack plainly; a difference ends the process by an illegal instruction, which no test can miss.
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
        let kept = self.frames.get(..self.depth).into_iter().flatten().rev().map(|frame| match frame.address() {
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
