//! Stacks of allocations: walked incrementally, entered into the thread's tree as far as they are new.
//!
//! Called from: the allocation hook, under its guard. May: what a plain capture may in a hook. Each kept frame remembers its node, so an allocation costs its new frames
//! plus a comparison of the old ones (see [`unwind::kept`]). What was kept is dropped when objects were loaded or closed.
//! A stack too deep to keep is captured plainly.

use crate::modules;
use crate::rules::InHook;
use crate::stack::{Bounds, StackMemory};
use crate::thread::{MAX_FRAMES, Recording};
use crate::walk::{self, Cached};
use layout::{Frame, ModuleIndex, Pseudo, RecordId, Root};
use unwind::arch::Registers;
use unwind::kept::{KeptFrame, Room, TooDeep, Words};
use unwind::{FrameAddress, Truncated};

/// What a thread's allocation hook keeps from one allocation to the next. Zeroed memory is one that has kept nothing.
#[derive(Debug)]
pub struct Kept {
    depth: usize,
    generation: u32,
    end: Option<Truncated>,
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

    /// Captures the stack at `at` and enters it, with `leaf` below it; the leaf's node, or `None` if the store is full.
    pub fn capture(
        &mut self,
        recording: &mut Recording,
        (stack, thread): (Bounds, RecordId),
        at: FrameAddress,
        registers: Registers,
        leaf: Frame,
    ) -> Option<RecordId> {
        if modules::is_stale() {
            modules::refresh();
        }
        let generation = modules::generation();
        if self.generation != generation {
            self.generation = generation;
            self.depth = 0;
        }
        let mut memory = StackMemory::new(stack, registers.sp);
        let mut rules = Cached::<InHook>::new();
        let room = Room { frames: &mut self.frames, words: &mut self.words };
        let walked = match unwind::kept::walk(room, &mut self.depth, (at, registers), &mut rules, &mut memory) {
            Ok(walked) => walked,
            Err(TooDeep) => {
                walk::capture::<InHook>(recording, stack, at, registers, None);
                return walk::intern(recording, Root::Allocs, thread, Some(leaf));
            }
        };
        if walked.end == Err(Truncated::UnsupportedRule) && self.recover(recording, stack, at, registers) {
            return walk::intern(recording, Root::Allocs, thread, Some(leaf));
        }
        #[cfg(feature = "oracle")]
        self.compare(recording, stack, at, registers, walked.end);
        let mut node = recording.tree.root(Root::Allocs, thread)?;
        if let Err(reason) = walked.end {
            node = recording.tree.child(node, Frame::pseudo(Pseudo::Truncated(walk::reason_of(reason))))?;
        }
        // Nodes hang below the way the stack ends.
        let end = walked.end.err();
        let mut first = if end == self.end { walked.shared } else { 0 };
        self.end = end;
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
        recording.tree.child(entered?, leaf)
    }
}

impl Kept {
    /// Walks a stack on whose way a frame takes all registers. Nothing of it is kept. False if that is in vain.
    #[cold]
    #[inline(never)]
    fn recover(&mut self, recording: &mut Recording, stack: Bounds, at: FrameAddress, registers: Registers) -> bool {
        let Some(ended_at) = self.frames.first().map(KeptFrame::registers) else { return false };
        if self.in_vain == Some(ended_at) {
            return false;
        }
        let all = crate::registers_here!();
        walk::capture::<InHook>(recording, stack, at, registers, Some(&all));
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
        walk::capture::<InHook>(recording, stack, at, registers, None);
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
