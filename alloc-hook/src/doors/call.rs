//! What a front does before and after the real function.
//!
//! # Safety
//! Each function here is called by a front alone, with its own frame, whose first words are the caller's arguments.
#![allow(unsafe_code, clippy::missing_safety_doc, reason = "called from assembly that keeps to the module's contract")]

use super::look_if_due;
use crate::record::{self, Freed, after_realloc, before_realloc};
use crate::registers::Entry;
use capture::region;
use capture::thread::{self, Current};
use core::sync::atomic::Ordering;
use layout::{Called, Function};

/// A front's frame.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    arguments: [usize; 4],
    /// What the real function returned.
    result: usize,
    /// Calls that the thread had made before: of functions that allocate; or of those that release, in the order of [`RELEASING`].
    before: [u64; RELEASING.len()],
    freed: Freed,
}

/// Bytes that a front takes of the stack: a call, and the stack pointer is a multiple of 16 again.
pub const FRAME: usize = size_of::<Call>().next_multiple_of(16) + 8;

const RELEASING: [Function; 3] = [Function::Free, Function::OperatorDelete, Function::Dallocx];

/// What the thread's own calls are counted in.
fn calls() -> &'static [Called] {
    match thread::current() {
        Current::Known(thread) => thread.thread_record().map_or(&[], |record| &record.functions),
        Current::Ignored | Current::Unregistered | Current::Off => &[],
    }
}

fn count_of(calls: &[Called], function: Function) -> u64 {
    calls.get(function as usize).map_or(0, |called| called.calls.load(Ordering::Relaxed))
}

fn allocations(calls: &[Called]) -> u64 {
    let all = calls.iter().fold(0, |sum: u64, called| sum.wrapping_add(called.calls.load(Ordering::Relaxed)));
    RELEASING.into_iter().fold(all, |sum, function| sum.wrapping_sub(count_of(calls, function)))
}

const fn function(number: u8) -> Function {
    match Function::from_number(number) {
        Some(function) => function,
        None => Function::Malloc,
    }
}

/// Before a function that allocates.
pub unsafe extern "C" fn allocating<const NUMBER: u8>(call: *mut Call) {
    look_if_due();
    let reallocates = matches!(
        const { function(NUMBER) },
        Function::Realloc | Function::Reallocarray | Function::Rallocx | Function::Xallocx
    );
    // SAFETY: the front's frame, with the caller's arguments in it.
    let [address, ..] = unsafe { (*call).arguments };
    let freed = if reallocates { before_realloc(Function::Realloc, address as *mut u8, 0) } else { Freed::NOTHING };
    // SAFETY: the frame has room for both.
    unsafe {
        (&raw mut (*call).before).write([allocations(calls()), 0, 0]);
        (&raw mut (*call).freed).write(freed);
    }
}

/// After it. `sp` is what the stack pointer was when the front was called, and `fp` the caller's frame pointer.
pub unsafe extern "C" fn allocated<const NUMBER: u8>(call: *mut Call, sp: u64, fp: u64) {
    // SAFETY: `allocating` wrote what the front did not.
    let Call { arguments: [first, second, third, _], result, before: [before, ..], freed } = unsafe { &*call };
    let function = const { function(NUMBER) };
    let size = match function {
        Function::Calloc => first.checked_mul(*second).unwrap_or(0),
        Function::Realloc | Function::AlignedAlloc | Function::Memalign | Function::Rallocx | Function::Xallocx => {
            *second
        }
        Function::Reallocarray => second.checked_mul(*third).unwrap_or(0),
        Function::PosixMemalign => *third,
        _ => *first,
    };
    let address = match function {
        // SAFETY: on success the pointer was written.
        Function::PosixMemalign if *result as i32 == 0 => unsafe { *(*first as *const usize) },
        Function::PosixMemalign => 0,
        // It tells how large the block is, which stays where it is, and as large as it was if it cannot be that large.
        Function::Xallocx if *result >= *second => *first,
        Function::Xallocx => 0,
        _ => *result,
    };
    let is_seen = allocations(calls()) != *before;
    // If another door has seen the call, it has accounted for the old block's bytes too. Null for a size of zero means that the block was freed; for another size that it was kept.
    let (_, rest) = freed.split();
    after_realloc(function, if is_seen { &rest } else { freed }, address != 0 || size == 0);
    if !is_seen {
        record::allocated(function, address as *mut u8, size, || Entry { sp, fp }.caller());
    }
}

/// Before a function that releases: what is known of the block is forgotten while nobody else can have it.
pub unsafe extern "C" fn releasing(call: *mut Call) {
    look_if_due();
    // SAFETY: the front's frame, with the caller's arguments in it.
    let [address, ..] = unsafe { (*call).arguments };
    let (bytes, rest) = before_realloc(Function::Free, address as *mut u8, 0).split();
    after_realloc(Function::Free, &rest, true);
    let calls = calls();
    // SAFETY: the frame has room for both.
    unsafe {
        (&raw mut (*call).before).write(RELEASING.map(|function| count_of(calls, function)));
        (&raw mut (*call).freed).write(bytes);
    }
}

/// After it.
pub unsafe extern "C" fn released<const NUMBER: u8>(call: *mut Call) {
    // SAFETY: `releasing` wrote both.
    let Call { before, freed, .. } = unsafe { &*call };
    let calls = calls();
    let mut is_seen = false;
    // What the real function did by way of other doors is this one release.
    for (function, before) in RELEASING.into_iter().zip(before) {
        let inner = count_of(calls, function).wrapping_sub(*before);
        is_seen |= inner != 0;
        if let Some(called) = calls.get(function as usize).filter(|_| inner != 0) {
            region::add_own(&called.calls, inner.wrapping_neg());
        }
    }
    if !is_seen {
        after_realloc(Function::Free, freed, true);
    }
    record::count_release(const { function(NUMBER) });
}
