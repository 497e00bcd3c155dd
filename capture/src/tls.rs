//! One word of thread-local storage, reached without any call.
//!
//! The initial-exec model is spelled out in assembly, because stable Rust compiles thread-locals of a shared library to `__tls_get_addr`, which
//! may allocate: not possible under malloc or in a handler. The word costs 8 bytes of static TLS. A new thread starts with zero.
#![allow(unsafe_code)]

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.profile_recorder_thread_v0_1,\"awT\",@nobits",
    ".hidden profile_recorder_thread_v0_1",
    ".globl profile_recorder_thread_v0_1",
    ".type profile_recorder_thread_v0_1, @object",
    ".p2align 3",
    "profile_recorder_thread_v0_1:",
    ".zero 8",
    ".size profile_recorder_thread_v0_1, 8",
    ".popsection",
);

/// The calling thread's word.
#[inline(always)]
pub fn get() -> usize {
    let value: usize;
    // SAFETY: reads the word at its offset from the thread pointer, which the linker or loader filled in.
    unsafe {
        asm!(
            "mov {value}, qword ptr [rip + profile_recorder_thread_v0_1@GOTTPOFF]",
            "mov {value}, qword ptr fs:[{value}]",
            value = out(reg) value,
            options(nostack, preserves_flags, readonly),
        );
    }
    value
}

/// Sets the calling thread's word.
#[inline(always)]
pub fn set(value: usize) {
    // SAFETY: writes the word at its offset from the thread pointer; nothing else lives there.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + profile_recorder_thread_v0_1@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {value}",
            offset = out(reg) _,
            value = in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}
