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
    /// By comparing its words.
    Words,
    /// By stepping again: its rule reads more than these words, or they lie on another stack, or it is where an incomplete walk ended.
    Step,
    /// Not at all: its rule says that it is the root, whatever memory holds.
    Root,
}

/// The words that were read for a frame's caller. Apart from the frames, since comparing them is all that most frames ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Words {
    /// Where they are: the return address's [`Slot`] in the lower half; in the upper half that of the caller's frame pointer, or the return address's again if that was not
    /// read from memory.
    pub slots: u64,
    /// The return address.
    pub return_word: u64,
    /// The caller's frame pointer.
    pub fp_word: u64,
}

impl Words {
    /// None that are to be compared: memory cannot hold both. The slot is that of a stack's last word, which can be read where any can.
    pub const NONE: Self = Self { slots: u64::MAX, return_word: 0, fp_word: 1 };

    /// Whether they still are what memory holds.
    #[inline]
    pub fn hold(&self, memory: &mut (impl Memory + ?Sized)) -> bool {
        let [return_slot, fp_slot] = [Slot(self.slots as u32), Slot((self.slots >> 32) as u32)];
        memory.read_slot(return_slot) == Some(self.return_word) && memory.read_slot(fp_slot) == Some(self.fp_word)
    }
}

/// What is kept, in memory of the caller: both slices have the same length.
#[derive(Debug)]
pub struct Room<'a, G: Unwind, T> {
    /// The frames, root first.
    pub frames: &'a mut [KeptFrame<G, T>],
    /// The words of each frame.
    pub words: &'a mut [Words],
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

/// Walks a stack and leaves it in the first `depth` places of `room`, root first.
///
/// `address` is that of the registers. There is what the walk before left; a depth of zero makes this a plain walk. The remaining places are used while walking.
#[inline]
pub fn walk<G, R, M>(
    room: Room<'_, G, R::Tag>,
    depth: &mut usize,
    (address, registers): (FrameAddress, G),
    rules: &mut R,
    memory: &mut M,
) -> Result<Walked, TooDeep>
where
    G: Unwind + PartialEq,
    R: Rules,
    M: Memory,
{
    let kept = core::mem::replace(depth, 0);
    let Room { frames, words } = room;
    let mut walk =
        Walk { room: frames.len().min(words.len()), kept, frames, words, rules, memory, switches: STACK_SWITCHES };
    let end_of_room = walk.room;
    let end = walk.run(address, registers).ok_or(TooDeep)?;
    let shared = walk.kept;
    let fresh = end_of_room.wrapping_sub(walk.room);
    // The new ones move down to the shared ones. Ranges are tried before they are used, so that no panic is compiled in.
    if fresh > 0
        && walk.room != shared
        && let Some(frames) = walk.frames.get_mut(shared..end_of_room)
        && let Some(words) = walk.words.get_mut(shared..end_of_room)
    {
        let gap = frames.len().saturating_sub(fresh);
        if frames.get(gap..).is_some() {
            frames.copy_within(gap.., 0);
        }
        if words.get(gap..).is_some() {
            words.copy_within(gap.., 0);
        }
    }
    *depth = shared.wrapping_add(fresh);
    Ok(Walked { shared, end })
}

struct Walk<'a, G: Unwind, R: Rules, M> {
    /// Kept frames from the start, root first; new ones towards the end, the leaf last, from `room` on.
    frames: &'a mut [KeptFrame<G, R::Tag>],
    words: &'a mut [Words],
    /// Kept frames that may still be met.
    kept: usize,
    room: usize,
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
            while let Some(top) = self.kept.checked_sub(1)
                && self.frames.get(top)?.registers().sp() < registers.sp()
            {
                self.kept = top;
            }
            if let Some(top) = self.kept.checked_sub(1)
                && let kept = self.frames.get(top)?
                && kept.registers() == registers
                && kept.address() == address
            {
                match self.verify()? {
                    Verified::ToTheEnd(end) => return Some(end),
                    Verified::Until(changed) => {
                        // Everything from the leaf to the changed frame is as it was, but its callers are not.
                        for index in (changed..self.kept).rev() {
                            let frame = *self.frames.get(index)?;
                            self.push(KeptFrame { note: 0, ..frame }, changed)?;
                        }
                        self.kept = changed;
                        let frame = self.frames.get(self.room)?;
                        (address, registers) = (frame.address(), frame.registers());
                        rule = self.rules.lookup(address).0;
                    }
                }
            } else {
                let (found, tag) = self.rules.lookup(address);
                rule = found;
                self.push(KeptFrame::new(address, registers, tag), self.kept)?;
            }
            if let Some(end) = self.step(rule, &mut address, &mut registers) {
                // Nothing root-ward of the root is shared.
                self.kept = 0;
                return Some(end);
            }
        }
    }

    #[inline]
    fn push(&mut self, frame: KeptFrame<G, R::Tag>, kept: usize) -> Option<()> {
        let at = self.room.checked_sub(1).filter(|at| *at >= kept)?;
        *self.frames.get_mut(at)? = frame;
        // Their comparison fails, and the frame's check is looked at.
        *self.words.get_mut(at)? = Words::NONE;
        self.room = at;
        Some(())
    }

    /// From the newest frame, at `room`, to its caller, or to the end of the walk; notes how to verify it.
    #[inline]
    fn step(&mut self, rule: Rule, address: &mut FrameAddress, registers: &mut G) -> Option<Result<(), Truncated>> {
        let frame_sp = registers.sp();
        let caller = match registers.step(rule, self.memory) {
            Ok(caller) => caller,
            Err(reason) => return Some(Err(reason)),
        };
        let Some(frame) = self.frames.get_mut(self.room) else { return Some(Ok(())) };
        let Some(caller) = caller else {
            frame.check = if rule == Rule::END_OF_STACK { Check::Root } else { Check::Step };
            return Some(Ok(()));
        };
        if caller.stack_switch {
            match self.switches.checked_sub(1) {
                Some(left) => self.switches = left,
                None => return Some(Err(Truncated::NoProgress)),
            }
        }
        let slots = caller.slots;
        frame.check = Check::Step;
        if let (Some(return_slot), None, None, false) =
            (slots.return_address, slots.cfa, slots.link_register, caller.stack_switch)
        {
            // The words themselves: where return addresses are signed, the caller's address is not what memory holds.
            let fp_slot = slots.frame_pointer.unwrap_or(return_slot);
            // Words below the frame are nobody's: a rule that reads them is followed again.
            let is_above = return_slot >= frame_sp && fp_slot >= frame_sp;
            let numbers = self.memory.slot(return_slot).zip(self.memory.slot(fp_slot)).filter(|_| is_above);
            if let (Some((Slot(at), Slot(fp_at))), Some(return_word), Some(fp_word), Some(words)) =
                (numbers, self.memory.read(return_slot), self.memory.read(fp_slot), self.words.get_mut(self.room))
            {
                *words = Words { slots: u64::from(fp_at) << 32 | u64::from(at), return_word, fp_word };
                frame.check = Check::Words;
            }
        }
        *address = caller.address;
        *registers = caller.registers;
        None
    }

    /// Compares the kept frames from the newest root-ward.
    #[inline]
    fn verify(&mut self) -> Option<Verified> {
        let mut index = self.kept;
        loop {
            // From one switch of stacks to the next, callers lie above the frames that they called, and words in their frames.
            let sp = self.frames.get(index.checked_sub(1)?)?.registers().sp();
            index = index.wrapping_sub(self.memory.unchanged(self.words.get(..index)?, sp));
            let i = index.checked_sub(1)?;
            match self.frames.get(i)?.check {
                Check::Words => return Some(Verified::Until(i)),
                Check::Root => return Some(Verified::ToTheEnd(Ok(()))),
                Check::Step => match self.step_again(i)? {
                    Stepped::Same => index = i,
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
