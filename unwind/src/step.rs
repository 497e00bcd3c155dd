use crate::kept::Word;
use crate::{FrameAddress, Rule};

/// Reads the walked stack.
pub trait Memory {
    /// The eight bytes at `address`, which may be unaligned; `None` if they cannot be read.
    fn read(&mut self, address: u64) -> Option<u64>;

    /// A number for the word at `address`, if it lies where every walk of this stack that begins nearer to the leaf can read it: in the thread's own stack.
    fn slot(&self, address: u64) -> Option<Slot> {
        let _ = address;
        None
    }

    /// The word with this number, if it is nearer to the root than where this walk began.
    fn read_slot(&mut self, slot: Slot) -> Option<u64> {
        let _ = slot;
        None
    }

    /// The number of the word at `address`, and the word, if it has one.
    #[inline]
    fn numbered_word(&mut self, address: u64) -> Option<(Slot, u64)> {
        let slot = self.slot(address)?;
        Some((slot, self.read(address)?))
    }

    /// How many of these, from the last on, still are what memory holds. Of two that are [`Word::NONE`] one is not; the others, up to the next of these, lie at `sp` or nearer to the root. None are if it is
    /// not known that all memory from there on can be read.
    #[inline]
    fn unchanged(&mut self, words: &[Word], sp: u64) -> usize {
        let _ = sp;
        words.iter().rev().take_while(|word| word.holds(self)).count()
    }
}

/// The number of a word of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot(pub u32);

impl<M: Memory + ?Sized> Memory for &mut M {
    #[inline]
    fn read(&mut self, address: u64) -> Option<u64> {
        (**self).read(address)
    }

    #[inline]
    fn slot(&self, address: u64) -> Option<Slot> {
        (**self).slot(address)
    }

    #[inline]
    fn read_slot(&mut self, slot: Slot) -> Option<u64> {
        (**self).read_slot(slot)
    }

    #[inline]
    fn numbered_word(&mut self, address: u64) -> Option<(Slot, u64)> {
        (**self).numbered_word(address)
    }

    #[inline]
    fn unchanged(&mut self, words: &[Word], sp: u64) -> usize {
        (**self).unchanged(words, sp)
    }
}

/// Why a walk stopped before the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truncated {
    /// No table covers the address, and there is no plausible frame-pointer chain.
    NoTable,
    /// The table marks the address with [`Rule::UNSUPPORTED`], or the rule means nothing.
    UnsupportedRule,
    /// A stack slot could not be read.
    StackUnreadable,
    /// The caller would not lie nearer to the root.
    NoProgress,
    /// The frame pointer is needed but not known.
    FramePointerUnknown,
}

/// The registers of a frame: the architecture's way to its caller.
pub trait Unwind: Copy {
    /// The registers as they are kept in memory for later. Laid out in another way: a copy of all at once would read pairs of words that were just written one by one, which stalls
    /// the processor.
    type Packed: Copy + PartialEq + core::fmt::Debug;

    /// To be kept.
    fn pack(self) -> Self::Packed;

    /// What was kept.
    fn unpack(packed: Self::Packed) -> Self;

    /// The address of the next instruction.
    fn pc(&self) -> u64;

    /// The stack pointer.
    fn sp(&self) -> u64;

    /// The caller of the frame with these registers, `None` if the frame is the root.
    ///
    /// The caller's stack pointer lies strictly above this frame's, with two exceptions. A leaf that has its return address in a register
    /// (aarch64) may share it. And where the rule loads the caller's stack pointer or takes it from the frame pointer, the
    /// caller may lie on another stack, hence lower: [`Caller::stack_switch`] says so, and whoever steps in a loop bounds their number,
    /// as [`Walker`](crate::Walker) does.
    ///
    /// # Errors
    ///
    /// The reason why there is no exact caller.
    fn step<M: Memory>(&self, rule: Rule, memory: &mut M) -> Result<Option<Caller<Self>>, Truncated>;

    /// What [`step`](Self::step) finds, for rules that nearly all frames have, where all that it reads has a [`Slot`] and lies at the frame's stack pointer or nearer to the root. `None`
    /// says nothing.
    #[inline(always)]
    fn step_quickly<M: Memory>(frame: &Self::Packed, rule: Rule, memory: &mut M) -> Option<Quick<Self::Packed>> {
        let _ = (frame, rule, memory);
        None
    }

    /// Whether a step by this rule depends on the frame pointer, other than that the caller may have the same.
    #[inline]
    fn needs_frame_pointer(rule: Rule) -> bool {
        let _ = rule;
        true
    }
}

/// What a quick step found: a caller by a return address, on the same stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quick<G, Place = Slot> {
    /// The caller's registers.
    pub caller: G,
    /// The word of the return address, and where it is.
    pub return_address: (Place, u64),
    /// The word of the caller's frame pointer, if that was saved.
    pub frame_pointer: Option<(Place, u64)>,
}

/// What one step found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller<G> {
    /// The caller's registers, as they will be when the call has returned. The stack pointer is the frame's CFA.
    pub registers: G,
    /// The caller's `pc` with its meaning: an instruction if the frame was made by a signal, else a return address.
    pub address: FrameAddress,
    /// What was read from memory.
    pub slots: Slots,
    /// The caller's stack pointer is lower than the frame's: the two lie on different stacks.
    pub stack_switch: bool,
}

/// Addresses of the words that a step read; a step with the same registers and rule that finds the same words gives the same caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Slot of the return address; `None` if it was in a register.
    pub return_address: Option<u64>,
    /// Slot of the caller's frame pointer; `None` if it still was in its register, or is lost.
    pub frame_pointer: Option<u64>,
    /// Slot from which the CFA was loaded, for the rules that do so.
    pub cfa: Option<u64>,
    /// Slot of the link register (aarch64, frames made by a signal).
    pub link_register: Option<u64>,
}

/// Bytes from address 0 in which no code lies on any system.
const LOWEST_CODE: u64 = 4096;

/// A step along the chain of frame pointers, for code without tables: both architectures keep the caller's frame pointer
/// at the frame pointer and the return address in the next word.
///
/// Returns the caller's frame pointer, return address and stack pointer if the chain is plausible: the return address lies in memory, and the caller's frame pointer is nearer to the
/// root. A caller with tables may keep anything in that register; then the eight bytes before the return address have to end with a call.
#[inline(never)]
pub(crate) fn by_frame_pointer<M: Memory>(
    sp: u64,
    fp: Option<u64>,
    memory: &mut M,
    strip: impl Fn(u64) -> u64,
    ends_with_call: impl Fn(u64) -> bool,
) -> Option<Chained> {
    let slot = fp.filter(|fp| fp % 8 == 0 && *fp >= sp)?;
    let return_slot = slot.checked_add(8)?;
    let cfa = slot.checked_add(16)?;
    let fp = memory.read(slot)?;
    let return_address = memory.read(return_slot).filter(|address| *address >= LOWEST_CODE)?;
    let before = memory.read(strip(return_address).wrapping_sub(8))?;
    if fp != 0 && fp <= slot && !ends_with_call(before) {
        return None;
    }
    Some(Chained { slot, return_slot, cfa, fp, return_address })
}

pub(crate) struct Chained {
    pub(crate) slot: u64,
    pub(crate) return_slot: u64,
    pub(crate) cfa: u64,
    pub(crate) fp: u64,
    pub(crate) return_address: u64,
}

/// `base` moved by a rule's signed offset.
#[inline]
pub(crate) const fn at(base: u64, offset: i32) -> u64 {
    base.wrapping_add_signed(offset as i64)
}
