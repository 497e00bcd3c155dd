//! Where a thread allocates: stacks of which only the leaf-most frames, their *tip*, differ from what is kept, and these were met before.
//!
//! Called from: the allocation hook, under its guard. A program allocates at the same places over and over, and between two of them a few calls return and a few are made. So a tip that
//! was walked is remembered: the words that tell whether the way from the leaf to a kept frame, the *joint*, is as it was, and the values of the site. Where memory holds those words, and what
//! is kept from the joint root-ward, the site is known, without a step and without a search: nothing else decides where a walk comes to (see [`unwind::kept`]). Kept frames stay as they are
//! meanwhile, those leaf-ward of the joint too: they say what was true once, and whoever meets them compares.

use super::Kept;
use crate::modules;
use crate::rules::Context;
use crate::stack::{Bounds, StackMemory};
use crate::thread::Recording;
use crate::tree::{Place, Tree};
use crate::walk::Cached;
use layout::{Function, ModuleIndex, RecordId, Root};
use unwind::arch::Registers;
use unwind::kept::{self, Word};
use unwind::{FrameAddress, Rules, Slot, Truncated, Unwind};

/// Words of a tip, those of the leaf left aside.
const WORDS: usize = 6;
/// Enough that few of those that a program meets all the time have the same place: two that do take turns, and both are walked each time. Most of the memory is never touched.
const TIPS_LOG2: u32 = 12;
const TIPS: usize = 1 << TIPS_LOG2;

/// A tip that was walked. Two cache lines, in which memory of zeros is none: no code lies at address zero.
///
/// It begins with the leaf's caller, by a step that is always made: many callers share a leaf that allocates for them.
#[derive(Debug)]
#[repr(C, align(128))]
struct Tip {
    /// The leaf's address.
    pc: u64,
    caller: Caller,
    values: RecordId,
    /// Index of the joint among the kept frames.
    joint: u16,
    function: u8,
    needs_fp: bool,
    /// The joint's node: its address, and the ones root-ward.
    note: u64,
    /// The joint's frame pointer, or zero if nothing depends on it.
    joint_fp: u64,
    words: [u64; WORDS],
    /// Of the words. Where there are fewer, the first is there several times.
    slots: [Slot; WORDS],
}

/// The leaf's caller.
#[derive(Clone, Copy, Debug)]
struct Caller {
    pc: u64,
    sp: u64,
    fp: u64,
}

/// What a thread's allocation hook keeps from one stack to the next.
#[derive(Debug)]
pub struct Sites {
    kept: Kept,
    tips: [Tip; TIPS],
    /// A bit for each tip that was remembered.
    remembered: [u64; TIPS / 64],
}

impl Sites {
    /// Forgets what was kept.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.forget_tips();
    }

    #[cold]
    fn forget_tips(&mut self) {
        // Those alone: the others have no memory, and need none.
        for (tips, remembered) in self.tips.chunks_exact_mut(64).zip(&mut self.remembered) {
            while *remembered != 0 {
                if let Some(tip) = tips.get_mut(remembered.trailing_zeros() as usize) {
                    tip.pc = 0;
                }
                *remembered &= *remembered - 1;
            }
        }
    }

    /// The values of the site of an allocation by `function`, whose caller is at `at` with these registers, on a thread with this stack and record; `None` if the store is full.
    #[inline(always)]
    pub fn values_of<C: Context>(
        &mut self,
        recording: &mut Recording,
        (stack, thread): (Bounds, RecordId),
        (at, registers): (FrameAddress, Registers),
        function: Function,
    ) -> Option<RecordId> {
        match self.known::<C>(recording.labels, stack, (at, registers), function) {
            Some(values) => {
                #[cfg(feature = "oracle")]
                compare::<C>(recording, (stack, thread), (at, registers), (function, values));
                Some(values)
            }
            None => self.walked::<C>(recording, (stack, thread), (at, registers), function),
        }
    }

    /// The values of a site that was met before, where only the tip changed.
    #[inline(always)]
    fn known<C: Context>(
        &self,
        labels: RecordId,
        stack: Bounds,
        (at, registers): (FrameAddress, Registers),
        function: Function,
    ) -> Option<RecordId> {
        if modules::is_stale() {
            return None;
        }
        let kept = &self.kept;
        let mut memory = StackMemory::new(stack, registers.sp);
        let mut rules = Cached::<C>::new();
        let (rule, _) = rules.lookup(at);
        let caller = Registers::unpack(Registers::step_quickly(&registers.pack(), rule, &mut memory)?.caller);
        let caller = Caller { pc: caller.pc, sp: caller.sp, fp: caller.fp? };
        let tip = self.tips.get(index_of(registers.pc, &caller))?;
        let differs = (tip.pc ^ registers.pc)
            | (tip.caller.pc ^ caller.pc)
            | (tip.caller.sp ^ caller.sp)
            | ((tip.caller.fp ^ caller.fp) & mask(tip.needs_fp))
            | u64::from(tip.function ^ function as u8);
        // A lookup can read the list of modules anew.
        if differs != 0
            || kept.generation != modules::generation()
            || kept.stack_high != stack.high
            || kept.root != (Root::Allocs as u8, labels)
            || !memory.holds(&tip.slots, &tip.words, registers.sp)
        {
            return None;
        }
        let frames = kept.frames.get(..kept.extent.depth)?;
        let joint = frames.get(usize::from(tip.joint))?;
        let Registers { sp, fp, .. } = joint.registers();
        // The first of the words is the return address that lies at the joint.
        let [slot, ..] = tip.slots;
        if joint.note != tip.note
            || sp != memory.address_of(slot).wrapping_add(8)
            || (tip.joint_fp != 0 && fp != Some(tip.joint_fp))
        {
            return None;
        }
        let end = kept::end_from((frames, &kept.words), usize::from(tip.joint) + 1, &mut rules, &mut memory)?;
        (end.err() == kept.end).then_some(tip.values)
    }

    /// The values of any other.
    #[inline(never)]
    fn walked<C: Context>(
        &mut self,
        recording: &mut Recording,
        (stack, thread): (Bounds, RecordId),
        (at, registers): (FrameAddress, Registers),
        function: Function,
    ) -> Option<RecordId> {
        if self.kept.generation != modules::generation() || self.kept.stack_high != stack.high {
            self.forget_tips();
        }
        let (place, start) = ((stack, thread, Root::Allocs), (at, registers, None));
        let caller = self.kept.capture::<C>(recording, place, start, Some(Tree::frame_of(function)))?;
        let values = recording.tree.site(caller, function)?;
        // What cannot be remembered is walked again.
        let _ = self.remember::<C>(function, values);
        Some(values)
    }

    /// Remembers the tip of the stack that is kept now.
    #[inline(always)]
    fn remember<C: Context>(&mut self, function: Function, values: RecordId) -> Option<()> {
        let Kept { extent, shared, frames, words, end, .. } = &self.kept;
        let frames = frames.get(..extent.depth)?;
        let [.., leafs_caller, leaf] = frames else { return None };
        let joint = (*shared)?.min(frames.len().checked_sub(2)?).checked_sub(1)?;
        let [way @ .., _] = frames.get(joint..)? else { return None };
        let [at_joint, ..] = way else { return None };
        // Code that belongs to no object can be replaced by other code without a word to anybody. And a frame of the recorder's own has its caller's node.
        if way.iter().chain([leaf]).any(|frame| frame.tag == ModuleIndex::NONE) || modules::is_own(at_joint.tag) {
            return None;
        }
        // Whether a stack ends so depends on other registers too.
        if *end == Some(Truncated::UnsupportedRule) || Place::from_bits(at_joint.note).node().is_none() {
            return None;
        }
        let mut read = [Word::default(); WORDS];
        let tip = kept::tip_of((way, words), &mut Cached::<C>::new(), &mut read)?;
        let [first, ..] = read;
        read.get_mut(tip.words..)?.fill(first);
        let Registers { pc, sp, fp } = leafs_caller.registers();
        let caller = Caller { pc, sp, fp: fp? };
        let joint_fp = at_joint.registers().fp?;
        if tip.joint_needs_frame_pointer && joint_fp == 0 {
            return None;
        }
        let pc = leaf.registers().pc;
        let index = index_of(pc, &caller);
        *self.remembered.get_mut(index / 64)? |= 1 << (index % 64);
        *self.tips.get_mut(index)? = Tip {
            pc,
            caller,
            values,
            joint: u16::try_from(joint).ok()?,
            function: function as u8,
            needs_fp: tip.needs_frame_pointer,
            note: at_joint.note,
            joint_fp: joint_fp & mask(tip.joint_needs_frame_pointer),
            words: read.map(|word| word.word),
            slots: read.map(|word| word.slot),
        };
        Some(())
    }
}

/// Walks the same stack plainly; another site ends the process by an illegal instruction, which no test can miss. By itself, so that a hook without room for it takes none.
#[cfg(feature = "oracle")]
#[inline(never)]
fn compare<C: Context>(
    recording: &mut Recording,
    (stack, thread): (Bounds, RecordId),
    (at, registers): (FrameAddress, Registers),
    (function, values): (Function, RecordId),
) {
    use crate::walk;
    walk::capture::<C>(recording, stack, at, registers, None);
    let Some(place) = walk::intern(recording, Root::Allocs, thread) else { return };
    if recording.tree.site(place, function).is_some_and(|plain| plain != values) {
        crate::syscall::trap();
    }
}

#[inline(always)]
fn mask(is: bool) -> u64 {
    u64::from(is).wrapping_neg()
}

#[inline(always)]
fn index_of(pc: u64, caller: &Caller) -> usize {
    let mixed = (pc.rotate_left(20) ^ caller.pc.rotate_left(40) ^ caller.sp).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - TIPS_LOG2)) as usize
}
