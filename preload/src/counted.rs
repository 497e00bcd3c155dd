//! `malloc`, `calloc`, `realloc` and `free`: counted in a few instructions as long as that is all there is to do, which [`fast`] tells.
//!
//! Each leaves for the next allocator's function by a jump, with the stack as it found it: nothing of the library lies between the host and its allocator then. Where live bytes are
//! accounted for, the block is there only when that function has returned, so it is called.
//!
//! # Safety
//! As the library's. A thread's numbers are written by the thread alone, each by one instruction, so that a signal handler which allocates in between adds to what it finds.

use crate::Preload;
use core::arch::naked_asm;
use core::mem::offset_of;
use layout::{Called, Function, Thread};
use profile_recorder::preload::family::{self, Entry};
use profile_recorder::preload::{Armed, GRAIN, fast, next, offsets};

const LIVE_MAX: usize = offset_of!(Thread, live_bytes_max);
const LIVE_BELOW_MAX: usize = offset_of!(Thread, live_bytes_below_max);

// A place in the filter is a number of 16 bits.
const _: () = assert!(size_of_val(&fast::COUNTS) == 1 << 16);

/// `r11` gets the thread's state, `rax` its record; goes to 3 if there is no state, and to 9 unless the thread is armed and there is nothing to do but what is most often.
macro_rules! begin {
    () => {
        concat!(
            "mov r11, qword ptr [rip + profile_recorder_thread_v0_1@GOTTPOFF]\n",
            "mov r11, qword ptr fs:[r11]\n",
            "cmp r11, {no_state}\n",
            "jbe 3f\n",
            "mov rax, qword ptr [r11 + {armed}]\n",
            "cmp rax, {arming}\n",
            "jle 9f\n",
        )
    };
}

/// At 9: `rax` keeps the record, with the bits that say what else is to be done; goes to 3 if the thread is not armed.
macro_rules! otherwise {
    () => {
        concat!("9:\n", "btr rax, {sign}\n", "jnc 3f\n")
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

/// Counts the bytes in `$size` down; goes the whole way if the allocation is the next to be recorded.
macro_rules! unless_due {
    ($size:literal) => {
        concat!(
            "mov rcx, qword ptr [r11 + {countdown}]\n",
            "sub rcx, ",
            $size,
            "\n",
            "jbe 3f\n",
            "mov qword ptr [r11 + {countdown}], rcx\n",
        )
    };
}

/// Goes the whole way if the block at `rdi` is one whose free is followed, perhaps: the filter of live allocations, as `live::place` has it.
macro_rules! unless_followed {
    () => {
        concat!(
            "imul rcx, rdi, {place}\n",
            "shr rcx, {place_shift}\n",
            "movzx ecx, cx\n",
            "lea rdx, [rip + {counts}]\n",
            "movzx ecx, byte ptr [rdx + rcx]\n",
            "test ecx, ecx\n",
            "jne 3f\n",
        )
    };
}

/// The same, or where frees are not followed, if the block is the thread's last recorded one.
macro_rules! unless_recorded {
    () => {
        concat!(
            "test al, {last}\n",
            "je 8f\n",
            "cmp rdi, qword ptr [r11 + {last_address}]\n",
            "je 3f\n",
            "jmp 6f\n",
            "8:\n",
            unless_followed!(),
            "6:\n",
        )
    };
}

/// Counts a call that asked for the bytes in `$size`.
macro_rules! count {
    ($size:literal) => {
        concat!("add qword ptr [rax + {calls}], 1\n", "add qword ptr [rax + {bytes}], ", $size, "\n",)
    };
}

/// Counts a call that asked for the bytes in `$size`, calls the next function, and adds the block's bytes to what is live.
macro_rules! allocate_chunk {
    ($size:literal) => {
        concat!(
            count!($size),
            "push rax\n",
            ".cfi_adjust_cfa_offset 8\n",
            "call qword ptr [rip + {next}]\n",
            "pop rdx\n",
            ".cfi_adjust_cfa_offset -8\n",
            "test rax, rax\n",
            "je 5f\n",
            grown!(),
        )
    };
}

/// Adds the bytes of the block at `rax` to what is live, by the record in `rdx`, and returns.
macro_rules! grown {
    () => {
        concat!(
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

/// A function whose number is `$function`, with what all of them need. It goes the whole way by `$body`, to which `$entry` hands stack pointer and frame pointer. It begins with a line of the
/// processor's cache: whatever its section holds, be it behind the function, has the section aligned.
macro_rules! function {
    ($function:path, $next:path, $body:ident, [$($line:expr,)*], [$($entry:literal),*], $($operands:tt)*) => {
        naked_asm!(
            ".cfi_startproc",
            $($line,)*
            whole!(),
            $($entry,)*
            "jmp {body}",
            ".cfi_endproc",
            ".p2align 6",
            body = sym $body,
            idle = sym next::IDLE,
            next = sym $next,
            no_state = const offsets::NO_STATE,
            armed = const offsets::ARMED,
            arming = const Armed::ARMING,
            sign = const Armed::SIGN,
            address = const !(Armed::BITS as i64),
            chunks = const fast::CHUNKS,
            alone = const fast::ALONE,
            calls = const Thread::called_at($function as usize) + offset_of!(Called, calls),
            live_below_max = const LIVE_BELOW_MAX,
            grain = const GRAIN,
            $($operands)*
        )
    };
}

/// The same for a function that allocates. `$own` is the name under which this library finds it, whatever is in front of it.
macro_rules! allocation {
    ($own:literal, $function:path, $next:path, $body:ident, [$($line:expr,)*], [$($entry:literal),*], $($operands:tt)*) => {
        function!(
            $function,
            $next,
            $body,
            [concat!(".hidden ", $own), concat!(".globl ", $own), concat!($own, ":"), $($line,)*],
            [$($entry),*],
            grew = sym fast::grew,
            countdown = const offsets::COUNTDOWN,
            bytes = const Thread::called_at($function as usize) + offset_of!(Called, bytes),
            live_max = const LIVE_MAX,
            $($operands)*
        )
    };
}

/// All of a function that only allocates; `$before` computes what is asked for, in `$size`.
macro_rules! counted {
    ($own:literal, [$($before:literal),*], $size:literal, [$($entry:literal),*], $body:ident, $next:path, $function:path) => {
        allocation!(
            $own,
            $function,
            $next,
            $body,
            [
                $($before,)*
                begin!(),
                "2:",
                unless_due!($size),
                count!($size),
                "jmp qword ptr [rip + {next}]",
                otherwise!(),
                "test al, {alone}",
                "jne 10f",
                "test al, {chunks}",
                "je 4f",
                unless_due!($size),
                "10:",
                "and rax, {address}",
                allocate_chunk!($size),
                "4:",
                "and rax, {address}",
                "jmp 2b",
            ],
            [$($entry),*],
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
    counted!("profrec_own_malloc", [], "rdi", ["mov rsi, rsp", "mov rdx, rbp"], body, next::MALLOC, Function::Malloc)
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
        Function::Calloc
    )
}

/// `realloc` of the C library.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(address: *mut u8, size: usize) -> *mut u8 {
    extern "C" fn body(address: *mut u8, size: usize, sp: u64, fp: u64) -> *mut u8 {
        // SAFETY: called as the host calls the function.
        unsafe { family::realloc::<Preload>(address, size, Entry { sp, fp }) }
    }
    allocation!(
        "profrec_own_realloc",
        Function::Realloc,
        next::REALLOC,
        body,
        [
            begin!(),
            unless_followed!(),
            "12:",
            unless_due!("rsi"),
            count!("rsi"),
            "jmp qword ptr [rip + {next}]",
            otherwise!(),
            "test al, {alone}",
            "jne 10f",
            unless_recorded!(),
            "test al, {chunks}",
            "je 4f",
            "10:",
            // Live bytes are accounted for: those of the block before, which may be none, are taken off once there is another. (A size of zero gives the block back.)
            "and rax, {address}",
            "test rsi, rsi",
            "je 3f",
            "xor edx, edx",
            "test rdi, rdi",
            "je 2f",
            chunk_bytes!("rdi", "3f"),
            "mov rdx, rcx",
            "2:",
            unless_due!("rsi"),
            count!("rsi"),
            "sub rsp, 24",
            ".cfi_adjust_cfa_offset 24",
            "mov qword ptr [rsp], rax",
            "mov qword ptr [rsp + 8], rdx",
            "call qword ptr [rip + {next}]",
            "mov rdx, qword ptr [rsp]",
            "mov rcx, qword ptr [rsp + 8]",
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
            "test rax, rax",
            "je 5f",
            "add qword ptr [rdx + {live_below_max}], rcx",
            grown!(),
            "4:",
            "and rax, {address}",
            "jmp 12b",
        ],
        ["mov rdx, rsp", "mov rcx, rbp"],
        last_address = const offsets::LAST_ADDRESS,
        counts = sym fast::COUNTS,
        place = const fast::PLACE,
        place_shift = const fast::PLACE_SHIFT,
        last = const fast::LAST,
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
    function!(
        Function::Free,
        next::FREE,
        body,
        [
            begin!(),
            unless_followed!(),
            "5:",
            "add qword ptr [rax + {calls}], 1",
            "jmp qword ptr [rip + {next}]",
            otherwise!(),
            "test al, {alone}",
            "jne 10f",
            unless_recorded!(),
            "test al, {chunks}",
            "je 4f",
            "10:",
            // Live bytes are accounted for.
            "test rdi, rdi",
            "je 3f",
            "and rax, {address}",
            chunk_bytes!("rdi", "3f"),
            "add qword ptr [rax + {calls}], 1",
            // As `capture::live::shrink`.
            "add qword ptr [rax + {live_below_max}], rcx",
            "cmp qword ptr [rax + {live_below_max}], {grain}",
            "jge 11f",
            "jmp qword ptr [rip + {next}]",
            "11:",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "call {shrank}",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "jmp qword ptr [rip + {next}]",
            "4:",
            "and rax, {address}",
            "jmp 5b",
        ],
        [],
        last_address = const offsets::LAST_ADDRESS,
        counts = sym fast::COUNTS,
        place = const fast::PLACE,
        place_shift = const fast::PLACE_SHIFT,
        shrank = sym fast::shrank,
        last = const fast::LAST,
    )
}

/// `malloc_usable_size` of the C library: nothing is counted.
///
/// # Safety
/// As the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(address: *mut u8) -> usize {
    extern "C" fn body(address: *mut u8) -> usize {
        // SAFETY: called as the host calls the function.
        unsafe { family::malloc_usable_size::<Preload>(address) }
    }
    naked_asm!(
        ".cfi_startproc",
        "mov rax, qword ptr [rip + {sizes}]",
        "test rax, rax",
        "je {body}",
        "jmp rax",
        ".cfi_endproc",
        sizes = sym next::SIZES,
        body = sym body,
    )
}
