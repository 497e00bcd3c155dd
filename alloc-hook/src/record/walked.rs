//! Where a recorded allocation is entered: its stack, walked as far as there is room, or on a stack of the recorder's.
#![allow(unsafe_code)]

use capture::blocked::Blocked;
use capture::rules::InHook;
use capture::stack::Bounds;
use capture::stacks::{self, Work};
use capture::thread::{Inside, Recording, has_room_to_walk};
use capture::walk;
use core::cell::Cell;
use layout::{Function, RecordId, Root};
use unwind::FrameAddress;
use unwind::arch::Registers;

/// A call of an allocation function.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) function: Function,
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
}

impl Call {
    /// A function of Rust's door is inlined into its caller, which so is at an instruction; the malloc family's was called.
    fn at(self) -> FrameAddress {
        if self.function.is_rust() { FrameAddress::Instruction(self.pc) } else { FrameAddress::ReturnAddress(self.pc) }
    }
}

/// The values of the call's stack; `None` if the store is full.
#[inline(always)]
pub(super) fn values_of(inside: &mut Inside<'_>, call: Call) -> Option<RecordId> {
    let stack = inside.state().stack_around(call.sp);
    if !stack.contains(call.sp) {
        return values_elsewhere(inside, stack, call);
    }
    if has_room_to_walk(stack, call.sp) { walked(inside, stack, call) } else { of_leaf(inside, call) }
}

#[inline(always)]
fn walked(inside: &mut Inside<'_>, stack: Bounds, call: Call) -> Option<RecordId> {
    let (at, registers) = (call.at(), Registers { pc: call.pc, sp: call.sp, fp: Some(call.fp) });
    let thread = inside.state().record_id();
    let (recording, sites) = inside.recording();
    let values = sites.values_of::<InHook>(recording, (stack, thread), (at, registers), call.function);
    #[cfg(feature = "oracle")]
    crate::oracle::compare(recording, stack, at, registers);
    values
}

#[cold]
#[inline(never)]
fn of_leaf(inside: &mut Inside<'_>, call: Call) -> Option<RecordId> {
    let thread = inside.state().record_id();
    let recording: &mut Recording = inside.recording().0;
    walk::capture_leaf(recording, call.at());
    let caller = walk::intern(recording, Root::Allocs, thread)?;
    recording.tree.site(caller, call.function)
}

/// On a stack that is not the thread's own: a coroutine's, a signal's. Nobody knows where it ends, so the walk is made on one of the recorder's, and the host's handlers wait meanwhile.
#[cold]
#[inline(never)]
fn values_elsewhere(inside: &mut Inside<'_>, stack: Bounds, call: Call) -> Option<RecordId> {
    struct Elsewhere<'a, 'b> {
        inside: Cell<Option<&'a mut Inside<'b>>>,
        stack: Bounds,
        call: Call,
        values: Cell<Option<RecordId>>,
    }
    impl Work for Elsewhere<'_, '_> {
        unsafe fn work(&self, has_room: bool) {
            let Some(inside) = self.inside.take() else { return };
            let values = if has_room { walked(inside, self.stack, self.call) } else { of_leaf(inside, self.call) };
            self.values.set(values);
        }
    }
    let _blocked = Blocked::new();
    stacks::set_up();
    let elsewhere = Elsewhere { inside: Cell::new(Some(inside)), stack, call, values: Cell::new(None) };
    // SAFETY: all signals that can wait are blocked.
    unsafe { stacks::done(&elsewhere) };
    elsewhere.values.get()
}
