//! Calls of Rust's door that need only be counted, in a few instructions ([`crate::fast`] tells when): all of them while nothing is recorded, and those between two samples.
//!
//! A thread's numbers are written by the thread alone, each by one instruction, so that a signal handler which allocates in between adds to what it finds.
#![allow(unsafe_code)]

use crate::near::{NEAR, Near};
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
    /// It is; its bytes are still to be taken off what is live, by more than an addition.
    ButBytes,
    /// It is not: there is more to do.
    NotYet,
    /// It is not, and is to be recorded.
    IsDue,
    /// It is not: of the block's neighbours one was recorded, or itself.
    BesideOthers,
}

/// `state` gets the thread's state; goes to `slow` if there is none.
macro_rules! begin {
    () => {
        concat!(
            "mov {state}, qword ptr [rip + profile_recorder_thread_v0_1@GOTTPOFF]\n",
            "mov {state}, qword ptr fs:[{state}]\n",
            "cmp {state}, {no_state}\n",
            "jbe {slow}",
        )
    };
}

/// `record` gets the thread's record by its word `$which`; goes to `$otherwise` unless the thread is armed for that.
macro_rules! armed {
    ($which:literal, $otherwise:literal) => {
        concat!("mov {record}, qword ptr [{state} + ", $which, "]\ncmp {record}, {arming}\njle ", $otherwise)
    };
}

/// `record` gets the thread's record; goes to 6 if the thread only counts, and to `slow` unless it is armed for recording. What lies behind is done by one that records alone, up to 6.
macro_rules! unless_counting {
    () => {
        concat!(
            "mov {record}, qword ptr [{state} + {counting}]\n",
            "cmp {record}, {arming}\n",
            "jg 6f\n",
            armed!("{recording}", "{slow}"),
        )
    };
}

macro_rules! count {
    () => {
        "add qword ptr [{record} + {calls}], 1\nadd qword ptr [{record} + {bytes}], {size}"
    };
}

/// `$bytes` more are live, as `capture::live::grow`. Goes to `grew` if they are to be brought in.
macro_rules! grow {
    ($bytes:literal) => {
        concat!("sub qword ptr [{record} + {below_max}], ", $bytes, "\njs {grew}")
    };
}

/// `size` bytes fewer are live. Goes to `shrinks`, having done nothing, if `capture::live::shrink` does more than add; `state` is spent.
macro_rules! shrink {
    () => {
        concat!(
            "mov {state}, qword ptr [{record} + {below_max}]\n",
            "sub {state}, {grain}\n",
            "jl {shrinks}\n",
            "add {state}, {size}\n",
            "cmp {state}, {grain}\n",
            "jge {shrinks}\n",
            "add qword ptr [{record} + {below_max}], {size}",
        )
    };
}

/// Counts the bytes down; goes to `due` if the allocation is the next to be recorded.
macro_rules! unless_due {
    () => {
        concat!(
            "mov {left}, qword ptr [{state} + {countdown}]\n",
            "sub {left}, {size}\n",
            "jbe {due}\n",
            "mov qword ptr [{state} + {countdown}], {left}",
        )
    };
}

/// The instructions, with what all of them need. What a thread does that is armed for its recording follows on what it does for its counts alone, in one block: registers do not come along from one to another.
macro_rules! instructions {
    ($function:expr, $size:ident, slow: $slow:expr, [$($line:expr,)*], $($operands:tt)*) => {
        // SAFETY: an armed thread has a record, and writes its own counters.
        unsafe {
            asm!(
                begin!(),
                $($line,)*
                slow = label { return $slow },
                state = out(reg) _,
                record = out(reg) _,
                size = in(reg) $size,
                no_state = const offsets::NO_STATE,
                arming = const Armed::ARMING,
                calls = const Thread::called_at($function as usize) + offset_of!(Called, calls),
                bytes = const Thread::called_at($function as usize) + offset_of!(Called, bytes),
                below_max = const offset_of!(Thread, live_bytes_below_max),
                $($operands)*
                options(nostack),
            )
        }
    };
}

/// Goes to `slow` if the block at `address` is the thread's last recorded one, and sets `place` to the bits from `shift` on of what [`fast::PLACE`] makes of it, and `state` to the `filter`.
///
/// The filter by way of the table of offsets, as the compiler does it: the two can come to lie in a shared library that exports them.
macro_rules! place {
    () => {
        concat!(
            "cmp {address}, qword ptr [{state} + {last_address}]\n",
            "je {slow}\n",
            "imul {place}, {address}, {factor}\n",
            "shr {place}, {shift}\n",
            "mov {state}, qword ptr [rip + {filter}@GOTPCREL]\n",
        )
    };
}

/// Goes to `slow` if the block at `address` is the thread's last recorded one, and to `there` if one of its neighbours has a place in the filter, or itself. As `live::place`.
macro_rules! unless_beside_followed {
    () => {
        concat!(
            place!(),
            "mov {word:e}, {place:e}\n",
            "shr {word:e}, 6\n",
            "and {word:e}, {shards} - 1\n",
            "mov {word}, qword ptr [{state} + 8 * {word} + {occupied}]\n",
            // By the lowest six bits.
            "bt {word}, {place}\n",
            "jc {there}",
        )
    };
}

/// The same for the block itself.
macro_rules! unless_followed {
    () => {
        concat!(place!(), "and {place:e}, {places} - 1\n", "cmp byte ptr [{state} + {place}], 0\n", "jne {there}",)
    };
}

/// [`instructions!`] of `dealloc`, with what [`place!`] needs for `$filter`.
macro_rules! freed {
    ($address:ident, $size:ident, [$($line:expr,)*], $filter:path, $shift:path, there: $there:expr, $($operands:tt)*) => {{
        instructions!(
            Function::RustDealloc,
            $size,
            slow: Counted::NotYet,
            [$($line,)*],
            recording = const offsets::RECORDING,
            grain = const GRAIN,
            address = in(reg) $address,
            place = out(reg) _,
            there = label { return $there },
            shrinks = label { return Counted::ButBytes },
            last_address = const offsets::LAST_ADDRESS,
            factor = const fast::PLACE,
            shift = const $shift,
            filter = sym $filter,
            $($operands)*
        );
        Counted::Wholly
    }};
}

/// Counts a call of `FUNCTION` that obtained `size` bytes at `address`.
#[inline(always)]
pub(crate) fn allocated<const FUNCTION: u8>(address: *mut u8, size: usize) -> Counted {
    instructions!(
        FUNCTION,
        size,
        slow: Counted::NotYet,
        [
            "test {address}, {address}",
            "je {slow}",
            armed!("{recording}", "{slow}"),
            unless_due!(),
            count!(),
            grow!("{size}"),
        ],
        recording = const offsets::RECORDING,
        address = in(reg) address,
        left = out(reg) _,
        due = label { return Counted::IsDue },
        grew = label { fast::bring_in() },
        countdown = const offsets::COUNTDOWN,
    );
    Counted::Wholly
}

/// Counts a call that is due and that is recorded next; false if it is to go the whole way.
#[inline(always)]
pub(crate) fn allocated_due<const FUNCTION: u8>(size: usize) -> bool {
    instructions!(
        FUNCTION,
        size,
        slow: false,
        [armed!("{recording}", "{slow}"), count!(), grow!("{size}"),],
        recording = const offsets::RECORDING,
        grew = label { fast::bring_in() },
    );
    true
}

/// Counts a call of `realloc` that made `size` bytes at `address` of the `old` ones at `before`, of which nobody follows the end.
#[inline(always)]
pub(crate) fn reallocated(before: *mut u8, old: usize, address: *mut u8, size: usize) -> Counted {
    instructions!(
        Function::RustRealloc,
        size,
        slow: Counted::NotYet,
        [
            "test {address}, {address}",
            "je {slow}",
            armed!("{recording}", "{slow}"),
            "cmp {before}, qword ptr [{state} + {last_address}]",
            "je {slow}",
            // Fewer: they may have been more than ever.
            "cmp {size}, {old}",
            "jb {slow}",
            unless_due!(),
            count!(),
            "mov {left}, {size}",
            "sub {left}, {old}",
            grow!("{left}"),
        ],
        recording = const offsets::RECORDING,
        before = in(reg) before,
        old = in(reg) old,
        address = in(reg) address,
        left = out(reg) _,
        due = label { return Counted::IsDue },
        grew = label { fast::bring_in() },
        countdown = const offsets::COUNTDOWN,
        last_address = const offsets::LAST_ADDRESS,
    );
    Counted::Wholly
}

/// Counts a call of `dealloc` that gives back the `size` bytes at `address`. Not yet, if its allocation was recorded perhaps.
#[inline(always)]
pub(crate) fn freed(address: *mut u8, size: usize) -> Counted {
    freed!(
        address,
        size,
        [
            unless_counting!(),
            unless_beside_followed!(),
            "6:",
            count!(),
            shrink!(),
        ],
        NEAR,
        fast::OCCUPIED_SHIFT,
        there: Counted::BesideOthers,
        counting = const offsets::COUNTING,
        occupied = const offset_of!(Near, occupied),
        shards = const live::SHARDS,
        word = out(reg) _,
    )
}

/// The same for a block of whose neighbours one was recorded, or itself.
pub(crate) fn freed_beside_others(address: *mut u8, size: usize) -> Counted {
    freed!(
        address,
        size,
        [armed!("{recording}", "{slow}"), unless_followed!(), count!(), shrink!(),],
        live::COUNTS,
        fast::PLACE_SHIFT,
        there: Counted::NotYet,
        places = const size_of_val(&live::COUNTS),
    )
}
