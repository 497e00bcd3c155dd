//! What differs on x86_64.

#[cfg(feature = "build")]
mod compile;
mod form;
mod registers;
#[cfg(test)]
mod tests;

pub use form::{Base, Cfa, Form, FramePointer};
pub use registers::Registers;

use crate::Rule;

/// CPython's perf trampoline (`python -X perf`), which has no unwind information: a run of these bytes for each Python function,
/// `sub rsp, 8; call rcx; add rsp, 8; ret`.
pub const PERF_TRAMPOLINE_CODE: [u8; 11] = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];

/// The rule inside [`PERF_TRAMPOLINE_CODE`], at its call and at the address that the call returns to.
pub const PERF_TRAMPOLINE: Rule =
    Form::Frame { cfa: Cfa::Offset(Base::StackPointer, 16), fp: FramePointer::Same, signal: false }.encode();

/// Code to which signal handlers return: `mov rax, 15; syscall`. musl's and others' has no unwind information.
pub const SIGNAL_RETURN_CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// The rule at the start of [`SIGNAL_RETURN_CODE`]: the stack pointer is at Linux' `ucontext_t`. Its lookup address is that of the
/// first instruction minus one, since the handler seems to have been called from there.
pub const SIGNAL_FRAME: Rule = Form::Context { sp: 160, fp: 120, pc: 168 }.encode();
