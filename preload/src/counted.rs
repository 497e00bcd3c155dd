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
const LIVE_MAX: usize = offset_of!(Thread, live_bytes_max);
const LIVE_BELOW_MAX: usize = offset_of!(Thread, live_bytes_below_max);

// A place in the filter is a number of 16 bits.
const _: () = assert!(size_of_val(&fast::COUNTS) == 1 << 16);

/// `r11` gets the thread's state, `r10` the arrangement in force; goes to 3 unless the thread has it.
macro_rules! begin {
    () => {
        concat!(
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

/// The whole way, unless nothing is recorded in this process: then there is none.
macro_rules! whole {
    () => {
        concat!("3:\n", "cmp byte ptr [rip + {idle}], 0\n", "je 2f\n", "jmp qword ptr [rip + {next}]\n", "2:\n")
    };
}

/// The bytes that glibc gave to `$block`, into `rcx`, as `fast::chunk_bytes` computes them; goes to `$mapped` for a block of a mapping of its own.
macro_rules! chunk_bytes {
    ($block:literal, $mapped:literal) => {
        concat!(
            "mov rcx, qword ptr [",
            $block,
            " - 8]\n",
            "test cl, 2\n",
            "jne ",
            $mapped,
            "\n",
            "and rcx, -8\n",
            "sub rcx, 8\n"
        )
    };
}

/// Counts a call that asked for the bytes in `$size` and is not the next to be sampled, then leaves, or goes on at 4 where live bytes are accounted for.
macro_rules! allocate {
    ($size:literal) => {
        concat!(
            "mov rcx, qword ptr [r11 + {countdown}]\n",
            "mov rax, qword ptr [r11 + {record}]\n",
            "sub rcx, ",
            $size,
            "\n",
            "jbe 3f\n",
            "mov qword ptr [r11 + {countdown}], rcx\n",
            "add qword ptr [rax + {calls}], 1\n",
            "add qword ptr [rax + {bytes}], ",
            $size,
            "\n",
            "test r10b, {chunks}\n",
            "jne 4f\n",
            "jmp qword ptr [rip + {next}]\n",
        )
    };
}

/// What [`allocate`] goes on with at 4: calls the next function, and adds the block's bytes to what is live.
macro_rules! allocate_chunk {
    () => {
        concat!(
            "4:\n",
            "push rax\n",
            ".cfi_adjust_cfa_offset 8\n",
            "call qword ptr [rip + {next}]\n",
            "pop rdx\n",
            ".cfi_adjust_cfa_offset -8\n",
            "test rax, rax\n",
            "je 5f\n",
            chunk_bytes!("rax", "6f"),
            // As `capture::live::grow`.
            "7:\n",
            "sub qword ptr [rdx + {live_below_max}], rcx\n",
            "js 9f\n",
            "5:\n",
            "ret\n",
            "6:\n",
            "and rcx, -8\n",
            "sub rcx, 16\n",
            "jmp 7b\n",
            // As `capture::live::grew`: what a program builds up comes here each time.
            "9:\n",
            "mov rcx, qword ptr [rdx + {live_below_max}]\n",
            "sub qword ptr [rdx + {live_below_max}], rcx\n",
            "sub qword ptr [rdx + {live_max}], rcx\n",
            "cmp qword ptr [rdx + {live_max}], {grain}\n",
            "jge 8f\n",
            "ret\n",
            "8:\n",
            "push rax\n",
            ".cfi_adjust_cfa_offset 8\n",
            "call {grew}\n",
            "pop rax\n",
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
            whole!(),
            $($entry,)*
            "jmp {body}",
            allocate_chunk!(),
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
            calls = const CALLS + $index,
            bytes = const BYTES + $index,
            chunks = const fast::CHUNKS,
            live_below_max = const LIVE_BELOW_MAX,
            live_max = const LIVE_MAX,
            grain = const GRAIN,
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
        "test r10b, {followed}",
        "je 5f",
        // Sampled, perhaps: the filter of live allocations, as `live::place` has it.
        "mov rcx, rdi",
        "mov rdx, rdi",
        "shr rcx, 4",
        "shr rdx, 16",
        "xor ecx, edx",
        "movzx ecx, cx",
        "lea rdx, [rip + {counts}]",
        "cmp byte ptr [rdx + rcx], 0",
        "jne 3f",
        "6:",
        "mov rdx, qword ptr [r11 + {record}]",
        "test r10b, {chunks}",
        "je 4f",
        chunk_bytes!("rdi", "3f"),
        // As `capture::live::shrink`.
        "add qword ptr [rdx + {live_below_max}], rcx",
        "cmp qword ptr [rdx + {live_below_max}], {grain}",
        "jge 7f",
        "4:",
        "add qword ptr [rdx + {calls}], 1",
        "jmp qword ptr [rip + {next}]",
        // Temporary, perhaps. (Where frees are followed, those that may be are in the filter.)
        "5:",
        "cmp rdi, qword ptr [r11 + {last_address}]",
        "jne 6b",
        whole!(),
        "jmp {body}",
        "7:",
        "add qword ptr [rdx + {calls}], 1",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {shrank}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp qword ptr [rip + {next}]",
        ".cfi_endproc",
        body = sym body,
        idle = sym next::IDLE,
        next = sym next::FREE,
        arrangement = sym fast::ARRANGEMENT,
        no_state = const offsets::NO_STATE,
        armed = const offsets::ARMED,
        record = const offsets::RECORD,
        last_address = const offsets::LAST_ADDRESS,
        counts = sym fast::COUNTS,
        shrank = sym fast::shrank,
        followed = const fast::FOLLOWED,
        chunks = const fast::CHUNKS,
        calls = const CALLS + FREE,
        live_below_max = const LIVE_BELOW_MAX,
        grain = const GRAIN,
    )
}
