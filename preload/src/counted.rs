//! `malloc`, `calloc`, `realloc` and `free`: counted in a few instructions as long as that is all there is to do, which [`fast`] tells.
//!
//! Each leaves for the next allocator's function by a jump, with the stack as it found it: nothing of the library lies between the host and its allocator then. Where live bytes are
//! accounted for, the block is there only when that function has returned, so it is called.
//!
//! What is to be done has a way of its own from beginning to end: first that of whoever samples, or is not asked for anything, without a jump that is taken; behind one such jump, and at the beginning
//! of a line of the processor's cache, counts with live bytes; then the others. Such a jump takes as long as several instructions.
//!
//! # Safety
//! As the library's. A thread's numbers are written by the thread alone, each by one instruction, so that a signal handler which allocates in between adds to what it finds.

#[macro_use]
mod live;

use crate::Preload;
use core::arch::naked_asm;
use core::mem::offset_of;
use layout::{Called, Function, Thread};
use profile_recorder::preload::family::{self, Entry};
use profile_recorder::preload::near::{NEAR, Near};
use profile_recorder::preload::next::Next;
use profile_recorder::preload::{Armed, GRAIN, fast, offsets};

const LIVE_MAX: usize = offset_of!(Thread, live_bytes_max);
const LIVE_BELOW_MAX: usize = offset_of!(Thread, live_bytes_below_max);
const USABLE_SIZE: usize = offset_of!(Near, next) + offset_of!(Next, malloc_usable_size);

/// `r11` gets the thread's state, `rax` its record and, in the lowest bits, what is to be done ([`fast`]); goes to [`unless_idle!`] if there is no state. If the thread is not armed, none of the bits is set.
macro_rules! begin {
    () => {
        concat!(
            "mov r11, qword ptr [rip + profile_recorder_thread_v0_1@GOTTPOFF]\n",
            "mov r11, qword ptr fs:[r11]\n",
            "cmp r11, {no_state}\n",
            "jbe 30f\n",
            "mov rax, qword ptr [r11 + {armed}]\n",
        )
    };
}

/// Goes to `$otherwise` unless this is what is to be done. Where one thing is, alone, its bit is left in the record's address: [`on!`] takes it off.
macro_rules! if_wanted {
    ($wanted:literal, $otherwise:literal) => {
        concat!("test al, ", $wanted, "\n", "je ", $otherwise, "\n")
    };
}

/// `$instruction` on a field of the record whose address is in `$register`, with the bit `$wanted`, by `$operand`.
macro_rules! on {
    ($instruction:literal, $register:literal, $field:literal, $wanted:literal, $operand:literal) => {
        concat!($instruction, " qword ptr [", $register, " + ", $field, " - ", $wanted, "], ", $operand, "\n")
    };
}

/// Loads a field of the record whose address is in `$register`, with the bit `$wanted`, into `$to`.
macro_rules! load {
    ($to:literal, $register:literal, $field:literal, $wanted:literal) => {
        concat!("mov ", $to, ", qword ptr [", $register, " + ", $field, " - ", $wanted, "]\n")
    };
}

/// Where a thread without a state comes: leaves if nothing is recorded in this process, and goes the whole way otherwise. It lies behind the first way, near the beginning: who waits for nothing in
/// the library is not to wait for its lines either.
macro_rules! unless_idle {
    () => {
        concat!("30:\n", "cmp byte ptr [rip + {near} + {idle}], 0\n", "je 3f\n", leave!())
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

/// `rcx` gets the place of the block at `rdi`, from the bit `$shift` on, as `live::place` has it.
macro_rules! place {
    ($shift:literal) => {
        concat!("imul rcx, rdi, {place}\n", "shr rcx, ", $shift, "\n")
    };
}

/// Goes to `$perhaps` if the block at `rdi` has neighbours that are followed, or is followed itself: if its bit of `Near::occupied` is set.
macro_rules! unless_beside_followed {
    ($perhaps:literal) => {
        concat!(
            place!("{occupied_shift}"),
            "mov edx, ecx\n",
            "shr edx, 6\n",
            "and edx, {shards} - 1\n",
            "lea r8, [rip + {near} + {occupied}]\n",
            "mov rdx, qword ptr [r8 + 8 * rdx]\n",
            // By the lowest six bits.
            "bt rdx, rcx\n",
            "jc ",
            $perhaps,
            "\n",
        )
    };
}

/// At `$perhaps`: goes the whole way if the block at `rdi` is one whose free is followed, perhaps, and back to `$back` if not.
macro_rules! unless_followed {
    ($perhaps:literal, $back:literal) => {
        concat!(
            $perhaps,
            ":\n",
            place!("{place_shift}"),
            "and ecx, {places} - 1\n",
            "lea rdx, [rip + {counts}]\n",
            "cmp byte ptr [rdx + rcx], 0\n",
            "jne 3f\n",
            "jmp ",
            $back,
            "\n",
        )
    };
}

/// Goes the whole way if the block at `rdi` is the thread's last recorded one.
macro_rules! unless_last {
    () => {
        "cmp rdi, qword ptr [r11 + {last_address}]\nje 3f\n"
    };
}

/// Counts a call that asked for the bytes in `$size`.
macro_rules! count {
    ($size:literal, $wanted:literal) => {
        concat!(on!("add", "rax", "{calls}", $wanted, "1"), on!("add", "rax", "{bytes}", $wanted, $size))
    };
}

/// Counts a call that gives a block back.
macro_rules! count_free {
    ($wanted:literal) => {
        on!("add", "rax", "{calls}", $wanted, "1")
    };
}

/// Leaves for the next function.
macro_rules! leave {
    () => {
        "jmp qword ptr [rip + {near} + {next}]\n"
    };
}

/// A function whose number is `$function`, with what all of them need. It goes the whole way by `$body`, to which `$entry` hands stack pointer and frame pointer. It begins with a line of the
/// processor's cache: whatever its section holds, be it behind the function, has the section aligned.
macro_rules! function {
    ($function:path, $next:ident, $body:ident, [$($line:expr,)*], [$($entry:literal),*], $($operands:tt)*) => {
        naked_asm!(
            ".cfi_startproc",
            $($line,)*
            "3:",
            $($entry,)*
            "jmp {body}",
            ".cfi_endproc",
            ".p2align 6",
            body = sym $body,
            near = sym NEAR,
            idle = const offset_of!(Near, idle),
            next = const offset_of!(Near, next) + offset_of!(Next, $next),
            no_state = const offsets::NO_STATE,
            armed = const offsets::ARMED,
            followed_chunks = const fast::FOLLOWED_CHUNKS,
            followed = const fast::FOLLOWED,
            last_chunks = const fast::LAST_CHUNKS,
            last = const fast::LAST,
            calls = const Thread::called_at($function as usize) + offset_of!(Called, calls),
            live_below_max = const LIVE_BELOW_MAX,
            bring_in = sym fast::bring_in,
            $($operands)*
        )
    };
}

/// The same for a function that allocates. `$own` is the name under which this library finds it, whatever is in front of it.
macro_rules! allocation {
    ($own:literal, $function:path, $next:ident, $body:ident, [$($line:expr,)*], [$($entry:literal),*], $($operands:tt)*) => {
        function!(
            $function,
            $next,
            $body,
            [concat!(".hidden ", $own), concat!(".globl ", $own), concat!($own, ":"), $($line,)*],
            [$($entry),*],
            countdown = const offsets::COUNTDOWN,
            bytes = const Thread::called_at($function as usize) + offset_of!(Called, bytes),
            $($operands)*
        )
    };
}

/// `$macro` for a function that gives a block back, with what it takes to know whether that is followed.
macro_rules! with_filter {
    ($macro:ident, $($all:tt)*) => {
        $macro!(
            $($all)*
            last_address = const offsets::LAST_ADDRESS,
            place = const fast::PLACE,
            occupied = const offset_of!(Near, occupied),
            occupied_shift = const fast::OCCUPIED_SHIFT,
            shards = const fast::SHARDS,
            counts = sym fast::COUNTS,
            place_shift = const fast::PLACE_SHIFT,
            places = const size_of_val(&fast::COUNTS),
        )
    };
}

/// All of a function that only allocates; `$before` computes what is asked for, in `$size`.
macro_rules! counted {
    ($own:literal, [$($before:literal),*], $size:literal, [$($entry:literal),*], $body:ident, $next:ident, $function:path) => {
        allocation!(
            $own,
            $function,
            $next,
            $body,
            [
                $($before,)*
                begin!(),
                if_wanted!("{followed}", "9f"),
                unless_due!($size),
                count!($size, "{followed}"),
                leave!(),
                unless_idle!(),
                ".p2align 6",
                "9:",
                if_wanted!("{followed_chunks}", "9f"),
                unless_due!($size),
                allocate_chunk!($size, "{followed_chunks}"),
                "9:",
                if_wanted!("{last_chunks}", "9f"),
                unless_due!($size),
                allocate_chunk!($size, "{last_chunks}"),
                "9:",
                if_wanted!("{followed_sizes}", "9f"),
                unless_due!($size),
                allocate_sized!($size, "{followed_sizes}"),
                "9:",
                if_wanted!("{last}", "3f"),
                unless_due!($size),
                count!($size, "{last}"),
                leave!(),
            ],
            [$($entry),*],
            followed_sizes = const fast::FOLLOWED_SIZES,
            size_of = const USABLE_SIZE,
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
    counted!("profrec_own_malloc", [], "rdi", ["mov rsi, rsp", "mov rdx, rbp"], body, malloc, Function::Malloc)
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
        calloc,
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
    with_filter!(
        allocation,
        "profrec_own_realloc",
        Function::Realloc,
        realloc,
        body,
        [
            begin!(),
            if_wanted!("{followed}", "9f"),
            unless_beside_followed!("20f"),
            "21:",
            unless_due!("rsi"),
            count!("rsi", "{followed}"),
            leave!(),
            unless_idle!(),
            unless_followed!("20", "21b"),
            ".p2align 6",
            "9:",
            if_wanted!("{followed_chunks}", "9f"),
            unless_beside_followed!("20f"),
            "22:",
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
            count!("rsi", "0"),
            "sub rsp, 24",
            ".cfi_adjust_cfa_offset 24",
            "mov qword ptr [rsp], rax",
            "mov qword ptr [rsp + 8], rdx",
            "call qword ptr [rip + {near} + {next}]",
            "mov rdx, qword ptr [rsp]",
            "mov rcx, qword ptr [rsp + 8]",
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
            "test rax, rax",
            "je 5f",
            "mov r8, rcx",
            grown!("0", "sub rcx, r8\n", "jl 4f\n"),
            "4:",
            "neg rcx",
            "mov rdi, rcx",
            call!("{shrink}", "rax"),
            "ret",
            unless_followed!("20", "22b"),
            "9:",
            if_wanted!("{last_chunks}", "9f"),
            unless_last!(),
            "jmp 22b",
            "9:",
            if_wanted!("{last}", "3f"),
            unless_last!(),
            unless_due!("rsi"),
            count!("rsi", "{last}"),
            leave!(),
        ],
        ["mov rdx, rsp", "mov rcx, rbp"],
        address = const !(Armed::BITS as i64),
        shrink = sym fast::shrink,
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
    with_filter!(
        function,
        Function::Free,
        free,
        body,
        [
            begin!(),
            if_wanted!("{followed}", "9f"),
            unless_beside_followed!("20f"),
            "21:",
            count_free!("{followed}"),
            leave!(),
            unless_idle!(),
            unless_followed!("20", "21b"),
            ".p2align 6",
            "9:",
            if_wanted!("{followed_chunks}", "9f"),
            unless_beside_followed!("20f"),
            "22:",
            free_chunk!("{followed_chunks}"),
            unless_followed!("20", "22b"),
            "9:",
            if_wanted!("{last_chunks}", "9f"),
            unless_last!(),
            free_chunk!("{last_chunks}"),
            "9:",
            if_wanted!("{followed_sizes}", "9f"),
            unless_beside_followed!("20f"),
            "23:",
            free_sized!("{followed_sizes}"),
            unless_followed!("20", "23b"),
            "9:",
            if_wanted!("{last}", "3f"),
            unless_last!(),
            count_free!("{last}"),
            leave!(),
        ],
        [],
        followed_sizes = const fast::FOLLOWED_SIZES,
        size_of = const USABLE_SIZE,
        live_max = const LIVE_MAX,
        grain = const GRAIN,
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
        "mov rax, qword ptr [rip + {near} + {sizes}]",
        "test rax, rax",
        "je {body}",
        "jmp rax",
        ".cfi_endproc",
        near = sym NEAR,
        sizes = const offset_of!(Near, sizes),
        body = sym body,
    )
}
