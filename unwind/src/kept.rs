//! The verified incremental walk: the stack of a thread that was walked a moment ago has mostly not changed.
//!
//! Walking is a pure function: a frame's registers and the words that its rule reads give its caller. So each walk keeps, for every frame, its registers and those
//! words. The next walk proceeds from the leaf until it comes to a frame whose registers equal a kept one's. From there root-ward it only compares: as long as the
//! words are the same, so are the callers, by induction. If a word differs, walking resumes at that frame. The result is that of a plain walk, always.
//!
//! What rules say about an address must not change in between; whoever changes that (an object was loaded or closed) drops what was kept.

use core::cell::Cell;

use crate::{Caller, FrameAddress, Memory, Quick, Rule, Rules, STACK_SWITCHES, Slot, Truncated, Unwind};

/// One frame of a kept walk.
#[derive(Clone, Copy, Debug)]
pub struct KeptFrame<G: Unwind, T> {
    registers: G::Packed,
    /// Belongs to the caller of the walk, for as long as the frame and everything root-ward stays the same; zero in a new frame.
    pub note: u64,
    /// The first of its words.
    words_from: u32,
    /// What the lookup said about it.
    pub tag: T,
    /// What the registers' address is: an instruction, or else a return address.
    is_instruction: bool,
    check: Check,
}

/// How a kept frame is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// By comparing the word of its return address: its caller's frame pointer is its own, or nobody knows it.
    Word,
    /// By comparing that and the caller's frame pointer.
    Words,
    /// By stepping again: its rule reads more than these words, or they lie on another stack, or it is where an incomplete walk ended.
    Step,
    /// Not at all: its rule says that it is the root, whatever memory holds.
    Root,
}

/// A word that was read for a frame's caller: its return address, or the caller's frame pointer. Apart from the frames, since comparing them is all that most frames ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Word {
    /// Where it is.
    pub slot: Slot,
    /// What it was.
    pub word: u64,
}

impl Word {
    /// Words of a frame that is not verified by comparing: memory cannot hold both. The slot is that of a stack's last word, which can be read where any can.
    pub const NONE: [Self; 2] = [Self { slot: Slot(u32::MAX), word: 0 }, Self { slot: Slot(u32::MAX), word: 1 }];

    #[inline(always)]
    fn of((slot, word): (Slot, u64)) -> Self {
        Self { slot, word }
    }

    /// Whether it still is what memory holds.
    #[inline]
    pub fn holds(&self, memory: &mut (impl Memory + ?Sized)) -> bool {
        memory.read_slot(self.slot) == Some(self.word)
    }
}

/// What is kept, in memory of the caller.
#[derive(Debug)]
pub struct Room<'a, G: Unwind, T> {
    /// The frames, root first.
    pub frames: &'a mut [KeptFrame<G, T>],
    /// The words of the frames, in their order: one or two of each, so there is room for twice as many.
    pub words: &'a mut [Word],
}

/// How much of the room is in use, from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The frames of the walk.
    pub depth: usize,
}

impl<G: Unwind, T> KeptFrame<G, T> {
    /// The frame's address.
    #[inline]
    pub fn address(&self) -> FrameAddress {
        address_of(self.registers().pc(), self.is_instruction)
    }

    /// The frame's registers.
    #[inline]
    pub fn registers(&self) -> G {
        G::unpack(self.registers)
    }

    /// How many words tell whether its caller is as it was; `None` if comparing is not enough.
    #[inline]
    pub fn compared_words(&self) -> Option<usize> {
        match self.check {
            Check::Word => Some(1),
            Check::Words => Some(2),
            Check::Step | Check::Root => None,
        }
    }

    /// The end of its words among all.
    #[inline]
    fn words_end(&self) -> usize {
        (self.words_from as usize).wrapping_add(if self.check == Check::Word { 1 } else { 2 })
    }
}

#[inline]
fn address_of(pc: u64, is_instruction: bool) -> FrameAddress {
    if is_instruction { FrameAddress::Instruction(pc) } else { FrameAddress::ReturnAddress(pc) }
}

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Root-most frames that are as the walk before left them, notes included.
    pub shared: usize,
    /// Whether the root was reached, or why not.
    pub end: Result<(), Truncated>,
}

/// The stack is deeper than there is room for; nothing is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooDeep;

/// Walks a stack and leaves it in the first `extent.depth` places of `room`, root first.
///
/// `address` is that of the registers. There is what the walk before left; an extent of nothing makes this a plain walk. The remaining places are used while walking.
#[inline]
pub fn walk<G, R, M>(
    room: Room<'_, G, R::Tag>,
    extent: &mut Extent,
    (address, registers): (FrameAddress, G),
    rules: &mut R,
    memory: &mut M,
) -> Result<Walked, TooDeep>
where
    G: Unwind + PartialEq,
    R: Rules,
    M: Memory,
{
    let Extent { depth } = core::mem::take(extent);
    let Room { frames, words } = room;
    let end_of_room = frames.len().min(words.len() / 2);
    let Ran { end, kept, fresh, fresh_words } =
        run(frames, words, (depth, end_of_room), (address, registers), rules, memory).ok_or(TooDeep)?;
    let kept_words = words_of(frames, kept).ok_or(TooDeep)?;
    let count = end_of_room.wrapping_sub(fresh);
    // The new ones move down to the shared ones.
    settle(words, kept_words, (fresh_words, end_of_room.wrapping_mul(2)), |word| word).ok_or(TooDeep)?;
    let down = fresh_words.wrapping_sub(kept_words) as u32;
    let moved = |frame: KeptFrame<G, R::Tag>| KeptFrame { words_from: frame.words_from.wrapping_sub(down), ..frame };
    settle(frames, kept, (fresh, end_of_room), moved).ok_or(TooDeep)?;
    *extent = Extent { depth: kept.wrapping_add(count) };
    Ok(Walked { shared: kept, end })
}

/// Moves what lies in a range down to a place. `None` if that is not in there.
#[inline(always)]
fn settle<T: Copy>(all: &mut [T], to: usize, (from, end): (usize, usize), moved: impl Fn(T) -> T) -> Option<()> {
    // Cells, since the two may overlap.
    let all = Cell::from_mut(all).as_slice_of_cells();
    for (to, from) in all.get(to..)?.iter().zip(all.get(from..end)?) {
        to.set(moved(from.get()));
    }
    Some(())
}

/// How a walk ends that comes to the last of the first so many kept frames; `None` if these are not as they were when they were walked.
///
/// The comparison alone of a walk: nothing that is kept changes.
#[inline(always)]
pub fn end_from<G, R, M>(
    (frames, words): (&[KeptFrame<G, R::Tag>], &[Word]),
    depth: usize,
    rules: &mut R,
    memory: &mut M,
) -> Option<Result<(), Truncated>>
where
    G: Unwind + PartialEq,
    R: Rules,
    M: Memory,
{
    match verify(frames, words, depth, &mut { STACK_SWITCHES }, rules, memory)? {
        Verified::ToTheEnd(end) => Some(end),
        Verified::Until(_) => None,
    }
}

/// What the way from a leaf to a kept frame depends on: see [`tip_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// How many words.
    pub words: usize,
    /// Whether it depends on the leaf's frame pointer, or what lies root-ward does.
    pub needs_frame_pointer: bool,
    /// Whether what lies root-ward depends on the kept frame's own frame pointer.
    pub joint_needs_frame_pointer: bool,
}

/// The words that tell whether the way from the last of some kept frames to the first, the *joint*, is as it was, to the front of `tip`, beginning with the return address that lies at the
/// joint; `None` if there are more than fit, or if it takes more than comparing.
///
/// Where memory holds these words, and the leaf is where it was, a walk comes to the joint. A frame pointer that nobody root-ward asks for, because it is saved once more before, is not
/// among them: in code that has none, the register holds what it likes.
pub fn tip_of<G: Unwind, R: Rules>(
    (frames, words): (&[KeptFrame<G, R::Tag>], &[Word]),
    rules: &mut R,
    tip: &mut [Word],
) -> Option<Tip> {
    let mut count = 0;
    let mut put = |word: Option<&Word>| {
        *tip.get_mut(count)? = *word?;
        count = count.wrapping_add(1);
        Some(())
    };
    let mut asks = |frame: &KeptFrame<G, R::Tag>| G::needs_frame_pointer(rules.lookup(frame.address()).0);
    let (joint, callees) = frames.split_first()?;
    let joint_needs_frame_pointer = joint.check != Check::Words || asks(joint);
    let mut needed = joint_needs_frame_pointer;
    for frame in callees {
        let mut of_frame = words.get(frame.words_from as usize..)?.iter();
        let is_needed = core::mem::replace(&mut needed, asks(frame));
        match frame.check {
            Check::Word => {
                put(of_frame.next())?;
                needed |= is_needed;
            }
            Check::Words => {
                let frame_pointer = of_frame.next();
                put(of_frame.next())?;
                if is_needed {
                    put(frame_pointer)?;
                }
            }
            Check::Step | Check::Root => return None,
        }
    }
    Some(Tip { words: count, needs_frame_pointer: needed, joint_needs_frame_pointer })
}

/// How many words the first so many frames have.
#[inline]
fn words_of<G: Unwind, T>(frames: &[KeptFrame<G, T>], depth: usize) -> Option<usize> {
    match depth.checked_sub(1) {
        Some(last) => Some(frames.get(last)?.words_end()),
        None => Some(0),
    }
}

/// Where a walk came to.
struct Ran {
    end: Result<(), Truncated>,
    /// Kept frames that are shared, from the start of the room.
    kept: usize,
    /// New frames lie from here to the end of the room, the leaf last.
    fresh: usize,
    /// And their words from here.
    fresh_words: usize,
}

/// `None` if there is no room.
///
/// A function of its own, whose variables are all that the processor's registers have to hold: they are what it is about.
#[inline(never)]
fn run<G, R, M>(
    frames: &mut [KeptFrame<G, R::Tag>],
    words: &mut [Word],
    (mut kept, end_of_room): (usize, usize),
    (start, registers): (FrameAddress, G),
    rules: &mut R,
    memory: &mut M,
) -> Option<Ran>
where
    G: Unwind + PartialEq,
    R: Rules,
    M: Memory,
{
    let mut registers = registers.pack();
    let mut is_instruction = matches!(start, FrameAddress::Instruction(_));
    // Two words for each frame: where there is room for a frame there is for its words.
    let (mut fresh, mut fresh_words) = (end_of_room, end_of_room.wrapping_mul(2));
    let mut switches = STACK_SWITCHES;
    loop {
        // Frames that lie below this one have returned.
        while let Some(top) = kept.checked_sub(1)
            && frames.get(top)?.registers().sp() < G::unpack(registers).sp()
        {
            kept = top;
        }
        if let Some(top) = kept.checked_sub(1)
            && let frame = frames.get(top)?
            && frame.registers == registers
            && frame.is_instruction == is_instruction
        {
            match verify(frames, words, kept, &mut switches, rules, memory)? {
                Verified::ToTheEnd(end) => return Some(Ran { end, kept, fresh, fresh_words }),
                Verified::Until(changed) => {
                    // Everything from the leaf to the changed frame is as it was, but its callers are not.
                    while let Some(top) = kept.checked_sub(1)
                        && top > changed
                    {
                        fresh = fresh.wrapping_sub(1);
                        fresh_words = renew(frames, words, top, fresh, fresh_words)?;
                        kept = top;
                    }
                    let frame = frames.get(changed)?;
                    kept = changed;
                    (registers, is_instruction) = (frame.registers, frame.is_instruction);
                }
            }
        }
        let (rule, tag) = rules.lookup(address_of(G::unpack(registers).pc(), is_instruction));
        if fresh <= kept {
            return None;
        }
        fresh = fresh.wrapping_sub(1);
        let new = KeptFrame { registers, note: 0, words_from: 0, tag, is_instruction, check: Check::Step };
        if let Some(Quick { caller, return_address, frame_pointer }) = G::step_quickly(&registers, rule, memory) {
            let read = (Word::of(return_address), frame_pointer.map(Word::of));
            let check = push(words, &mut fresh_words, Some(read))?;
            *frames.get_mut(fresh)? = KeptFrame { words_from: fresh_words as u32, check, ..new };
            (registers, is_instruction) = (caller, false);
            continue;
        }
        let Followed { read, next } = follow(G::unpack(registers), rule, memory);
        let check = match push(words, &mut fresh_words, read)? {
            _ if rule == Rule::END_OF_STACK => Check::Root,
            check => check,
        };
        *frames.get_mut(fresh)? = KeptFrame { words_from: fresh_words as u32, check, ..new };
        let caller = match next {
            Ok(caller) => caller,
            Err(end) => {
                // Nothing root-ward of the root is shared.
                return Some(Ran { end, kept: 0, fresh, fresh_words });
            }
        };
        if caller.stack_switch {
            match switches.checked_sub(1) {
                Some(left) => switches = left,
                None => return Some(Ran { end: Err(Truncated::NoProgress), kept: 0, fresh, fresh_words }),
            }
        }
        registers = caller.registers.pack();
        is_instruction = matches!(caller.address, FrameAddress::Instruction(_));
    }
}

/// What a step read, if comparing that is enough to verify it: the return address, and the frame pointer if it was saved.
type Read = Option<(Word, Option<Word>)>;

/// Puts the words of a new frame before those that are there; how it can be verified.
#[inline(always)]
fn push(words: &mut [Word], from: &mut usize, read: Read) -> Option<Check> {
    *from = from.checked_sub(if let Some((_, None)) = read { 1 } else { 2 })?;
    let place = words.get_mut(*from..)?;
    let (check, words) = match read {
        Some((return_address, None)) => {
            *place.first_mut()? = return_address;
            return Some(Check::Word);
        }
        Some((return_address, Some(frame_pointer))) => (Check::Words, [frame_pointer, return_address]),
        None => (Check::Step, Word::NONE),
    };
    *place.first_chunk_mut()? = words;
    Some(check)
}

/// A step by any rule.
struct Followed<G> {
    read: Read,
    /// The caller, or how the walk ends.
    next: Result<Caller<G>, Result<(), Truncated>>,
}

/// From a frame to its caller, where [`Unwind::step_quickly`] did not know it.
#[inline(never)]
fn follow<G: Unwind, M: Memory>(registers: G, rule: Rule, memory: &mut M) -> Followed<G> {
    let caller = match registers.step(rule, memory) {
        Ok(Some(caller)) => caller,
        Ok(None) => return Followed { read: None, next: Err(Ok(())) },
        Err(reason) => return Followed { read: None, next: Err(Err(reason)) },
    };
    let slots = caller.slots;
    let mut read = None;
    if let (Some(return_slot), None, None, false) =
        (slots.return_address, slots.cfa, slots.link_register, caller.stack_switch)
    {
        // The words themselves: where return addresses are signed, the caller's address is not what memory holds. Words below the frame are nobody's: a rule that reads them is followed again.
        let mut word = |address: u64| memory.numbered_word(address).filter(|_| address >= registers.sp()).map(Word::of);
        read = match (word(return_slot), slots.frame_pointer.map(word)) {
            (Some(at), None) => Some((at, None)),
            (Some(at), Some(Some(fp_at))) => Some((at, Some(fp_at))),
            _ => None,
        };
    }
    Followed { read, next: Ok(caller) }
}

/// A kept frame becomes a new one, with the words that it has; where the words of the new ones begin then.
#[cold]
fn renew<G: Unwind, T: Copy>(
    frames: &mut [KeptFrame<G, T>],
    words: &mut [Word],
    from: usize,
    to: usize,
    fresh_words: usize,
) -> Option<usize> {
    let frame = *frames.get(from)?;
    let (first, end) = (frame.words_from as usize, frame.words_end());
    let fresh_words = fresh_words.checked_sub(end.wrapping_sub(first))?;
    // Where the two overlap, there is no room for the frame's new caller either: nothing will be kept.
    for i in first..end {
        let word = *words.get(i)?;
        *words.get_mut(i.wrapping_sub(first).wrapping_add(fresh_words))? = word;
    }
    *frames.get_mut(to)? = KeptFrame { note: 0, words_from: fresh_words as u32, ..frame };
    Some(fresh_words)
}

/// Compares the kept frames from the newest root-ward.
#[inline(always)]
fn verify<G, R, M>(
    frames: &[KeptFrame<G, R::Tag>],
    words: &[Word],
    kept: usize,
    switches: &mut u8,
    rules: &mut R,
    memory: &mut M,
) -> Option<Verified>
where
    G: Unwind + PartialEq,
    R: Rules,
    M: Memory,
{
    let (mut index, mut words_end) = (kept, words_of(frames, kept)?);
    // The words of a root need not hold.
    let root_end = match frames.first()? {
        root if root.check == Check::Root => root.words_end(),
        _ => 0,
    };
    loop {
        // From one switch of stacks to the next, callers lie above the frames that they called, and words in their frames.
        let sp = frames.get(index.checked_sub(1)?)?.registers().sp();
        let compared = words.get(root_end..words_end)?;
        let changed = compared.len().checked_sub(memory.unchanged(compared, sp))?;
        if changed == 0 && root_end != 0 {
            return Some(Verified::ToTheEnd(Ok(())));
        }
        let at = root_end.wrapping_add(changed).checked_sub(1)?;
        let i = frame_of(frames, index, at)?;
        match frames.get(i)?.check {
            Check::Word | Check::Words => return Some(Verified::Until(i)),
            Check::Root => return Some(Verified::ToTheEnd(Ok(()))),
            Check::Step => match step_again(frames, i, *switches, rules, memory)? {
                Stepped::Same(left) => {
                    *switches = left;
                    // Either of its two words can be the one that differs.
                    (index, words_end) = (i, frames.get(i)?.words_from as usize);
                }
                Stepped::End(end) => return Some(Verified::ToTheEnd(end)),
                Stepped::Differs => return Some(Verified::Until(i)),
            },
        }
    }
}

/// The frame, among the first so many, that has the word at a place.
#[inline]
fn frame_of<G: Unwind, T>(frames: &[KeptFrame<G, T>], depth: usize, at: usize) -> Option<usize> {
    let mut index = depth;
    loop {
        index = index.checked_sub(1)?;
        if frames.get(index)?.words_from as usize <= at {
            return Some(index);
        }
    }
}

#[cold]
fn step_again<G, R, M>(
    frames: &[KeptFrame<G, R::Tag>],
    index: usize,
    switches: u8,
    rules: &mut R,
    memory: &mut M,
) -> Option<Stepped>
where
    G: Unwind + PartialEq,
    R: Rules,
    M: Memory,
{
    let frame = frames.get(index)?;
    let (rule, _) = rules.lookup(frame.address());
    let expected = match index.checked_sub(1) {
        Some(root_ward) => Some(frames.get(root_ward)?),
        None => None,
    };
    Some(match (frame.registers().step(rule, memory), expected) {
        (Ok(Some(caller)), Some(kept)) if kept.registers() == caller.registers && kept.address() == caller.address => {
            // A kept walk counted its switches; those of one that is put together from several must be counted again.
            match switches.checked_sub(u8::from(caller.stack_switch)) {
                Some(left) => Stepped::Same(left),
                None => Stepped::Differs,
            }
        }
        (Ok(None), None) => Stepped::End(Ok(())),
        (Err(reason), None) => Stepped::End(Err(reason)),
        _ => Stepped::Differs,
    })
}

enum Verified {
    /// All of them hold, and so the walk ends.
    ToTheEnd(Result<(), Truncated>),
    /// The frame with this index has another caller than before.
    Until(usize),
}

enum Stepped {
    /// With so many switches of stacks left.
    Same(u8),
    End(Result<(), Truncated>),
    Differs,
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tip_tests;
