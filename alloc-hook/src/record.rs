//! The core that both doors share: count, decide, capture, enter.
#![allow(unsafe_code)]

mod ends;
mod guard;
mod lost;
mod walked;

use crate::live::{self, Allocation, Interval, Wait};
use crate::registers::Caller;
use crate::sampling::{self, Weight};
use crate::{counting, fast, marks, next};
use capture::live as live_bytes;
use capture::thread::{self, Current, Mark, NONE_BETWEEN, ThreadState, stack_pointer};
use capture::{modules, region};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use layout::{AllocValues, Function, Live, Lost, OBJECTS_FRACTION_BITS, RecordId};

use ends::{count_freed, finish_free, freed_last, put_back, release, take};
pub(crate) use guard::thread_ends;
use guard::{enter, enter_from, is_mended};
use lost::lose;
pub use lost::prepare_for_losses;
use walked::{Call, values_of};

/// What a hook goes by. In [`INTERVAL`]'s bits the mean bytes between recorded allocations (1: every one; 0: none); above them how many threads are marked ([`marks`]); from the bit
/// [`NUMBER`] on the interval's number for allocations that live.
static RECORDED: AtomicU64 = AtomicU64::new(0);
const INTERVAL: u64 = MARKED_THREAD - 1;
const MARKED_THREAD: u64 = 1 << 44;
/// Whether frees of recorded allocations are followed.
static FOLLOW_FREES: AtomicBool = AtomicBool::new(false);
/// How live bytes are known behind the malloc family: a [`Live`]. (Behind Rust's door the layout tells.)
static LIVE: AtomicU8 = AtomicU8::new(Live::Unknown as u8);

const NUMBER: u32 = 60;

/// Records allocations from now on: one in `interval_bytes` bytes on average, 1 for every one, 0 for none. Not to be called by two threads at once.
pub fn set_interval(interval_bytes: u64) {
    let interval_bytes = interval_bytes.min(INTERVAL);
    let number = u64::from(Interval::number(interval_bytes).get());
    let _ = RECORDED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |recorded| {
        let marked = recorded & ((1 << NUMBER) - 1) & !INTERVAL;
        Some(number << NUMBER | marked | interval_bytes)
    });
    fast::rearrange();
}

pub(crate) fn add_marked_thread() {
    RECORDED.fetch_add(MARKED_THREAD, Ordering::Relaxed);
    fast::rearrange();
}

pub(crate) fn remove_marked_thread() {
    RECORDED.fetch_sub(MARKED_THREAD, Ordering::Relaxed);
    fast::rearrange();
}

/// Whether threads are marked.
pub(crate) fn any_marked() -> bool {
    RECORDED.load(Ordering::Relaxed) & ((1 << NUMBER) - 1) & !INTERVAL != 0
}

/// The interval in force.
pub fn interval() -> u64 {
    RECORDED.load(Ordering::Relaxed) & INTERVAL
}

/// Follows frees of allocations that are recorded from now on.
pub fn follow_frees(follow: bool) {
    FOLLOW_FREES.store(follow, Ordering::Relaxed);
    fast::rearrange();
}

/// Whether frees are followed.
pub fn follows_frees() -> bool {
    FOLLOW_FREES.load(Ordering::Relaxed)
}

/// Keeps account of live bytes behind the malloc family from now on: of those that were asked, which only followed frees can tell, or of what the blocks have.
pub fn account_live(kind: Live) {
    let kind = if kind == Live::Allocated && !next::sizes_can_be_asked() { Live::Unknown } else { kind };
    if kind == Live::Allocated {
        fast::set_libc(next::is_libc());
    }
    live_bytes::set_kind(kind);
    LIVE.store(kind as u8, Ordering::Relaxed);
    fast::rearrange();
}

/// In a child after fork: forgets the parent's live allocations.
pub fn reset_in_child() {
    live::clear();
    // No thread is marked here.
    RECORDED.fetch_and(INTERVAL | !((1 << NUMBER) - 1), Ordering::Relaxed);
    fast::rearrange();
}

#[inline(always)]
pub(crate) fn accounts(kind: Live) -> bool {
    LIVE.load(Ordering::Relaxed) == kind as u8
}

/// Bytes of a block of the malloc family, if they are to be accounted for.
#[inline(always)]
fn block_bytes(address: *mut u8) -> u64 {
    if !accounts(Live::Allocated) || address.is_null() {
        return 0;
    }
    if fast::has_chunks() {
        // SAFETY: the block is live: it was just made, or is about to be given back. So many before it were glibc's.
        return unsafe { fast::chunk_bytes(address) } as u64;
    }
    // SAFETY: as above.
    let usable = unsafe { next::malloc_usable_size(address) }.unwrap_or(0);
    fast::compare(address, usable);
    usable as u64
}

/// Records an allocation that was obtained.
#[inline(always)]
pub(crate) fn allocated(function: Function, address: *mut u8, size: usize, from: impl FnOnce() -> Caller) {
    match thread::current() {
        Current::Known(thread) => allocated_on(thread, function, address, size, from),
        Current::Ignored => {}
        // Preloaded, and nobody asked for anything.
        Current::Off if !function.is_rust() => {}
        Current::Off | Current::Unregistered => {
            if let Some(thread) = unregistered(function, address, size as u64) {
                allocated_on(thread, function, address, size, from);
            }
        }
    }
}

#[inline(always)]
fn allocated_on(
    thread: &'static ThreadState,
    function: Function,
    address: *mut u8,
    size: usize,
    from: impl FnOnce() -> Caller,
) {
    if is_own(thread, function) {
        return;
    }
    let Some(account) = thread.thread_record() else { return };
    thread::count(account, function, size as u64);
    if !function.is_rust() {
        let bytes = block_bytes(address);
        if bytes != 0 {
            live_bytes::grow(account, bytes);
        }
    } else if !address.is_null() {
        live_bytes::grow(account, size as u64);
    }
    if modules::is_refresh_requested() {
        refresh(thread);
    }
    let recorded = RECORDED.load(Ordering::Relaxed);
    if recorded != 0 && !address.is_null() {
        decide(thread, function, address as u64, size as u64, recorded, from());
    }
    arm(thread, function);
}

/// Whether the call is the recorder's own: what it allocates inside a hook, to build a table, comes back through the Rust door, where it has no heap of its own. (Behind the malloc
/// family it has one, and a call inside a hook is that of a signal handler of the host.) Whoever builds disarms the thread before.
#[inline(always)]
fn is_own(thread: &ThreadState, function: Function) -> bool {
    function.is_rust() && thread.is_inside() && !is_mended(thread, stack_pointer())
}

/// A tick came upon code that was loaded since: a hook may do what its handler may not.
#[cold]
#[inline(never)]
fn refresh(thread: &ThreadState) {
    if let Some(_inside) = enter(thread, &Mark::new()) {
        modules::refresh_on_request();
    }
}

/// A call by a thread that is not registered. The thread, if it is from now on: behind Rust's door counting begins with the first call of the process.
#[inline(always)]
fn unregistered(function: Function, address: *mut u8, bytes: u64) -> Option<&'static ThreadState> {
    // The function is known where this is inlined: the malloc family's code does not contain the beginning.
    if function.is_rust()
        && let Some(thread) = begun()
    {
        return Some(thread);
    }
    count_elsewhere(function, address, bytes);
    None
}

#[cold]
#[inline(never)]
fn begun() -> Option<&'static ThreadState> {
    if !counting::begin() {
        return None;
    }
    match thread::current() {
        Current::Known(thread) => Some(thread),
        _ => None,
    }
}

#[cold]
#[inline(never)]
fn count_elsewhere(function: Function, address: *mut u8, bytes: u64) {
    thread::count_unregistered(function, bytes);
    if function.is_rust() {
        live_bytes::change_unregistered(if function.releases() { -(bytes as i64) } else { bytes as i64 });
    } else if !function.releases() {
        live_bytes::change_unregistered(block_bytes(address) as i64);
    }
    if interval() != 0 && !function.releases() {
        region::lose(Lost::NoThread, 1, bytes);
    }
}

#[inline]
fn decide(
    thread: &'static ThreadState,
    function: Function,
    address: u64,
    size: u64,
    recorded: u64,
    Caller { pc, sp, fp }: Caller,
) {
    match sampling::decide(thread, size, recorded & INTERVAL) {
        Some(weight) => {
            // On a marked thread each stands for itself, whatever the interval.
            let number = if weight == Weight::of_one(size) { 0 } else { (recorded >> NUMBER) as u8 };
            record(thread, function, address, size, (weight.objects_q16, weight.bytes), number, pc, sp, fp);
        }
        // What was recorded last is no longer the last allocation.
        None => thread.last_address.store(1, Ordering::Relaxed),
    }
}

/// Whether every allocation is recorded.
#[inline(always)]
pub(crate) fn is_every() -> bool {
    interval() == 1
}

/// Records an allocation through Rust's door that is counted already, where all are recorded and no thread is marked.
#[inline]
pub(crate) fn record_every(function: Function, address: u64, size: u64, pc: u64, sp: u64, fp: u64) {
    if let Current::Known(thread) = thread::current() {
        record(thread, function, address, size, (1 << OBJECTS_FRACTION_BITS, size), 0, pc, sp, fp);
    }
}

/// The numbers one by one: what is handed over in memory would be written in words and read in pairs of words, which stalls the processor.
#[inline(never)]
#[allow(clippy::too_many_arguments, reason = "scalars travel in registers")]
fn record(
    thread: &'static ThreadState,
    function: Function,
    address: u64,
    size: u64,
    (objects_q16, bytes): (u64, u64),
    number: u8,
    pc: u64,
    sp: u64,
    fp: u64,
) {
    if region::is_stopped() {
        stop(thread);
        return;
    }
    let follows = FOLLOW_FREES.load(Ordering::Relaxed);
    if follows {
        live::announce(address);
    }
    let number = Interval::from_number(number);
    let lost = |reason| lose(reason, Allocation { address, size, values: RecordId::NONE, interval: number });
    let mark = Mark::new();
    let Some(mut inside) = enter_from(thread, &mark, sp) else {
        lost(Lost::Reentered);
        return;
    };
    let Some(values) = values_of(&mut inside, Call { function, pc, sp, fp }) else {
        thread.last_address.store(1, Ordering::Relaxed);
        lost(Lost::StoreFull);
        return;
    };
    let cells = cells(values);
    update(cells, || {
        region::add_own(&cells.objects_q16, objects_q16);
        region::add_own(&cells.bytes, bytes);
    });
    thread.last_address.store(address, Ordering::Relaxed);
    thread
        .last_calls
        .store(if number == Interval::EVERY { NONE_BETWEEN } else { thread.counted_allocations() }, Ordering::Relaxed);
    thread.last_values.store(values.0, Ordering::Relaxed);
    thread.last_objects_q16.store(objects_q16, Ordering::Relaxed);
    marks::note(thread, values, bytes);
    if follows {
        follow(Some(thread), Allocation { address, size, values, interval: number }, Wait::ForAWhile);
    }
}

/// Whoever reads the store wants no more: nobody comes here again.
#[cold]
#[inline(never)]
fn stop(thread: &ThreadState) {
    static STOPPED: AtomicBool = AtomicBool::new(false);
    thread.last_address.store(1, Ordering::Relaxed);
    if !STOPPED.swap(true, Ordering::Relaxed) {
        set_interval(0);
    }
}

/// Enters an allocation whose free shall be followed.
#[inline(always)]
fn follow(thread: Option<&ThreadState>, allocation: Allocation, wait: Wait) {
    if accounts(Live::Requested) {
        let bytes = allocation.weight().bytes;
        match thread.and_then(ThreadState::thread_record) {
            Some(account) => live_bytes::grow(account, bytes),
            None => live_bytes::change_unregistered(bytes as i64),
        }
    }
    match live::insert(allocation, wait) {
        Ok(None) => {}
        // Freed by a call that was not seen.
        Ok(Some(replaced)) => count_freed(thread, &replaced),
        // Its end will not be seen: it is not told as live.
        Err(live::Full) => count_freed(thread, &allocation),
    }
}

#[inline]
fn cells(values: RecordId) -> &'static AllocValues {
    // SAFETY: the id is that of allocation values, and the store stays mapped; a child after fork forgets all ids first.
    unsafe { region::record(values) }
}

/// The owner's way to write its values: a copy that is made meanwhile is made again. An update that a handler left by a jump is over with the next one.
#[inline(always)]
fn update(cells: &AllocValues, write: impl FnOnce()) {
    // Under the guard: no handler makes one in between.
    let odd = cells.sequence.load(Ordering::Relaxed) | 1;
    cells.sequence.store(odd, Ordering::Relaxed);
    fence(Ordering::Release);
    write();
    cells.sequence.store(odd.wrapping_add(1), Ordering::Release);
}

/// Records a free, before the memory is released. `size` is known behind Rust's door.
#[inline(always)]
pub(crate) fn freed(function: Function, address: *mut u8, size: usize) {
    match thread::current() {
        Current::Known(thread) => freed_on(thread, function, address, size),
        // Memory that the host allocated and a thread of the recorder frees is still the host's.
        Current::Ignored => release_elsewhere(function, address, size, true),
        Current::Off if !function.is_rust() => {}
        Current::Off | Current::Unregistered => match unregistered(function, address, size as u64) {
            Some(thread) => freed_on(thread, function, address, size),
            None => release_elsewhere(function, address, size, false),
        },
    }
}

#[inline(always)]
fn freed_on(thread: &'static ThreadState, function: Function, address: *mut u8, size: usize) {
    if is_own(thread, function) {
        return;
    }
    let Some(account) = thread.thread_record() else { return };
    thread::count(account, function, size as u64);
    if function.is_rust() {
        live_bytes::shrink(account, size as u64);
    } else {
        let bytes = block_bytes(address);
        if bytes != 0 {
            live_bytes::shrink(account, bytes);
        }
    }
    let address = address as u64;
    let last = thread.last_address.load(Ordering::Relaxed) == address;
    if FOLLOW_FREES.load(Ordering::Relaxed) {
        if live::may_contain(address) {
            release(thread, address);
        } else if last {
            thread.last_address.store(1, Ordering::Relaxed);
        }
    } else if last {
        freed_last(thread);
    }
    arm(thread, function);
}

/// The thread's next calls of this door need only be counted, if that can be arranged.
#[inline(always)]
fn arm(thread: &ThreadState, function: Function) {
    if function.is_rust() { fast::arm_behind_rust(thread) } else { fast::arm(thread) }
}

/// A free by a thread that has no record, `ignored` if it is the recorder's own.
#[cold]
#[inline(never)]
fn release_elsewhere(function: Function, address: *mut u8, size: usize, ignored: bool) {
    if function.is_rust() {
        // The recorder's threads allocate from the host's allocator there, and neither is accounted for.
        if ignored && !(FOLLOW_FREES.load(Ordering::Relaxed) && live::may_contain(address as u64)) {
            return;
        }
        if ignored {
            live_bytes::change_unregistered(-(size as i64));
        }
    } else {
        live_bytes::change_unregistered(-(block_bytes(address) as i64));
    }
    if FOLLOW_FREES.load(Ordering::Relaxed)
        && live::may_contain(address as u64)
        && let Some(allocation) = live::remove(address as u64, Wait::ForAWhile)
    {
        count_freed(None, &allocation);
    }
}

/// What a reallocation is about to give back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    address: u64,
    bytes: u64,
    taken: Option<Allocation>,
}

impl Freed {
    /// Nothing.
    pub(crate) const NOTHING: Self = Self { address: 0, bytes: 0, taken: None };

    /// A block of so many bytes whose end is not followed.
    pub(crate) fn unfollowed(address: *mut u8, bytes: usize) -> Self {
        Self { address: address as u64, bytes: bytes as u64, taken: None }
    }

    /// Whether an allocation was taken out of those that live.
    #[inline(always)]
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// For a call that also goes through another door: what the innermost one accounts for. The block's bytes, and all the rest.
    pub(crate) fn split(self) -> (Self, Self) {
        (Self { taken: None, ..self }, Self { bytes: 0, ..self })
    }
}

/// Counts a call that released memory whose allocation is forgotten already.
pub(crate) fn count_release(function: Function) {
    match thread::current() {
        Current::Known(thread) => {
            if let Some(account) = thread.thread_record() {
                thread::count(account, function, 0);
            }
        }
        Current::Ignored | Current::Off => {}
        Current::Unregistered => thread::count_unregistered(function, 0),
    }
}

/// Whether the block at `address` may be one whose end is followed.
#[inline(always)]
pub(crate) fn may_be_followed(address: *mut u8) -> bool {
    FOLLOW_FREES.load(Ordering::Relaxed) && live::is_beside_others(address as u64)
}

/// First half of a reallocation: the old memory may be released by the call that follows. `size` is known behind Rust's door.
#[inline(always)]
pub(crate) fn before_realloc(function: Function, address: *mut u8, size: usize) -> Freed {
    let bytes = if function.is_rust() { size } else { block_bytes(address) as usize };
    let at = address as u64;
    let mut freed = Freed::unfollowed(address, bytes);
    if at != 0 && FOLLOW_FREES.load(Ordering::Relaxed) && live::may_contain(at) {
        freed.taken = match thread::current() {
            Current::Known(thread) if is_own(thread, function) => None,
            Current::Known(thread) => take(thread, at),
            _ => live::remove(at, Wait::ForAWhile),
        };
    }
    freed
}

/// Second half: it succeeded, so the old allocation is gone; or it failed, and the old one is still there.
#[inline(always)]
pub(crate) fn after_realloc(function: Function, freed: &Freed, released: bool) {
    if freed.address == 0 {
        return;
    }
    if !released {
        if let Some(allocation) = freed.taken {
            put_back(allocation);
        }
        return;
    }
    match thread::current() {
        Current::Known(thread) if is_own(thread, function) => {}
        Current::Known(thread) => {
            if freed.bytes != 0
                && let Some(account) = thread.thread_record()
            {
                live_bytes::shrink(account, freed.bytes);
            }
            if freed.taken.is_some() || thread.last_address.load(Ordering::Relaxed) == freed.address {
                finish_free(thread, freed.address, freed.taken);
            }
        }
        Current::Ignored if function.is_rust() => {}
        _ => {
            live_bytes::change_unregistered(-(freed.bytes as i64));
            if let Some(allocation) = freed.taken {
                count_freed(None, &allocation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_that_was_left_by_a_jump_is_over_with_the_next_one() {
        // SAFETY: any bits are values.
        let cells: AllocValues = unsafe { core::mem::zeroed() };
        update(&cells, || assert_eq!(cells.sequence.load(Ordering::Relaxed), 1));
        assert_eq!(cells.sequence.load(Ordering::Relaxed), 2);
        cells.sequence.store(u32::MAX, Ordering::Relaxed);
        update(&cells, || assert_eq!(cells.sequence.load(Ordering::Relaxed), u32::MAX));
        update(&cells, || assert_eq!(cells.sequence.load(Ordering::Relaxed), 1));
        assert_eq!(cells.sequence.load(Ordering::Relaxed), 2);
    }
}
