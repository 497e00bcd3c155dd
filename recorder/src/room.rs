//! Whether memory is left for what the recorder is about to do.
//!
//! Rust's allocator ends the process where memory is refused, and a recorder may not be the reason for that: under a limit (`RLIMIT_AS`, `RLIMIT_DATA`, strict overcommit) a recording is refused, or told with
//! fewer details, before it begins. Nothing is mapped to find out: for that moment the application might be refused what it asks for. Under the limit of a control group, a container's, the kernel refuses nothing
//! and ends a process when memory is touched: a recording keeps below that limit as well. (Threads touch little of what they map.)

mod group;

use capture::{region, syscall};
use std::fs::read_to_string;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a snapshot, its profile and a written format take, for each byte of the store and altogether: measured at four to eight times the store.
const FOR_EACH_BYTE: usize = 12;
const AT_LEAST: usize = 8 << 20;
/// What a thread takes at its start: its stack, the one for its signals, what it allocates.
const FOR_A_THREAD: usize = 8 << 20;
/// What glibc maps for the first allocation of a thread, where so much is left (`HEAP_MAX_SIZE`); else the thread shares the memory of others.
const FOR_AN_ARENA: usize = 64 << 20;

/// Whether a recording can be copied, decoded and written now.
pub(crate) fn for_a_recording() -> bool {
    left().min(left_to_use()) >= AT_LEAST.saturating_add(region::used_bytes().saturating_mul(FOR_EACH_BYTE))
}

/// What names may take while they are looked up: bytes that are used, and bytes that are mapped.
pub(crate) fn for_names() -> (usize, usize) {
    (left_to_use().saturating_sub(AT_LEAST), left().saturating_sub(AT_LEAST))
}

/// Bytes of memory that this process can use before it is ended.
fn left_to_use() -> usize {
    group::left().map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Threads that have been promised their memory and may not have taken it yet.
static STARTING: AtomicUsize = AtomicUsize::new(0);

/// The memory of a thread that starts; dropped when the thread has what it takes.
pub(crate) struct Start(());

impl Start {
    /// Of a thread that can be started now.
    pub(crate) fn of_a_thread() -> Option<Self> {
        let starting = STARTING.fetch_add(1, Ordering::Relaxed) + 1;
        let start = Self(());
        are_for_threads(left(), starting).then_some(start)
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        STARTING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Forgets the threads that the parent was starting, in a child after fork.
pub(crate) fn reset_in_child() {
    STARTING.store(0, Ordering::Relaxed);
}

/// Whether so many bytes do for so many threads, whichever of them takes an arena first: it may not take what the others begin with.
fn are_for_threads(left: usize, threads: usize) -> bool {
    let (begin, arenas) = (threads.saturating_mul(FOR_A_THREAD), threads.saturating_mul(FOR_AN_ARENA));
    left >= begin && (left < FOR_AN_ARENA || left >= begin.saturating_add(arenas))
}

/// Bytes of memory that the kernel would still map for this process; the largest number if there is no limit.
fn left() -> usize {
    let limits = [syscall::address_space_left(), syscall::data_left()].into_iter();
    let least = limits.chain(left_to_commit()).min();
    least.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// What the whole machine may still be promised, where the kernel promises no more than there is (`proc_sys_vm(5)`, `overcommit_memory` 2).
fn left_to_commit() -> Option<u64> {
    if read_to_string("/proc/sys/vm/overcommit_memory").ok()?.trim() != "2" {
        return None;
    }
    let meminfo = read_to_string("/proc/meminfo").ok()?;
    let kilobytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().split(' ').next()?.parse::<u64>().ok()
    };
    Some(kilobytes("CommitLimit")?.saturating_sub(kilobytes("Committed_AS")?) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_starts_with_its_arena_or_without_one() {
        const MIB: usize = 1 << 20;
        for (left, threads, do_they) in [
            (usize::MAX, 1000, true),
            (7 * MIB, 1, false),
            (8 * MIB, 1, true),
            (8 * MIB, 2, false),
            (63 * MIB, 2, true),
            (65 * MIB, 1, false), // the arena would be all there is
            (72 * MIB, 1, true),
            (72 * MIB, 2, false),
            (144 * MIB, 2, true),
        ] {
            assert_eq!(are_for_threads(left, threads), do_they, "{left} bytes, {threads} threads");
        }
    }
}
