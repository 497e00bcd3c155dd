//! When a call of the malloc family need only be counted, and what the exported functions then go by.
//!
//! Most calls are counted and no more: while nothing is recorded, and between two samples. The preload library's entry points do that in a few instructions of their own, without a
//! frame, and leave for the next allocator; whatever else is to be done is the business of the functions behind them. An *arrangement* is a number that stands for all that the few
//! instructions rely on. A thread that is [`Armed`] may take them; it is at the end of a call that went the whole way (`arm`), if there is an arrangement. Whatever changes what they
//! rely on withdraws it and disarms all threads (`rearrange`), so that each goes the whole way once more.
//!
//! # Orderings
//!
//! What an arrangement relies on is stored before its number (`SeqCst`), and read by a thread after it (`Acquire`). Who is armed, and who is not: as [`Armed`] says.
#![allow(unsafe_code)]

use crate::{bootstrap, next, record, sampling};
use capture::thread::{Armed, Current, NONE_BETWEEN, ThreadState, current, disarm_all};
use capture::{modules, region};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use layout::Live;

/// The arrangement in force. Its lower bits, which an armed thread has too, tell the entry points what to do: one of the five that follow. Then: there is none.
static ARRANGEMENT: AtomicU64 = AtomicU64::new(NONE);
/// As `FOLLOWED`, and live bytes are accounted for, by what stands in front of glibc's blocks.
pub const FOLLOWED_CHUNKS: u64 = 2;
/// Some allocations are recorded, all or none, and frees followed: a block that is given back may be any that lives.
pub const FOLLOWED: u64 = 4;
/// As `LAST`, and live bytes are accounted for.
pub const LAST_CHUNKS: u64 = 8;
/// Frees are not followed, but that of the thread's last recorded block is.
pub const LAST: u64 = 16;
/// As `FOLLOWED`, and live bytes are accounted for: blocks of another allocator than glibc's, which is asked for the size of each.
pub const FOLLOWED_SIZES: u64 = 32;
/// There is none: a number that arms no thread.
const NONE: u64 = 64;
const STEP: u64 = 128;

const _: () = assert!((FOLLOWED_CHUNKS | FOLLOWED | LAST_CHUNKS | LAST | FOLLOWED_SIZES) & !Armed::BITS == 0);

/// The arrangement in force behind Rust's door: some allocations are recorded, all or none, and other calls need only be counted.
static RECORDING: AtomicU64 = AtomicU64::new(NONE);

/// The same for what is given back, where none is recorded nor followed.
static COUNTING: AtomicU64 = AtomicU64::new(NONE);

/// Numbers given out.
static NEWEST: AtomicU64 = AtomicU64::new(NONE);

pub use crate::live::{COUNTS, OCCUPIED_SHIFT, PLACE, PLACE_SHIFT, SHARDS};

/// A countdown that no program comes to the end of.
const NEVER: u64 = 1 << 62;

/// Whatever the arrangement relies on has changed.
pub(crate) fn rearrange() {
    let number = NEWEST.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    // Until it is known what holds now. Whoever changes something meanwhile takes another number, and this one is void.
    ARRANGEMENT.store(number, Ordering::SeqCst);
    COUNTING.store(number, Ordering::SeqCst);
    RECORDING.store(number, Ordering::SeqCst);
    disarm_all();
    // Behind Rust's door.
    if !record::any_marked() && region::header().is_some() {
        let _ = RECORDING.compare_exchange(number, number ^ NONE, Ordering::SeqCst, Ordering::Relaxed);
        if record::interval() == 0 && !record::follows_frees() {
            let _ = COUNTING.compare_exchange(number, number ^ NONE, Ordering::SeqCst, Ordering::Relaxed);
        }
    }
    if let Some(bits) = arrangement() {
        let _ = ARRANGEMENT.compare_exchange(number, number ^ NONE | bits, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// The lower bits of what can be arranged now; `None`: nothing.
fn arrangement() -> Option<u64> {
    // A block that was made at the start must be recognised when it is given back.
    let possible =
        next::has_all_that_are_jumped_to() && next::is_known() && bootstrap::is_unused() && region::header().is_some();
    if !possible || record::any_marked() {
        return None;
    }
    // Where nothing is recorded, there is no last block.
    let is_followed = record::follows_frees() || record::interval() == 0;
    if !record::accounts(Live::Allocated) {
        return Some(if is_followed { FOLLOWED } else { LAST });
    }
    match (AGREED.load(Ordering::Relaxed), is_followed) {
        (ENOUGH, true) => Some(FOLLOWED_CHUNKS),
        (ENOUGH, false) => Some(LAST_CHUNKS),
        (OTHERS, true) => Some(FOLLOWED_SIZES),
        // Not known yet, or seldom wanted.
        _ => None,
    }
}

/// After a call that went the whole way: the thread's next ones need not, if that can be arranged.
#[inline(always)]
pub(crate) fn arm(thread: &ThreadState) {
    if !thread.armed.is_armed() && is_some(&ARRANGEMENT) {
        arm_slow(thread, &thread.armed, &ARRANGEMENT);
    }
}

/// The same after a call through Rust's door.
#[inline(always)]
pub(crate) fn arm_behind_rust(thread: &ThreadState) {
    if !thread.recording.is_armed() && is_some(&RECORDING) {
        arm_slow(thread, &thread.recording, &RECORDING);
    }
    if !thread.counting.is_armed() && is_some(&COUNTING) {
        arm_slow(thread, &thread.counting, &COUNTING);
    }
}

#[inline(always)]
fn is_some(arrangement: &AtomicU64) -> bool {
    arrangement.load(Ordering::Relaxed) & NONE == 0
}

#[cold]
#[inline(never)]
fn arm_slow(thread: &ThreadState, armed: &Armed, arrangement: &AtomicU64) {
    let Some(record) = thread.thread_record() else { return };
    armed.arm(record, || {
        let number = arrangement.load(Ordering::Acquire);
        // What a handler asked for, an allocation does that goes the whole way: a free is none, and would be followed by others that do not.
        if number & NONE != 0 || modules::is_refresh_requested() {
            return None;
        }
        count_down(thread, record::interval());
        forget_last(thread);
        Some(number)
    });
}

/// What was recorded last can no longer be told from the thread's last one, where every allocation was, or where nobody is told of its end any more.
fn forget_last(thread: &ThreadState) {
    let interval = record::interval();
    if interval == 0 || interval != 1 && thread.last_calls.load(Ordering::Relaxed) == NONE_BETWEEN {
        thread.last_address.store(1, Ordering::Relaxed);
    }
}

/// The thread's countdown becomes one of this interval, if it is not.
fn count_down(thread: &ThreadState, interval: u64) {
    // Whatever interval comes next draws a countdown of its own.
    let countdown = match interval {
        0 => NEVER,
        // Every one is due.
        1 => 0,
        _ if thread.interval.load(Ordering::Relaxed) == interval => return,
        // A thread that only frees need not wait for an allocation of its own.
        _ => sampling::draw(thread, interval),
    };
    thread.interval.store(interval, Ordering::Relaxed);
    thread.countdown.store(countdown, Ordering::Relaxed);
}

/// The live bytes of the calling thread have changed so much that they are brought into the process's. For the entry points.
#[cold]
pub extern "C" fn bring_in() {
    if let Current::Known(thread) = current()
        && let Some(record) = thread.thread_record()
    {
        capture::live::bring_in(record);
    }
}

/// The calling thread, which counts live bytes, has so many less. For the entry points.
#[cold]
pub extern "C" fn shrink(bytes: usize) {
    if let Current::Known(thread) = current()
        && let Some(record) = thread.thread_record()
    {
        capture::live::shrink(record, bytes as u64);
    }
}

/// How many blocks had the size that stands in front of them; [`OTHERS`] if one did not.
static AGREED: AtomicU32 = AtomicU32::new(OTHERS);
const ENOUGH: u32 = 64;
const OTHERS: u32 = u32::MAX;

/// Whether blocks come from the C library. If they do not, nothing is read in front of them.
pub(crate) fn set_libc(is_libc: bool) {
    AGREED.store(if is_libc { 0 } else { OTHERS }, Ordering::Relaxed);
}

/// Whether the blocks are glibc's, as far as is known.
#[inline(always)]
pub(crate) fn has_chunks() -> bool {
    AGREED.load(Ordering::Relaxed) == ENOUGH
}

/// Whether a block has the size that glibc notes in front of it: the bytes of the whole chunk, of which a mapped one loses one word more (malloc.c, `musable`). Learnt from blocks of the
/// host, since any library can stand behind the name `malloc`.
#[cold]
pub(crate) fn compare(block: *mut u8, usable: usize) {
    let agreed = AGREED.load(Ordering::Relaxed);
    if agreed >= ENOUGH {
        return;
    }
    // SAFETY: a block of the C library's allocator, which keeps a header in front of each.
    let same = unsafe { chunk_bytes(block) } == usable;
    let after = if same { agreed + 1 } else { OTHERS };
    // Another thread may have compared at the same time; one of the two is forgotten, but not a difference.
    if AGREED.compare_exchange(agreed, after, Ordering::Relaxed, Ordering::Relaxed).is_err() && !same {
        AGREED.store(OTHERS, Ordering::Relaxed);
    }
    if after >= ENOUGH {
        rearrange();
    }
}

/// Bytes of a block, by glibc's header.
///
/// # Safety
/// The block is one of glibc's, and live.
#[inline(always)]
pub(crate) unsafe fn chunk_bytes(block: *mut u8) -> usize {
    const MAPPED: usize = 2;
    // SAFETY: as the caller promises. Others may set the lower bits meanwhile, which are left out here.
    let size = unsafe { block.sub(size_of::<usize>()).cast::<usize>().read_volatile() };
    (size & !7).wrapping_sub(size_of::<usize>()).wrapping_sub((size & MAPPED) * (size_of::<usize>() / MAPPED))
}
