//! Calls of Rust's door while nothing is recorded: counted in a few instructions ([`crate::fast`] tells when).
//!
//! A thread's numbers are written by the thread alone, each by one instruction, so that a signal handler which allocates in between adds to what it finds.
#![allow(unsafe_code)]

use crate::fast;
use capture::live::GRAIN;
use capture::thread::offsets;
use core::arch::asm;
use core::mem::offset_of;
use layout::{Function, Thread};

pub(crate) const ALLOC: u8 = Function::RustAlloc as u8;
pub(crate) const ALLOC_ZEROED: u8 = Function::RustAllocZeroed as u8;

/// `rcx` gets the thread's state; goes to `slow` unless the thread has the arrangement in force.
macro_rules! begin {
    () => {
        concat!(
            "mov rcx, qword ptr [rip + profile_recorder_thread_v0_1@GOTTPOFF]\n",
            "mov rcx, qword ptr fs:[rcx]\n",
            "cmp rcx, {no_state}\n",
            "jbe {slow}\n",
            // By way of the table of offsets, as the compiler does it: the two can come to lie in a shared library that exports them.
            "mov rdx, qword ptr [rip + {arrangement}@GOTPCREL]\n",
            "mov rdx, qword ptr [rdx]\n",
            "cmp rdx, qword ptr [rcx + {armed}]\n",
            "jne {slow}",
        )
    };
}

/// Counts a call of the function with this number, then leaves, or goes the way of what grew or shrank. `$arrangement` has to be in force, and `$before` to be so; `$live` changes what is live.
macro_rules! count {
    ($arrangement:path, $not:expr, [$($before:literal),*], $function:expr, $size:ident, [$($live:literal),*], $($more:ident = $then:path,)? [$($operands:tt)*]) => {
        // SAFETY: a thread that has an arrangement has a record, and writes its own counters.
        unsafe {
            asm!(
                begin!(),
                $($before,)*
                "mov rcx, qword ptr [rcx + {record}]",
                "add qword ptr [rcx + {calls}], 1",
                "add qword ptr [rcx + {bytes}], {size}",
                $($live,)*
                slow = label { return $not },
                $($more = label { $then() },)?
                size = in(reg) $size,
                no_state = const offsets::NO_STATE,
                arrangement = sym $arrangement,
                armed = const offsets::COUNTS,
                record = const offsets::RECORD,
                calls = const offset_of!(Thread, calls) + $function as usize * 8,
                bytes = const offset_of!(Thread, bytes) + $function as usize * 8,
                below_max = const offset_of!(Thread, live_bytes_below_max),
                $($operands)*
                out("rcx") _,
                out("rdx") _,
                options(nostack),
            )
        }
    };
}

/// Counts a call of `FUNCTION` that obtained `size` bytes at `address` while nothing is recorded; false if there is more to do.
#[inline(always)]
pub(crate) fn allocated<const FUNCTION: u8>(address: *mut u8, size: usize) -> bool {
    // As `capture::live::grow`.
    count!(
        fast::COUNTING,
        false,
        ["test {address}, {address}", "je {slow}"],
        FUNCTION,
        size,
        ["sub qword ptr [rcx + {below_max}], {size}", "js {grew}"],
        grew = fast::grew,
        [address = in(reg) address,]
    );
    true
}

/// How a call is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// It is.
    Wholly,
    /// It is not: there is more to do.
    NotYet,
    /// It is not, and is to be recorded.
    IsDue,
}

/// The same while some allocations are recorded, or all.
#[inline(always)]
pub(crate) fn allocated_between<const FUNCTION: u8>(address: *mut u8, size: usize) -> Counted {
    count!(
        fast::RECORDING,
        Counted::NotYet,
        [
            "test {address}, {address}",
            "je {slow}",
            "mov rdx, qword ptr [rcx + {countdown}]",
            "sub rdx, {size}",
            "jbe {due}",
            "mov qword ptr [rcx + {countdown}], rdx"
        ],
        FUNCTION,
        size,
        ["sub qword ptr [rcx + {below_max}], {size}", "js {grew}"],
        grew = fast::grew,
        [
            address = in(reg) address,
            due = label { return Counted::IsDue },
            countdown = const offsets::COUNTDOWN,
        ]
    );
    Counted::Wholly
}

/// Counts a call that is due and that is recorded next; false if it is to go the whole way. Nothing is called, so that a caller need keep nothing.
#[inline(always)]
pub(crate) fn allocated_due<const FUNCTION: u8>(size: usize) -> bool {
    count!(
        fast::RECORDING,
        false,
        // As `capture::live::grow`, where there is more than before.
        ["mov rdx, qword ptr [rcx + {record}]", "cmp qword ptr [rdx + {below_max}], {size}", "jl {slow}"],
        FUNCTION,
        size,
        ["sub qword ptr [rcx + {below_max}], {size}"],
        []
    );
    true
}

/// Counts a call of `realloc` that made `size` bytes of `old`, at `address`, while nothing is recorded; false if there is more to do.
#[inline(always)]
pub(crate) fn reallocated(address: *mut u8, old: usize, size: usize) -> bool {
    // As `capture::live::shrink` and `grow`; far enough below their most, bytes are brought in when the next block is given back.
    count!(
        fast::COUNTING,
        false,
        ["test {address}, {address}", "je {slow}"],
        Function::RustRealloc,
        size,
        ["add qword ptr [rcx + {below_max}], {old}", "sub qword ptr [rcx + {below_max}], {size}", "js {grew}"],
        grew = fast::grew,
        [address = in(reg) address, old = in(reg) old,]
    );
    true
}

/// Counts a call of `dealloc` that gives `size` bytes back while nothing is recorded; false if there is more to do.
#[inline(always)]
pub(crate) fn freed(size: usize) -> bool {
    // As `capture::live::shrink`.
    count!(
        fast::COUNTING,
        false,
        [],
        Function::RustDealloc,
        size,
        ["add qword ptr [rcx + {below_max}], {size}", "cmp qword ptr [rcx + {below_max}], {grain}", "jge {shrank}"],
        shrank = fast::shrank,
        [grain = const GRAIN,]
    );
    true
}

/// The same while some allocations are recorded, and the block at `address` is not one that lives; false also if it is the last that was.
#[inline(always)]
pub(crate) fn freed_between(address: *mut u8, size: usize) -> bool {
    count!(
        fast::RECORDING,
        false,
        ["cmp {address}, qword ptr [rcx + {last_address}]", "je {slow}"],
        Function::RustDealloc,
        size,
        ["add qword ptr [rcx + {below_max}], {size}", "cmp qword ptr [rcx + {below_max}], {grain}", "jge {shrank}"],
        shrank = fast::shrank,
        [grain = const GRAIN, address = in(reg) address, last_address = const offsets::LAST_ADDRESS,]
    );
    true
}
