//! What differs on aarch64.

#[cfg(feature = "build")]
mod compile;
mod form;
mod registers;
#[cfg(test)]
mod tests;

pub use form::{Base, Form, Saved};
pub use registers::Registers;

use crate::Rule;

/// CPython's perf trampoline (`python -X perf`), which has no unwind information:
/// `stp x29, x30, [sp, #-16]!; mov x29, sp; blr x3; ldp x29, x30, [sp], #16; ret`.
pub const PERF_TRAMPOLINE_CODE: [u8; 20] = [
    0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0x60, 0x00, 0x3f, 0xd6, 0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f,
    0xd6,
];

/// The rule inside [`PERF_TRAMPOLINE_CODE`], at its call and at the address that the call returns to.
pub const PERF_TRAMPOLINE: Rule =
    Form::Frame { base: Base::StackPointer, cfa: 16, lr: Saved::AtCfa(-8), fp: Saved::AtCfa(-16), signal: false }
        .encode();

/// Code to which signal handlers return, in the vDSO: `mov x8, #139; svc #0`. It has no unwind information.
pub const SIGNAL_RETURN_CODE: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];

/// The rule at the start of [`SIGNAL_RETURN_CODE`]: the stack pointer is at Linux' `siginfo_t` (128 bytes), then `ucontext_t`.
pub const SIGNAL_FRAME: Rule = Form::Context { sp: 128 + 432, fp: 128 + 416, pc: 128 + 440, lr: 128 + 424 }.encode();
