//! Calls of Rust's door that need only be counted, in a few instructions ([`crate::fast`] tells when): all of them while nothing is recorded, and those between two samples.
//!
//! A thread's numbers are written by the thread alone, each by one instruction, so that a signal handler which allocates in between adds to what it finds.
#![allow(unsafe_code)]

use crate::{fast, live};
use capture::live::GRAIN;
use capture::thread::{Armed, offsets};
use core::arch::asm;
use core::mem::offset_of;
use layout::{Called, Function, Thread};

pub(crate) const ALLOC: u8 = Function::RustAlloc as u8;
pub(crate) const ALLOC_ZEROED: u8 = Function::RustAllocZeroed as u8;

/// How a call is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// It is.
    Wholly,
    /// It is, and so much was given back that it is to be brought into the process's.
    AndShrank,
    /// It is not: there is more to do.
    NotYet,
    /// It is not, and is to be recorded.
    IsDue,
}

/// `rcx` gets the thread's state; goes to `slow` if there is none.
macro_rules! begin {
    () => {
        concat!(
            "mov rcx, qword ptr [rip + profile_recorder_thread_v0_1@GOTTPOFF]\n",
            "mov rcx, qword ptr fs:[rcx]\n",
            "cmp rcx, {no_state}\n",
            "jbe {slow}",
        )
    };
}

/// `rdx` gets the thread's record; goes to `$not` unless the thread is armed for that.
macro_rules! armed {
    ($which:literal, $not:literal) => {
        concat!("mov rdx, qword ptr [rcx + {", $which, "}]\n", "cmp rdx, {arming}\n", "jle ", $not)
    };
}

macro_rules! count {
    () => {
        concat!("add qword ptr [rdx + {calls}], 1\n", "add qword ptr [rdx + {bytes}], {size}")
    };
}

/// As `capture::live::grow` and `grew`: what a program builds up comes to the second part each time. Ends at 8, also through `grew`.
macro_rules! grow {
    () => {
        concat!(
            "sub qword ptr [rdx + {below_max}], {size}\n",
            "jns 8f\n",
            "mov rcx, qword ptr [rdx + {below_max}]\n",
            "sub qword ptr [rdx + {below_max}], rcx\n",
            "sub qword ptr [rdx + {max}], rcx\n",
            "cmp qword ptr [rdx + {max}], {grain}\n",
            "jge {grew}",
        )
    };
}

/// The instructions, with what all of them need; `$not` is returned where there is more to do.
macro_rules! instructions {
    ($function:expr, $size:ident, $not:expr, [$($line:expr,)*], $($operands:tt)*) => {
        // SAFETY: an armed thread has a record, and writes its own counters.
        unsafe {
            asm!(
                begin!(),
                $($line,)*
                "8:",
                slow = label { return $not },
                size = in(reg) $size,
                no_state = const offsets::NO_STATE,
                arming = const Armed::ARMING,
                calls = const Thread::called_at($function as usize) + offset_of!(Called, calls),
                bytes = const Thread::called_at($function as usize) + offset_of!(Called, bytes),
                below_max = const offset_of!(Thread, live_bytes_below_max),
                grain = const GRAIN,
                $($operands)*
                out("rcx") _,
                out("rdx") _,
                options(nostack),
            )
        }
    };
}

/// The same for a block at `$address`, whether or not something is recorded. `$live` changes what is live, and goes to 8 or further down; `$recorded` goes on only if the call need not be recorded.
macro_rules! in_either_case {
    ($function:expr, $size:ident, $address:ident, [$($before:expr,)*], [$($live:expr,)*], [$($recorded:expr,)*], $($operands:tt)*) => {
        instructions!(
            $function,
            $size,
            Counted::NotYet,
            [
                $($before,)*
                armed!("counting", "4f"),
                "5:",
                count!(),
                $($live,)*
                "jmp 8f",
                "4:",
                armed!("recording", "{slow}"),
                $($recorded,)*
                "jmp 5b",
            ],
            address = in(reg) $address,
            counting = const offsets::COUNTING,
            recording = const offsets::RECORDING,
            left = out(reg) _,
            $($operands)*
        )
    };
}

/// Counts a call of `FUNCTION` that obtained `size` bytes at `address`.
#[inline(always)]
pub(crate) fn allocated<const FUNCTION: u8>(address: *mut u8, size: usize) -> Counted {
    in_either_case!(
        FUNCTION,
        size,
        address,
        ["test {address}, {address}", "je {slow}",],
        [grow!(),],
        [
            "mov {left}, qword ptr [rcx + {countdown}]",
            "sub {left}, {size}",
            "jbe {due}",
            "mov qword ptr [rcx + {countdown}], {left}",
        ],
        due = label { return Counted::IsDue },
        grew = label { fast::grew() },
        countdown = const offsets::COUNTDOWN,
        max = const offset_of!(Thread, live_bytes_max),
    );
    Counted::Wholly
}

/// Counts a call that is due and that is recorded next; false if it is to go the whole way.
#[inline(always)]
pub(crate) fn allocated_due<const FUNCTION: u8>(size: usize) -> bool {
    instructions!(
        FUNCTION,
        size,
        false,
        [armed!("recording", "{slow}"), count!(), grow!(),],
        grew = label { fast::grew() },
        recording = const offsets::RECORDING,
        max = const offset_of!(Thread, live_bytes_max),
    );
    true
}

/// Counts a call of `realloc` that made `size` bytes of `old`, at `address`, while nothing is recorded; false if there is more to do.
#[inline(always)]
pub(crate) fn reallocated(address: *mut u8, old: usize, size: usize) -> bool {
    instructions!(
        Function::RustRealloc,
        size,
        false,
        [
            "test {address}, {address}",
            "je {slow}",
            armed!("counting", "{slow}"),
            count!(),
            // As `capture::live::shrink`; far enough below their most, bytes are brought in when the next block is given back.
            "add qword ptr [rdx + {below_max}], {old}",
            grow!(),
        ],
        address = in(reg) address,
        old = in(reg) old,
        grew = label { fast::grew() },
        counting = const offsets::COUNTING,
        max = const offset_of!(Thread, live_bytes_max),
    );
    true
}

/// Counts a call of `dealloc` that gives back the `size` bytes at `address`. Not yet, if its allocation was recorded perhaps.
#[inline(always)]
pub(crate) fn freed(address: *mut u8, size: usize) -> Counted {
    in_either_case!(
        Function::RustDealloc,
        size,
        address,
        [],
        // As `capture::live::shrink`.
        [
            "add qword ptr [rdx + {below_max}], {size}",
            "cmp qword ptr [rdx + {below_max}], {grain}",
            "jge {shrank}",
        ],
        // As `live::may_contain`; the filter by way of the table of offsets, as the compiler does it: the two can come to lie in a shared library that exports them.
        [
            "cmp {address}, qword ptr [rcx + {last_address}]",
            "je {slow}",
            "mov rcx, {address}",
            "shr rcx, 12",
            "xor rcx, {address}",
            "shr rcx, 4",
            "movzx ecx, cx",
            "mov {left}, qword ptr [rip + {counts}@GOTPCREL]",
            "cmp byte ptr [{left} + rcx], 0",
            "jne {slow}",
        ],
        shrank = label { return Counted::AndShrank },
        last_address = const offsets::LAST_ADDRESS,
        counts = sym live::COUNTS,
    );
    Counted::Wholly
}
