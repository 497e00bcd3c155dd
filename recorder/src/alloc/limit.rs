//! A limit on what a block allocates, with the stacks of whoever passes it.

use super::{AllocStats, Snapshot, counted_thread, report};
use alloc_hook::marks::{self, Marked, Marks};

/// Runs a block, and panics if the calling thread made more allocations in it than allowed. The value is the block's.
///
/// The message lists the stacks that allocated, those that allocated most first, with file and line where the program has debug information.
///
/// ```
/// # use profile_recorder::RecordingAllocator;
/// # #[global_allocator]
/// # static ALLOC: RecordingAllocator = RecordingAllocator::system();
/// use profile_recorder::alloc::assert_max;
///
/// # fn main() {
/// let mut numbers = assert_max!(1, { Vec::with_capacity(100) });
/// assert_max!(0, { numbers.extend(0..100) });
/// assert_max!(bytes = 4096, { numbers.clone() });
/// assert_max!(1, bytes = 400, { numbers.clone() });
/// # }
/// ```
///
/// ```should_panic
/// # use profile_recorder::RecordingAllocator;
/// # #[global_allocator]
/// # static ALLOC: RecordingAllocator = RecordingAllocator::system();
/// # use profile_recorder::alloc::assert_max;
/// # fn main() {
/// assert_max!(0, { format!("{}", 42) });
/// # }
/// ```
///
/// The block is a closure: `return` and `?` leave it and not the function around it. As in [`measure`](crate::alloc::measure), other threads do not count, tests may run in
/// parallel, and the program's `#[global_allocator]` has to be a [`RecordingAllocator`](crate::RecordingAllocator).
#[macro_export]
#[doc(hidden)]
macro_rules! __assert_max {
    (bytes = $bytes:expr, $block:block) => {
        $crate::alloc::assert_at_most($crate::alloc::Limit { allocs: None, bytes: Some($bytes) }, || $block)
    };
    ($allocs:expr, bytes = $bytes:expr, $block:block) => {
        $crate::alloc::assert_at_most($crate::alloc::Limit { allocs: Some($allocs), bytes: Some($bytes) }, || $block)
    };
    ($allocs:expr, $block:block) => {
        $crate::alloc::assert_at_most($crate::alloc::Limit { allocs: Some($allocs), bytes: None }, || $block)
    };
}

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Most allocations; `None`: any number.
    pub allocs: Option<u64>,
    /// Most bytes asked; `None`: any number.
    pub bytes: Option<u64>,
}

impl Limit {
    fn allows(self, stats: &AllocStats) -> bool {
        self.allocs.is_none_or(|most| stats.allocs() <= most) && self.bytes.is_none_or(|most| stats.bytes() <= most)
    }
}

/// What [`assert_max`](crate::alloc::assert_max) expands to.
///
/// # Panics
/// If the limit is passed, or nothing can be counted.
#[track_caller]
pub fn assert_at_most<R>(limit: Limit, block: impl FnOnce() -> R) -> R {
    let before = Snapshot::take(counted_thread());
    // Without memory for the marks the stacks are missing in the message; the counts are exact all the same.
    let (result, marks) = marks::during(block);
    let stats = before.since();
    if !limit.allows(&stats) {
        let marked: Vec<Marked> = marks.iter().flat_map(Marks::stacks).copied().collect();
        panic!("{}", report::of(limit, &stats, &marked));
    }
    result
}
