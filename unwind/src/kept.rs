//! The verified incremental walk: the stack of a thread that was walked a moment ago has mostly not changed.
//!
//! Walking is a pure function: a frame's registers and the words that its rule reads give its caller. So each walk keeps, for every frame, its registers and those
//! words. The next walk proceeds from the leaf until it comes to a frame whose registers equal a kept one's. From there root-ward it only compares: as long as the
//! words are the same, so are the callers, by induction. If a word differs, walking resumes at that frame. The result is that of a plain walk, always.
//!
//! What rules say about an address must not change in between; whoever changes that (an object was loaded or closed) drops what was kept.

use crate::{FrameAddress, Memory, Rule, Rules, STACK_SWITCHES, Slot, Truncated, Unwind};

/// One frame of a kept walk.
#[derive(Clone, Copy, Debug)]
pub struct KeptFrame<G: Unwind, T> {
    registers: G::Packed,
    /// Belongs to the caller of the walk, for as long as the frame and everything root-ward stays the same; zero in a new frame.
    pub note: u64,
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
    /// The frame among the kept ones.
    pub frame: u32,
    /// What it was.
    pub word: u64,
}

impl Word {
    /// Words of a frame that is not verified by comparing: memory cannot hold both. The slot is that of a stack's last word, which can be read where any can.
    #[inline]
    pub const fn none(frame: u32) -> [Self; 2] {
        let slot = Slot(u32::MAX);
        [Self { slot, frame, word: 0 }, Self { slot, frame, word: 1 }]
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
    /// Their words.
    words: usize,
}

impl<G: Unwind, T> KeptFrame<G, T> {
    #[inline]
    fn new(address: FrameAddress, registers: G, tag: T) -> Self {
        let is_instruction = matches!(address, FrameAddress::Instruction(_));
        Self { registers: registers.pack(), note: 0, tag, is_instruction, check: Check::Step }
    }

    /// The frame's address.
    #[inline]
    pub fn address(&self) -> FrameAddress {
        let pc = self.registers().pc();
        if self.is_instruction { FrameAddress::Instruction(pc) } else { FrameAddress::ReturnAddress(pc) }
    }

    /// The frame's registers.
    #[inline]
    pub fn registers(&self) -> G {
        G::unpack(self.registers)
    }

    /// How many words it has.
    #[inline]
    fn words(&self) -> usize {
        if self.check == Check::Word { 1 } else { 2 }
    }
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
    let kept = core::mem::take(extent);
    let Room { frames, words } = room;
    let end_of_room = Extent { depth: frames.len(), words: words.len() };
    let mut walk = Walk { room: end_of_room, kept, frames, words, rules, memory, switches: STACK_SWITCHES };
    let end = walk.run(address, registers).ok_or(TooDeep)?;
    let (shared, from) = (walk.kept, walk.room);
    let fresh = end_of_room.depth.wrapping_sub(from.depth);
    let fresh_words = end_of_room.words.wrapping_sub(from.words);
    // The new ones move down to the shared ones. Ranges are tried before they are used, so that no panic is compiled in.
    if fresh > 0
        && let Some(frames) = walk.frames.get_mut(shared.depth..)
        && let Some(words) = walk.words.get_mut(shared.words..)
    {
        let gap = from.depth.wrapping_sub(shared.depth);
        if gap > 0 && frames.get(gap..).is_some() {
            frames.copy_within(gap.., 0);
        }
        let words_gap = from.words.wrapping_sub(shared.words);
        for to in 0..fresh_words {
            let Some(word) = words.get(to.wrapping_add(words_gap)).copied() else { break };
            let frame = word.frame.wrapping_sub(gap as u32);
            if let Some(to) = words.get_mut(to) {
                *to = Word { frame, ..word };
            }
        }
    }
    *extent = Extent { depth: shared.depth.wrapping_add(fresh), words: shared.words.wrapping_add(fresh_words) };
    Ok(Walked { shared: shared.depth, end })
}

struct Walk<'a, G: Unwind, R: Rules, M> {
    /// Kept frames from the start, root first; new ones towards the end, the leaf last, from `room` on.
    frames: &'a mut [KeptFrame<G, R::Tag>],
    words: &'a mut [Word],
    /// Kept frames that may still be met.
    kept: Extent,
    room: Extent,
    rules: &'a mut R,
    memory: &'a mut M,
    switches: u8,
}

impl<G: Unwind + PartialEq, R: Rules, M: Memory> Walk<'_, G, R, M> {
    /// `None` if there is no room.
    #[inline]
    fn run(&mut self, mut address: FrameAddress, mut registers: G) -> Option<Result<(), Truncated>> {
        let mut rule;
        loop {
            // Frames that lie below this one have returned.
            while let Some(top) = self.kept.depth.checked_sub(1)
                && let top_frame = self.frames.get(top)?
                && top_frame.registers().sp() < registers.sp()
            {
                self.kept.words = self.kept.words.checked_sub(top_frame.words())?;
                self.kept.depth = top;
            }
            if let Some(top) = self.kept.depth.checked_sub(1)
                && let kept = self.frames.get(top)?
                && kept.registers() == registers
                && kept.address() == address
            {
                match self.verify()? {
                    Verified::ToTheEnd(end) => return Some(end),
                    Verified::Until(changed) => {
                        // Everything from the leaf to the changed frame is as it was, but its callers are not.
                        while self.kept.depth > changed {
                            self.renew()?;
                        }
                        let frame = self.frames.get(self.room.depth)?;
                        self.room.words = self.room.words.checked_add(frame.words())?;
                        (address, registers) = (frame.address(), frame.registers());
                        rule = self.rules.lookup(address).0;
                    }
                }
            } else {
                let (found, tag) = self.rules.lookup(address);
                rule = found;
                self.push(KeptFrame::new(address, registers, tag))?;
            }
            if let Some(end) = self.step(rule, &mut address, &mut registers) {
                self.push_words(Word::none)?;
                // Nothing root-ward of the root is shared.
                self.kept = Extent::default();
                return Some(end);
            }
        }
    }

    /// A new frame, whose words are still to come.
    #[inline]
    fn push(&mut self, frame: KeptFrame<G, R::Tag>) -> Option<()> {
        let at = self.room.depth.checked_sub(1).filter(|at| *at >= self.kept.depth)?;
        *self.frames.get_mut(at)? = frame;
        self.room.depth = at;
        Some(())
    }

    /// The words of the newest frame.
    #[inline]
    fn push_words<const N: usize>(&mut self, words: impl Fn(u32) -> [Word; N]) -> Option<()> {
        let at = self.room.words.checked_sub(N).filter(|at| *at >= self.kept.words)?;
        *self.words.get_mut(at..)?.first_chunk_mut()? = words(self.room.depth as u32);
        self.room.words = at;
        Some(())
    }

    /// The newest of the kept frames becomes a new one, with the words that it has.
    fn renew(&mut self) -> Option<()> {
        let top = self.kept.depth.checked_sub(1)?;
        let frame = *self.frames.get(top)?;
        let from = self.kept.words.checked_sub(frame.words())?;
        self.kept = Extent { depth: top, words: from };
        self.push(KeptFrame { note: 0, ..frame })?;
        for i in (0..frame.words()).rev() {
            let word = *self.words.get(from.wrapping_add(i))?;
            self.push_words(|frame| [Word { frame, ..word }])?;
        }
        Some(())
    }

    /// From the newest frame, the first of the new ones, to its caller, or to the end of the walk; notes how to verify it. At the end its words are still to come.
    #[inline]
    fn step(&mut self, rule: Rule, address: &mut FrameAddress, registers: &mut G) -> Option<Result<(), Truncated>> {
        let frame_sp = registers.sp();
        let stepped = registers.step(rule, self.memory);
        let Some(frame) = self.frames.get_mut(self.room.depth) else { return Some(Ok(())) };
        frame.check = Check::Step;
        let caller = match stepped {
            Ok(Some(caller)) => caller,
            Ok(None) => {
                if rule == Rule::END_OF_STACK {
                    frame.check = Check::Root;
                }
                return Some(Ok(()));
            }
            Err(reason) => return Some(Err(reason)),
        };
        if caller.stack_switch {
            match self.switches.checked_sub(1) {
                Some(left) => self.switches = left,
                None => return Some(Err(Truncated::NoProgress)),
            }
        }
        let slots = caller.slots;
        let mut compared = None;
        if let (Some(return_slot), None, None, false) =
            (slots.return_address, slots.cfa, slots.link_register, caller.stack_switch)
        {
            // The words themselves: where return addresses are signed, the caller's address is not what memory holds. Words below the frame are nobody's: a rule that reads them is followed again.
            let mut word = |address: u64| {
                let slot = self.memory.slot(address).filter(|_| address >= frame_sp)?;
                Some((slot, self.memory.read(address)?))
            };
            compared = match (word(return_slot), slots.frame_pointer.map(word)) {
                (Some(at), None) => Some((at, None)),
                (Some(at), Some(Some(fp_at))) => Some((at, Some(fp_at))),
                _ => None,
            };
        }
        let word = |frame, (slot, word)| Word { slot, frame, word };
        let pushed = match compared {
            Some((at, None)) => {
                frame.check = Check::Word;
                self.push_words(|frame| [word(frame, at)])
            }
            Some((at, Some(fp_at))) => {
                frame.check = Check::Words;
                self.push_words(|frame| [word(frame, fp_at), word(frame, at)])
            }
            None => self.push_words(Word::none),
        };
        if pushed.is_none() {
            // Nor will there be room for those of an end.
            return Some(Ok(()));
        }
        *address = caller.address;
        *registers = caller.registers;
        None
    }

    /// Compares the kept frames from the newest root-ward.
    #[inline]
    fn verify(&mut self) -> Option<Verified> {
        let (mut index, mut words) = (self.kept.depth, self.kept.words);
        loop {
            // From one switch of stacks to the next, callers lie above the frames that they called, and words in their frames.
            let sp = self.frames.get(index.checked_sub(1)?)?.registers().sp();
            let at = words.checked_sub(self.memory.unchanged(self.words.get(..words)?, sp))?.checked_sub(1)?;
            let i = self.words.get(at)?.frame as usize;
            match self.frames.get(i)?.check {
                Check::Word | Check::Words => return Some(Verified::Until(i)),
                Check::Root => return Some(Verified::ToTheEnd(Ok(()))),
                Check::Step => match self.step_again(i)? {
                    Stepped::Same => {
                        // Either of its two words can be the one that differs.
                        let before = at
                            .checked_sub(1)
                            .filter(|before| self.words.get(*before).is_some_and(|word| word.frame as usize == i));
                        (index, words) = (i, before.unwrap_or(at));
                    }
                    Stepped::End(end) => return Some(Verified::ToTheEnd(end)),
                    Stepped::Differs => return Some(Verified::Until(i)),
                },
            }
        }
    }

    #[cold]
    fn step_again(&mut self, index: usize) -> Option<Stepped> {
        let frame = *self.frames.get(index)?;
        let (rule, _) = self.rules.lookup(frame.address());
        let expected = match index.checked_sub(1) {
            Some(root_ward) => Some(self.frames.get(root_ward)?),
            None => None,
        };
        Some(match (frame.registers().step(rule, self.memory), expected) {
            (Ok(Some(caller)), Some(kept))
                if kept.registers() == caller.registers && kept.address() == caller.address =>
            {
                // A kept walk counted its switches; those of one that is put together from several must be counted again.
                if caller.stack_switch {
                    match self.switches.checked_sub(1) {
                        Some(left) => self.switches = left,
                        None => return Some(Stepped::Differs),
                    }
                }
                Stepped::Same
            }
            (Ok(None), None) => Stepped::End(Ok(())),
            (Err(reason), None) => Stepped::End(Err(reason)),
            _ => Stepped::Differs,
        })
    }
}

enum Verified {
    /// All of them hold, and so the walk ends.
    ToTheEnd(Result<(), Truncated>),
    /// The frame with this index has another caller than before.
    Until(usize),
}

enum Stepped {
    Same,
    End(Result<(), Truncated>),
    Differs,
}

#[cfg(test)]
mod tests;
