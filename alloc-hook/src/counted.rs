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

/// `record` gets the thread's record; goes to `otherwise` unless the thread is armed.
macro_rules! armed {
    () => {
        "mov {record}, qword ptr [{state} + {armed}]\ncmp {record}, {arming}\njle {otherwise}"
    };
}

macro_rules! count {
    () => {
        "add qword ptr [{record} + {calls}], 1\nadd qword ptr [{record} + {bytes}], {size}"
    };
}

/// As `capture::live::grow` and `grew`: what a program builds up comes to the second part each time. Ends at 8, also through `grew`.
macro_rules! grow {
    () => {
        concat!(
            "sub qword ptr [{record} + {below_max}], {size}\n",
            "jns 8f\n",
            "mov {state}, qword ptr [{record} + {below_max}]\n",
            "sub qword ptr [{record} + {below_max}], {state}\n",
            "sub qword ptr [{record} + {max}], {state}\n",
            "cmp qword ptr [{record} + {max}], {grain}\n",
            "jge {grew}\n",
            "8:",
        )
    };
}

/// As `capture::live::shrink`.
macro_rules! shrink {
    () => {
        concat!(
            "add qword ptr [{record} + {below_max}], {size}\n",
            "cmp qword ptr [{record} + {below_max}], {grain}\n",
            "jge {shrank}",
        )
    };
}

/// The instructions, with what all of them need, for calls that `$which` arms a thread for. What another is to do is there once more, out of the way: registers do not come along.
macro_rules! instructions {
    ($function:expr, $size:ident, $which:ident, slow: $slow:expr, otherwise: $otherwise:expr, [$($line:expr,)*], $($operands:tt)*) => {
        // SAFETY: an armed thread has a record, and writes its own counters.
        unsafe {
            asm!(
                begin!(),
                $($line,)*
                slow = label { return $slow },
                otherwise = label { return $otherwise },
                state = out(reg) _,
                record = out(reg) _,
                size = in(reg) $size,
                no_state = const offsets::NO_STATE,
                armed = const offsets::$which,
                arming = const Armed::ARMING,
                calls = const Thread::called_at($function as usize) + offset_of!(Called, calls),
                bytes = const Thread::called_at($function as usize) + offset_of!(Called, bytes),
                below_max = const offset_of!(Thread, live_bytes_below_max),
                grain = const GRAIN,
                $($operands)*
                options(nostack),
            )
        }
    };
}

/// Counts a call of `dealloc` while some allocations are recorded, or all. Not yet, if the block is the thread's last recorded one; and what is to be done if it has a place in `$filter`, by
/// bits of [`fast::PLACE`] from `$shift` on.
macro_rules! freed_unless_in {
    ($address:ident, $size:ident, $filter:path, $shift:expr, there: $there:expr) => {{
        instructions!(
            Function::RustDealloc,
            $size,
            RECORDING,
            slow: Counted::NotYet,
            otherwise: Counted::NotYet,
            [
                armed!(),
                "cmp {address}, qword ptr [{state} + {last_address}]",
                "je {slow}",
                // As `live::place`; the filter by way of the table of offsets, as the compiler does it: the two can come to lie in a shared library that exports them.
                "imul {place}, {address}, {factor}",
                "shr {place}, {shift}",
                "and {place:e}, {places} - 1",
                "mov {state}, qword ptr [rip + {filter}@GOTPCREL]",
                "cmp byte ptr [{state} + {place}], 0",
                "jne {there}",
                count!(),
                shrink!(),
            ],
            address = in(reg) $address,
            place = out(reg) _,
            there = label { $there },
            shrank = label { return Counted::AndShrank },
            last_address = const offsets::LAST_ADDRESS,
            factor = const fast::PLACE,
            shift = const $shift,
            places = const size_of_val(&$filter),
            filter = sym $filter,
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
        COUNTING,
        slow: Counted::NotYet,
        otherwise: allocated_between_samples::<FUNCTION>(size),
        ["test {address}, {address}", "je {slow}", armed!(), count!(), grow!(),],
        address = in(reg) address,
        grew = label { fast::grew() },
        max = const offset_of!(Thread, live_bytes_max),
    );
    Counted::Wholly
}

#[inline(always)]
fn allocated_between_samples<const FUNCTION: u8>(size: usize) -> Counted {
    instructions!(
        FUNCTION,
        size,
        RECORDING,
        slow: Counted::NotYet,
        otherwise: Counted::NotYet,
        [
            armed!(),
            "mov {left}, qword ptr [{state} + {countdown}]",
            "sub {left}, {size}",
            "jbe {due}",
            "mov qword ptr [{state} + {countdown}], {left}",
            count!(),
            grow!(),
        ],
        left = out(reg) _,
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
        RECORDING,
        slow: false,
        otherwise: false,
        [armed!(), count!(), grow!(),],
        grew = label { fast::grew() },
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
        COUNTING,
        slow: false,
        otherwise: false,
        [
            "test {address}, {address}",
            "je {slow}",
            armed!(),
            count!(),
            // As `capture::live::shrink`; far enough below their most, bytes are brought in when the next block is given back.
            "add qword ptr [{record} + {below_max}], {old}",
            grow!(),
        ],
        address = in(reg) address,
        old = in(reg) old,
        grew = label { fast::grew() },
        max = const offset_of!(Thread, live_bytes_max),
    );
    true
}

/// Counts a call of `dealloc` that gives back the `size` bytes at `address`. Not yet, if its allocation was recorded perhaps.
#[inline(always)]
pub(crate) fn freed(address: *mut u8, size: usize) -> Counted {
    instructions!(
        Function::RustDealloc,
        size,
        COUNTING,
        slow: Counted::NotYet,
        otherwise: freed_between_samples(address, size),
        [armed!(), count!(), shrink!(),],
        shrank = label { return Counted::AndShrank },
    );
    Counted::Wholly
}

#[inline(always)]
fn freed_between_samples(address: *mut u8, size: usize) -> Counted {
    freed_unless_in!(
        address,
        size,
        live::OCCUPIED,
        fast::OCCUPIED_SHIFT,
        there: return freed_beside_others(address, size)
    )
}

/// The same for a block of whose neighbours one was recorded, or itself.
#[cold]
#[inline(never)]
fn freed_beside_others(address: *mut u8, size: usize) -> Counted {
    freed_unless_in!(address, size, live::COUNTS, fast::PLACE_SHIFT, there: return Counted::NotYet)
}
