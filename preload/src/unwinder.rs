//! The unwinder (libgcc_s), without which the library loads: a process that never unwinds does not have it, and a system may be without it.
//!
//! Rust's standard library names these functions. Its own code calls them only where something else unwinds through it, and that has the unwinder loaded already: they are looked up then. Nothing here
//! unwinds by itself, since a panic ends the process.
//! The interface: [Itanium C++ ABI: Exception Handling](https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html).

use core::arch::{global_asm, naked_asm};
use core::ffi::{c_char, c_void};

/// Defines a function for this library alone, by what it does.
macro_rules! define {
    ($name:literal: $($does:expr),*; $($operands:tt)*) => {
        global_asm!(
            ".pushsection .text.profrec_unwinder, \"ax\", @progbits",
            concat!(".hidden ", $name),
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            $($does),*,
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            $($operands)*
        );
    };
}

/// Defines those that jump to the unwinder's.
macro_rules! look_up {
    ($($name:literal)*) => {
        $(
            global_asm!(
                ".pushsection .rodata.profrec_unwinder, \"a\", @progbits",
                concat!("profrec_name", $name, ": .asciz \"", $name, "\""),
                ".popsection",
            );
            define!($name: concat!("lea r11, [rip + profrec_name", $name, "]"), "jmp {unwinder}"; unwinder = sym unwinder);
        )*
    };
}

/// Jumps to the unwinder's function of the name that `r11` points to, with its arguments: three at most.
#[unsafe(naked)]
extern "C" fn unwinder() {
    extern "C" fn find(name: *const c_char) -> *mut c_void {
        // SAFETY: both are zero-terminated; the library was loaded by who unwinds.
        let function = unsafe { libc::dlsym(libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_LAZY), name) };
        if function.is_null() { std::process::abort() } else { function }
    }
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 24",
        ".cfi_def_cfa_offset 32",
        "mov qword ptr [rsp], rdi",
        "mov qword ptr [rsp + 8], rsi",
        "mov qword ptr [rsp + 16], rdx",
        "mov rdi, r11",
        "call {find}",
        "mov rdi, qword ptr [rsp]",
        "mov rsi, qword ptr [rsp + 8]",
        "mov rdx, qword ptr [rsp + 16]",
        "add rsp, 24",
        ".cfi_def_cfa_offset 8",
        "jmp rax",
        ".cfi_endproc",
        find = sym find,
    )
}

look_up! {
    "_Unwind_GetDataRelBase" "_Unwind_GetIP" "_Unwind_GetIPInfo" "_Unwind_GetLanguageSpecificData" "_Unwind_GetRegionStart"
    "_Unwind_GetTextRelBase" "_Unwind_Resume" "_Unwind_SetGR" "_Unwind_SetIP"
}

// The walk of a panic's backtrace, which may not wait for the dynamic linker: there are no frames (`_URC_END_OF_STACK`).
define!("_Unwind_Backtrace": "mov eax, 5", "ret";);
