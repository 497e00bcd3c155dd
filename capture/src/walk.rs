//! Capturing a stack: walk, name each frame's module, enter the frames into the thread's tree.
//!
//! Called from: hooks and handlers, each with its own [`Recording`]. May: read the walked stack, probe pages; in a hook also build tables.
//! When a stack cannot be walked to its root, what was found is kept below a frame that names the reason.

use crate::modules;
use crate::rules::{self, Context};
use crate::stack::{Bounds, StackMemory};
use crate::thread::{MAX_FRAMES, Recording};
use layout::{Frame, ModuleIndex, Pseudo, RecordId, Root, Truncated};
use unwind::arch::Registers;
use unwind::{FrameAddress, Memory, Rule, Rules, Step, Walker};

pub(crate) struct Cached(pub(crate) Context);

impl Rules for Cached {
    type Tag = ModuleIndex;

    #[inline]
    fn lookup(&mut self, address: FrameAddress) -> (Rule, ModuleIndex) {
        let found = rules::resolve(address, self.0);
        (found.rule, found.module)
    }
}

/// Walks the calling thread's stack from `at`, with these registers, into `recording.frames`, leaf first. A reason for an early end is the last frame.
pub fn capture(recording: &mut Recording, stack: Bounds, at: FrameAddress, registers: Registers, context: Context) {
    let memory = StackMemory::new(stack, registers.sp);
    capture_from(recording, memory, at, registers, context);
}

/// The same for any stack, read by `memory`.
#[inline]
pub fn capture_from(
    recording: &mut Recording,
    mut memory: impl Memory,
    at: FrameAddress,
    registers: Registers,
    context: Context,
) {
    if context == Context::Hook && modules::is_stale() {
        modules::refresh();
    }
    recording.depth = 0;
    let walker = match at {
        FrameAddress::Instruction(_) => Walker::at_instruction(registers, Cached(context), &mut memory),
        FrameAddress::ReturnAddress(_) => Walker::at_return_address(registers, Cached(context), &mut memory),
    };
    if let (Err(reason), _) = walk(recording, walker, false) {
        push(recording, Frame::pseudo(Pseudo::Truncated(reason)));
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
        modules::refresh();
    }
    recording.depth = 0;
    let walker = Walker::at_instruction(registers, Cached(Context::Hook), &mut memory);
    let mut outcome = walk(recording, walker, false);
    // Each round goes on from a frame nearer to the root.
    while let (Err(Truncated::FramePointerUnknown), registers) = outcome {
        let Some(fp) = derive(&registers, &mut memory) else { break };
        let registers = Registers { fp: Some(fp), ..registers };
        let walker = Walker::at_return_address(registers, Cached(Context::Hook), &mut memory);
        // The frame itself was entered before.
        outcome = walk(recording, walker, true);
    }
    if let Err(reason) = outcome.0 {
        push(recording, Frame::pseudo(Pseudo::Truncated(reason)));
    }
}

/// Enters the frames of a walk, but for the first if `skip_first`; how it ended, and where.
#[inline]
fn walk(
    recording: &mut Recording,
    mut walker: Walker<Registers, Cached, impl Memory>,
    mut skip_first: bool,
) -> (Result<(), Truncated>, Registers) {
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

pub(crate) fn reason_of(reason: unwind::Truncated) -> Truncated {
    match reason {
        unwind::Truncated::NoTable => Truncated::NoTable,
        unwind::Truncated::UnsupportedRule => Truncated::UnsupportedRule,
        unwind::Truncated::StackUnreadable => Truncated::StackUnreadable,
        unwind::Truncated::NoProgress => Truncated::NoProgress,
        unwind::Truncated::FramePointerUnknown => Truncated::FramePointerUnknown,
    }
}

/// Enters the captured frames into the recording's tree, with `leaf` below them; the leaf's node, or `None` if the store is full.
pub fn intern(recording: &mut Recording, root: Root, thread: RecordId, leaf: Option<Frame>) -> Option<RecordId> {
    let root = recording.tree.root(root, thread)?;
    let node = intern_below(recording, root)?;
    match leaf {
        Some(leaf) => recording.tree.child(node, leaf),
        None => Some(node),
    }
}

/// Enters the captured frames below a node of the recording's tree.
#[inline]
pub fn intern_below(recording: &mut Recording, root: RecordId) -> Option<RecordId> {
    let Recording { tree, frames, depth, .. } = recording;
    let mut node = root;
    for frame in frames.get(..*depth)?.iter().rev() {
        node = tree.child(node, Frame::from_bits(*frame))?;
    }
    Some(node)
}
