//! Where a thread allocates: stacks of which only the leaf-most frames, their *tip*, differ from what is kept, and these were met before.
//!
//! Called from: the allocation hook, under its guard. A program allocates at the same places over and over, and between two of them a few calls return and a few are made. So a tip that
//! was walked is remembered: the words that tell whether the way from the leaf to a kept frame, the *joint*, is as it was, and the values of the site. Where memory holds those words, and what
//! is kept from the joint root-ward, the site is known, without a step and without a search: nothing else decides where a walk comes to (see [`unwind::kept`]). Kept frames stay as they are
//! meanwhile, those leaf-ward of the joint too: they say what was true once, and whoever meets them compares. So the joint lies as near to the root as a tip's words reach: what happens to be
//! kept leaf-ward of it does not matter then.

use super::Kept;
use super::tips::{Caller, FramePointers, Leaf, Next, Place, Tip, Tips, WORDS};
use crate::modules;
use crate::rules::Context;
use crate::stack::{Bounds, StackMemory, at_distance, distance_of};
use crate::thread::Recording;
use crate::tree::{self, Tree};
use crate::walk::Cached;
use layout::{Function, ModuleIndex, RecordId, Root};
use unwind::arch::Registers;
use unwind::kept::{self, KeptFrame, Word};
use unwind::{FrameAddress, Memory, Rules, Truncated, Unwind};

/// So many tips of a leaf are looked at, behind the first: more are as fast to walk.
const MOST_BEYOND: usize = 3;

/// Where a tip is to be remembered that was not found.
#[derive(Clone, Copy, Debug)]
struct Vacancy {
    /// Where its leaf's tips are looked for first.
    first: Place,
    place: Place,
    /// Place of one whose words are all there, and whose joint is not among what is kept. If the new one's joint lies nearer to the root, it holds wherever that one does, and has its place.
    met_deeper: Option<Place>,
}

/// A tip that is met.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Where its leaf's tips are looked for first.
    first: Place,
    place: Place,
    values: RecordId,
}

/// Where a tip and a stack differ first, seen from the leaf.
#[derive(Clone, Copy, Debug)]
enum Difference {
    /// Another word is found.
    Word(u64),
    /// Another frame is kept where the joint was: the node of that.
    Joint(RecordId),
}

/// What a thread's allocation hook keeps from one stack to the next.
#[derive(Debug)]
pub struct Sites {
    kept: Kept,
    tips: Tips,
}

impl Sites {
    /// Forgets what was kept.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.tips.clear();
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
            Ok(Found { first, place, values }) => {
                self.tips.met(first, place, values);
                #[cfg(feature = "oracle")]
                compare::<C>(recording, (stack, thread), (at, registers), (function, values));
                Some(values)
            }
            Err(vacancy) => self.walked::<C>(recording, (stack, thread), (at, registers), function, vacancy),
        }
    }

    /// The values of a site that was met before, where only the tip changed. If it was not: where its tip is to be remembered, if it can be.
    #[inline(always)]
    fn known<C: Context>(
        &self,
        labels: RecordId,
        stack: Bounds,
        (at, registers): (FrameAddress, Registers),
        function: Function,
    ) -> Result<Found, Option<Vacancy>> {
        if modules::is_stale() {
            return Err(None);
        }
        let mut memory = StackMemory::new(stack, registers.sp);
        let mut rules = Cached::<C>::new();
        let (rule, _) = rules.lookup(at);
        let caller = Registers::step_quickly(&registers.pack(), rule, &mut memory).ok_or(None)?.caller;
        let Registers { pc, sp, fp } = Registers::unpack(caller);
        let caller = Caller { pc, sp, fp: fp.ok_or(None)? };
        let leaf = Leaf { pc: registers.pc, sp: registers.sp, caller, function: function as u8 };
        let (kept, place) = (&self.kept, Place::first(leaf.pc, caller.pc, caller.sp as u32));
        // A lookup can read the list of modules anew.
        if kept.generation != modules::generation()
            || kept.stack_high != stack.high
            || kept.root != (Root::Allocs as u8, labels)
        {
            return Err(Some(Vacancy { first: place, place, met_deeper: None }));
        }
        match self.known_at::<C>(place, &mut memory, &leaf) {
            Some(values) => Ok(Found { first: place, place, values }),
            None => self.known_beyond::<C>(place, stack, leaf),
        }
    }

    /// The values of the site whose tip has this place, if it begins at `leaf` and is as it was.
    #[inline(always)]
    fn known_at<C: Context>(&self, place: Place, memory: &mut StackMemory, leaf: &Leaf) -> Option<RecordId> {
        let (kept, tip) = (&self.kept, self.tips.at(place)?);
        let differs = (tip.pc ^ leaf.pc)
            | (tip.callers_pc ^ leaf.caller.pc)
            | ((tip.callers_fp ^ leaf.caller.fp) & mask(tip.fps.needs_callers()))
            | u64::from(tip.callers_sp ^ leaf.caller.sp as u32)
            | u64::from(tip.function ^ leaf.function);
        if differs != 0 || !memory.holds(&tip.distances, &tip.words, leaf.caller.sp) {
            return None;
        }
        let frames = kept.frames.get(..kept.extent.depth)?;
        let joint = frames.get(usize::from(tip.joint))?;
        let Registers { sp, fp, .. } = joint.registers();
        // The first of the words is the return address that lies at the joint.
        let [distance, ..] = tip.distances;
        if node_of(joint) != tip.node
            || sp != at_distance(leaf.caller.sp, distance).wrapping_add(8)
            || tip.joint_fp().is_some_and(|needed| fp != Some(needed))
        {
            return None;
        }
        let shared = usize::from(tip.joint) + 1;
        let end = kept::end_from((frames, &kept.words), shared, &mut Cached::<C>::new(), memory)?;
        (end.err() == kept.end).then_some(tip.values)
    }

    /// The same, where the tip at the first place is not it: a leaf's tips lead from one to the next.
    ///
    /// By itself, with what it takes in memory of its own: where the first is it, nothing is stored for this.
    #[inline(never)]
    fn known_beyond<C: Context>(&self, first: Place, stack: Bounds, leaf: Leaf) -> Result<Found, Option<Vacancy>> {
        let mut memory = StackMemory::new(stack, leaf.sp);
        let (mut place, mut met_deeper) = (first, None);
        for _ in 0..MOST_BEYOND {
            let instead = match self.difference(place, &mut memory, &leaf) {
                None => break,
                Some(Difference::Word(word)) => {
                    met_deeper = None;
                    word
                }
                Some(Difference::Joint(node)) => {
                    met_deeper = Some(place);
                    u64::from(node.0)
                }
            };
            place = place.beyond(instead);
            if let Some(values) = self.known_at::<C>(place, &mut memory, &leaf) {
                return Ok(Found { first, place, values });
            }
        }
        Err(Some(Vacancy { first, place, met_deeper }))
    }

    /// What is found instead of what the tip at a place has, where they differ first, seen from the leaf. `None`: it is that of another leaf, or does not differ in anything that could lead on.
    ///
    /// What lies leaf-ward is as the tip has it, so that each walk of a stack that differs there reads that very word: a return address or a frame pointer, and none of the variables in between.
    fn difference(&self, place: Place, memory: &mut StackMemory, leaf: &Leaf) -> Option<Difference> {
        let (tip, caller) = (self.tips.at(place)?, &leaf.caller);
        let begins = (tip.pc, tip.callers_pc, tip.callers_sp, tip.function);
        if begins != (leaf.pc, caller.pc, caller.sp as u32, leaf.function) {
            return None;
        }
        if tip.fps.needs_callers() && tip.callers_fp != caller.fp {
            return Some(Difference::Word(caller.fp));
        }
        // The joint's comes last. It is the first, and stands behind the leaf's once more where there are few.
        let mut words = tip.distances.iter().zip(&tip.words);
        let joints = words.next()?;
        for (distance, word) in words.rev().filter(|(distance, _)| *distance != joints.0).chain([joints]) {
            let found = memory.numbered_word(at_distance(caller.sp, *distance))?.1;
            if found != *word {
                return Some(Difference::Word(found));
            }
        }
        let frames = self.kept.frames.get(..self.kept.extent.depth)?;
        let node = frames.get(usize::from(tip.joint)).map_or(RecordId::NONE, node_of);
        (node != tip.node).then_some(Difference::Joint(node))
    }

    /// The values of any other.
    #[inline(never)]
    fn walked<C: Context>(
        &mut self,
        recording: &mut Recording,
        (stack, thread): (Bounds, RecordId),
        (at, registers): (FrameAddress, Registers),
        function: Function,
        vacancy: Option<Vacancy>,
    ) -> Option<RecordId> {
        if self.kept.generation != modules::generation() || self.kept.stack_high != stack.high {
            self.tips.clear();
        }
        let (root, start) = ((stack, thread, Root::Allocs), (at, registers, None));
        let caller = self.kept.capture::<C>(recording, root, start, Some(Tree::frame_of(function)))?;
        let values = recording.tree.site(caller, function)?;
        if let Some(vacancy) = vacancy {
            // What cannot be remembered is walked again.
            let _ = self.remember::<C>(&StackMemory::new(stack, registers.sp), vacancy, function, values);
        }
        Some(values)
    }

    /// Remembers the tip of the stack that is kept now.
    #[inline(always)]
    fn remember<C: Context>(
        &mut self,
        memory: &StackMemory,
        vacancy: Vacancy,
        function: Function,
        values: RecordId,
    ) -> Option<()> {
        let Kept { extent, shared, frames, words, end, .. } = &self.kept;
        let frames = frames.get(..extent.depth)?;
        let [.., leafs_caller, leaf] = frames else { return None };
        let shared = (*shared)?.min(frames.len().checked_sub(2)?).checked_sub(1)?;
        let joint = shared.min(joint_within(frames, WORDS)?);
        let [way @ .., _] = frames.get(joint..)? else { return None };
        let [at_joint, ..] = way else { return None };
        // Code that belongs to no object can be replaced by other code without a word to anybody. And a frame of the recorder's own has its caller's node.
        if way.iter().chain([leaf]).any(|frame| frame.tag == ModuleIndex::NONE) || modules::is_own(at_joint.tag) {
            return None;
        }
        // Whether a stack ends so depends on other registers too.
        if *end == Some(Truncated::UnsupportedRule) || node_of(at_joint).is_none() {
            return None;
        }
        let mut read = [Word::default(); WORDS];
        let tip = kept::tip_of((way, words), &mut Cached::<C>::new(), &mut read)?;
        let [first, ..] = read;
        read.get_mut(tip.words..)?.fill(first);
        let Registers { pc, sp, fp } = leafs_caller.registers();
        let (fp, joint_fp) = (fp?, at_joint.registers().fp?);
        let mut distances = [0; WORDS];
        for (distance, word) in distances.iter_mut().zip(&read) {
            *distance = distance_of(memory.address_of(word.slot), sp)?;
        }
        let words = read.map(|word| word.word);
        let needed = (tip.needs_frame_pointer.then_some(fp), tip.joint_needs_frame_pointer.then_some(joint_fp));
        let tip = Tip {
            pc: leaf.registers().pc,
            callers_pc: pc,
            callers_fp: fp,
            callers_sp: sp as u32,
            function: function as u8,
            fps: FramePointers::new(needed.0, needed.1, &words)?,
            joint: u16::try_from(joint).ok()?,
            node: node_of(at_joint),
            values,
            next: Next::default(),
            words,
            distances,
        };
        let Vacancy { first, place, met_deeper } = vacancy;
        let instead = met_deeper.filter(|at| self.tips.at(*at).is_some_and(|deeper| deeper.joint > tip.joint));
        let place = instead.unwrap_or(place);
        self.tips.put(place, &tip);
        self.tips.met(first, place, values);
        Some(())
    }
}

/// The root-most frame that can be the joint of a tip with so many words.
///
/// The nearer to the root, the more of what may be kept has it.
#[inline(always)]
fn joint_within(frames: &[KeptFrame<Registers, ModuleIndex>], mut words: usize) -> Option<usize> {
    let leafs_caller = frames.len().checked_sub(2)?;
    let mut joint = leafs_caller;
    for (at, callee) in frames.get(..=leafs_caller)?.iter().enumerate().rev() {
        if callee.tag != ModuleIndex::NONE && !modules::is_own(callee.tag) {
            joint = at;
        }
        match callee.compared_words().and_then(|more| words.checked_sub(more)) {
            Some(left) if callee.tag != ModuleIndex::NONE => words = left,
            _ => break,
        }
    }
    Some(joint)
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

/// The node of a kept frame; none if it could not be entered.
#[inline(always)]
fn node_of(frame: &KeptFrame<Registers, ModuleIndex>) -> RecordId {
    tree::Place::from_bits(frame.note).node()
}

#[inline(always)]
fn mask(is: bool) -> u64 {
    u64::from(is).wrapping_neg()
}
