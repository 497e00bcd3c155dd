//! Capturing a stack: walk, name each frame's module, enter the frames into the thread's tree.
//!
//! Called from: hooks and handlers, each with its own [`Recording`]. May: read the walked stack, probe pages; in a hook also build tables.
//! When a stack cannot be walked to its root, what was found is kept below a frame that names the reason.

use crate::modules::{self, All};
use crate::recover;
use crate::rules::{self, Context, Outside};
use crate::stack::{Bounds, StackMemory};
use crate::thread::{MAX_FRAMES, Recording};
use crate::tree::Place;
use core::marker::PhantomData;
use layout::{Frame, ModuleIndex, Pseudo, RecordId, Root, Truncated};
use unwind::arch::Registers;
use unwind::{FrameAddress, Memory, Rule, Rules, Step, Walker};

/// Frames of one stack whose callers take all registers.
const RECOVERIES: usize = 8;

pub(crate) struct Cached<C>(PhantomData<C>);

impl<C> Cached<C> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<C: Context> Rules for Cached<C> {
    type Tag = ModuleIndex;

    #[inline]
    fn lookup(&mut self, address: FrameAddress) -> (Rule, ModuleIndex) {
        let found = rules::resolve::<C>(address);
        (found.rule, found.module)
    }
}

/// Walks the calling thread's stack from `at`, with these registers, into `recording.frames`, leaf first. A reason for an early end is the last frame.
///
/// `all` are all registers at `at`, or in a frame below it that stays until this returns: some frames have no other way to their caller.
pub fn capture<C: Context>(
    recording: &mut Recording,
    stack: Bounds,
    at: FrameAddress,
    registers: Registers,
    all: Option<&All>,
) {
    if C::MAY_BUILD && modules::is_stale() {
        modules::refresh_if_stale();
    }
    capture_from::<C>(recording, StackMemory::new(stack, registers.sp), at, registers, all);
}

/// No walk: the leaf alone, below a frame that says that there was no room for one.
#[cold]
#[inline(never)]
pub fn capture_leaf(recording: &mut Recording, at: FrameAddress) {
    let module = match modules::find(at.for_lookup()) {
        modules::Found::Module(module) => module,
        _ => ModuleIndex::NONE,
    };
    let frame = match at {
        FrameAddress::Instruction(pc) => Frame::instruction(module, pc),
        FrameAddress::ReturnAddress(pc) => Frame::return_address(module, pc),
    };
    recording.depth = 0;
    push(recording, frame);
    push(recording, Frame::pseudo(Pseudo::Truncated(Truncated::NoRoom)));
}

/// The same for any stack, read by `memory`.
#[inline]
pub fn capture_from<C: Context>(
    recording: &mut Recording,
    mut memory: impl Memory,
    at: FrameAddress,
    registers: Registers,
    all: Option<&All>,
) {
    recording.depth = 0;
    let mut outcome = walk(recording, walker::<C, _>(at, registers, &mut memory), false);
    if let (Some(all), (Err(Truncated::UnsupportedRule), _)) = (all, &outcome) {
        outcome = go_on::<C>(recording, &mut memory, all, outcome);
    }
    if let Err(reason) = outcome.0 {
        push(recording, Frame::pseudo(Pseudo::Truncated(reason)));
    }
}

type Outcome = (Result<(), Truncated>, Registers);

#[cold]
fn go_on<C: Context>(recording: &mut Recording, memory: &mut impl Memory, all: &All, mut outcome: Outcome) -> Outcome {
    for _ in 0..RECOVERIES {
        let (Err(Truncated::UnsupportedRule), frame) = &outcome else { break };
        let Some((address, registers)) = recover::caller::<C>(all, frame, memory) else { break };
        outcome = walk(recording, walker::<C, _>(address, registers, &mut *memory), false);
    }
    outcome
}

#[inline]
fn walker<C: Context, M: Memory>(at: FrameAddress, registers: Registers, memory: M) -> Walker<Registers, Cached<C>, M> {
    match at {
        FrameAddress::Instruction(_) => Walker::at_instruction(registers, Cached::new(), memory),
        FrameAddress::ReturnAddress(_) => Walker::at_return_address(registers, Cached::new(), memory),
    }
}

/// The same for a thread whose frame pointer is not known: `derive` finds it for a frame that needs it, given the frame's registers.
pub fn capture_deriving<M: Memory>(
    recording: &mut Recording,
    mut memory: M,
    registers: Registers,
    mut derive: impl FnMut(&Registers, &mut M) -> Option<u64>,
) {
    if modules::is_stale() {
        modules::refresh_if_stale();
    }
    recording.depth = 0;
    let at = FrameAddress::Instruction(registers.pc);
    let mut outcome = walk(recording, walker::<Outside, _>(at, registers, &mut memory), false);
    // Each round goes on from a frame nearer to the root.
    while let (Err(Truncated::FramePointerUnknown), registers) = outcome {
        let Some(fp) = derive(&registers, &mut memory) else { break };
        let registers = Registers { fp: Some(fp), ..registers };
        let at = FrameAddress::ReturnAddress(registers.pc);
        // The frame itself was entered before.
        outcome = walk(recording, walker::<Outside, _>(at, registers, &mut memory), true);
    }
    if let Err(reason) = outcome.0 {
        push(recording, Frame::pseudo(Pseudo::Truncated(reason)));
    }
}

/// Enters the frames of a walk, but for the first if `skip_first`; how it ended, and where.
#[inline]
fn walk<C: Context>(
    recording: &mut Recording,
    mut walker: Walker<Registers, Cached<C>, impl Memory>,
    mut skip_first: bool,
) -> Outcome {
    loop {
        let frame = match walker.advance() {
            Step::Frame(address, module) => {
                // One word is kept for the reason of an early end.
                if recording.depth >= MAX_FRAMES - 1 {
                    return (Err(Truncated::TooDeep), *walker.registers());
                }
                match address {
                    FrameAddress::Instruction(avma) => Frame::instruction(module, avma),
                    FrameAddress::ReturnAddress(avma) => Frame::return_address(module, avma),
                }
            }
            Step::End(end) => return (end.map_err(reason_of), *walker.registers()),
        };
        if !core::mem::take(&mut skip_first) && !modules::is_own(frame.module()) {
            push(recording, frame);
        }
    }
}

#[inline]
fn push(recording: &mut Recording, frame: Frame) {
    if let Some(slot) = recording.frames.get_mut(recording.depth) {
        *slot = frame.to_bits();
        recording.depth += 1;
    }
}

/// The frame address (DWARF's CFA) of a frame with these registers, at a return address: where its caller's arguments for it lie. `None` if it has no caller, or no rule tells.
pub fn frame_address<C: Context>(memory: impl Memory, registers: Registers) -> Option<u64> {
    let mut walker = walker::<C, _>(FrameAddress::ReturnAddress(registers.pc), registers, memory);
    let frames = [walker.advance(), walker.advance()];
    frames.iter().all(|step| matches!(step, Step::Frame(..))).then(|| walker.registers().sp)
}

pub(crate) fn reason_of(reason: unwind::Truncated) -> Truncated {
    match reason {
        unwind::Truncated::NoTable => Truncated::NoTable,
        unwind::Truncated::UnsupportedRule => Truncated::UnsupportedRule,
        unwind::Truncated::StackUnreadable => Truncated::StackUnreadable,
        unwind::Truncated::NoProgress => Truncated::NoProgress,
        unwind::Truncated::FramePointerUnknown => Truncated::FramePointerUnknown,
    }
}

/// Enters the captured frames into the recording's tree; `None` if the store is full.
pub fn intern(recording: &mut Recording, root: Root, thread: RecordId) -> Option<Place> {
    let root = recording.root(root, thread)?;
    intern_below(recording, root)
}

/// Enters the captured frames below a node of the recording's tree.
#[inline]
pub fn intern_below(recording: &mut Recording, root: Place) -> Option<Place> {
    let Recording { tree, frames, depth, .. } = recording;
    let mut place = root;
    for frame in frames.get(..*depth)?.iter().rev() {
        place = tree.child(place, Frame::from_bits(*frame))?;
    }
    Some(place)
}
