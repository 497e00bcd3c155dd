//! `malloc`, `calloc` and `free`: counted in a few instructions as long as that is all there is to do, which [`fast`] tells.
//!
//! Each leaves for the next allocator's function by a jump, with the stack as it found it: nothing of the library lies between the host and its allocator then. Where live bytes are
//! accounted for, the block is there only when that function has returned, so it is called.
//!
//! # Safety
//! As the library's. A thread's numbers are written by the thread alone, each by one instruction, so that a signal handler which allocates in between adds to what it finds.

use crate::Preload;
use core::arch::naked_asm;
use core::mem::offset_of;
use layout::{Function, Thread};
use profile_recorder::preload::family::{self, Entry};
use profile_recorder::preload::{GRAIN, fast, next, offsets};

const MALLOC: usize = Function::Malloc as usize * 8;
const CALLOC: usize = Function::Calloc as usize * 8;
const FREE: usize = Function::Free as usize * 8;
const CALLS: usize = offset_of!(Thread, calls);
const BYTES: usize = offset_of!(Thread, bytes);
const LIVE_BELOW_MAX: usize = offset_of!(Thread, live_bytes_below_max);

/// Leaves at once if nothing is recorded in this process; goes the whole way (3) unless the thread, whose state `r11` gets, has the arrangement in force, which `r10` gets.
macro_rules! begin {
    () => {
        concat!(
            "cmp byte ptr [rip + {idle}], 0\n",
            "je 2f\n",
            "jmp qword ptr [rip + {next}]\n",
            "2:\n",
            "mov r10, qword ptr [rip + {arrangement}]\n",
            "mov r11, qword ptr [rip + profile_recorder_thread_v0_1@GOTTPOFF]\n",
            "mov r11, qword ptr fs:[r11]\n",
            "cmp r11, {no_state}\n",
            "jbe 3f\n",
            "cmp r10, qword ptr [r11 + {armed}]\n",
            "jne 3f\n",
        )
    };
}

/// The bytes that glibc gave to `$block`, into `rcx`, as `fast::chunk_bytes` computes them; `$low` is the lower half of `$spare`.
macro_rules! chunk_bytes {
    ($block:literal, $low:literal, $spare:literal) => {
        concat!(
            "mov rcx, qword ptr [",
            $block,
            " - 8]\n",
            "mov ",
            $low,
            ", ecx\n",
            "and rcx, -8\n",
            "and ",
            $low,
            ", 2\n",
            "lea ",
            $spare,
            ", [",
            $spare,
            " * 4 + 8]\n",
            "sub rcx, ",
            $spare,
            "\n",
        )
    };
}

/// Counts a call that asked for the bytes in `$size` and is not the next to be sampled, then leaves, or calls the next function and adds the block's bytes to what is live.
macro_rules! allocate {
    ($size:literal) => {
        concat!(
            "mov rcx, qword ptr [r11 + {countdown}]\n",
            "sub rcx, ",
            $size,
            "\n",
            "jbe 3f\n",
            "mov qword ptr [r11 + {countdown}], rcx\n",
            "mov rax, qword ptr [r11 + {record}]\n",
            "add qword ptr [rax + {calls}], 1\n",
            "add qword ptr [rax + {bytes}], ",
            $size,
            "\n",
            // Whatever was recorded last is no longer the thread's last allocation.
            "mov qword ptr [r11 + {last_address}], 1\n",
            "test r10b, {chunks}\n",
            "jne 4f\n",
            "jmp qword ptr [rip + {next}]\n",
            "4:\n",
            "push r11\n",
            ".cfi_adjust_cfa_offset 8\n",
            "call qword ptr [rip + {next}]\n",
            "test rax, rax\n",
            "je 5f\n",
            "mov r11, qword ptr [rsp]\n",
            "mov rdi, qword ptr [r11 + {record}]\n",
            chunk_bytes!("rax", "edx", "rdx"),
            // As `capture::live::grow`.
            "sub qword ptr [rdi + {live_below_max}], rcx\n",
            "jns 5f\n",
            "mov qword ptr [rsp], rax\n",
            "call {grew}\n",
            "mov rax, qword ptr [rsp]\n",
            "5:\n",
            "add rsp, 8\n",
            ".cfi_adjust_cfa_offset -8\n",
            "ret\n",
        )
    };
}

/// All of an allocation function, whose calls are number `$index` of the counters. `$own` is the name under which this library finds it, whatever is in front of it; `$before` computes what
/// is asked for, in `$size`; `$entry` hands stack pointer and frame pointer to `$body`, which goes the whole way.
macro_rules! counted {
    ($own:literal, [$($before:literal),*], $size:literal, [$($entry:literal),*], $body:ident, $next:path, $index:ident) => {
        naked_asm!(
            ".cfi_startproc",
            concat!(".hidden ", $own),
            concat!(".globl ", $own),
            concat!($own, ":"),
            begin!(),
            $($before,)*
            allocate!($size),
            "3:",
            $($entry,)*
            "jmp {body}",
            ".cfi_endproc",
            body = sym $body,
            idle = sym next::IDLE,
            next = sym $next,
            arrangement = sym fast::ARRANGEMENT,
            grew = sym fast::grew,
            no_state = const offsets::NO_STATE,
            armed = const offsets::ARMED,
            countdown = const offsets::COUNTDOWN,
            record = const offsets::RECORD,
            last_address = const offsets::LAST_ADDRESS,
            calls = const CALLS + $index,
            bytes = const BYTES + $index,
            chunks = const fast::CHUNKS,
            live_below_max = const LIVE_BELOW_MAX,
        )
    };
}

/// `malloc` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut u8 {
    extern "C" fn body(size: usize, sp: u64, fp: u64) -> *mut u8 {
        // SAFETY: called as the host calls the function.
        unsafe { family::malloc::<Preload>(size, Entry { sp, fp }) }
    }
    counted!("profrec_own_malloc", [], "rdi", ["mov rsi, rsp", "mov rdx, rbp"], body, next::MALLOC, MALLOC)
}

/// `calloc` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut u8 {
    extern "C" fn body(count: usize, size: usize, sp: u64, fp: u64) -> *mut u8 {
        // SAFETY: called as the host calls the function.
        unsafe { family::calloc::<Preload>(count, size, Entry { sp, fp }) }
    }
    counted!(
        "profrec_own_calloc",
        ["mov rax, rdi", "mul rsi", "jo 3f", "mov r8, rax"],
        "r8",
        ["mov rdx, rsp", "mov rcx, rbp"],
        body,
        next::CALLOC,
        CALLOC
    )
}

/// `free` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(address: *mut u8) {
    extern "C" fn body(address: *mut u8) {
        // SAFETY: called as the host calls the function.
        unsafe { family::free::<Preload>(address) };
    }
    naked_asm!(
        ".cfi_startproc",
        begin!(),
        "test rdi, rdi",
        "je 3f",
        // Temporary, perhaps.
        "cmp rdi, qword ptr [r11 + {last_address}]",
        "je 3f",
        "test r10b, {followed}",
        "je 5f",
        // Sampled, perhaps: the filter of live allocations, as `live::place` has it.
        "movabs rax, {spread}",
        "mov rcx, rdi",
        "shr rcx, 3",
        "imul rax, rcx",
        "shr rax, 54",
        "mov rcx, rdi",
        "mov rdx, rdi",
        "shr rcx, 12",
        "shr rdx, 18",
        "xor ecx, edx",
        "shr rdx, 8",
        "xor ecx, edx",
        "and ecx, 63",
        "shl ecx, 10",
        "add eax, ecx",
        "lea rdx, [rip + {counts}]",
        "cmp byte ptr [rdx + rax], 0",
        "jne 3f",
        "5:",
        "mov rdx, qword ptr [r11 + {record}]",
        "test r10b, {chunks}",
        "je 4f",
        chunk_bytes!("rdi", "eax", "rax"),
        // As `capture::live::shrink`, unless what is left is to be brought in.
        "mov rax, qword ptr [rdx + {live_below_max}]",
        "add rax, rcx",
        "cmp rax, {grain}",
        "jge 3f",
        "add qword ptr [rdx + {live_below_max}], rcx",
        "4:",
        "add qword ptr [rdx + {calls}], 1",
        "jmp qword ptr [rip + {next}]",
        "3:",
        "jmp {body}",
        ".cfi_endproc",
        body = sym body,
        idle = sym next::IDLE,
        next = sym next::FREE,
        arrangement = sym fast::ARRANGEMENT,
        no_state = const offsets::NO_STATE,
        armed = const offsets::ARMED,
        record = const offsets::RECORD,
        last_address = const offsets::LAST_ADDRESS,
        spread = const fast::SPREAD,
        counts = sym fast::COUNTS,
        followed = const fast::FOLLOWED,
        chunks = const fast::CHUNKS,
        calls = const CALLS + FREE,
        live_below_max = const LIVE_BELOW_MAX,
        grain = const GRAIN,
    )
}
