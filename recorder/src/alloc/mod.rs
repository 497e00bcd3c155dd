//! What a piece of code allocates, exactly: for tests and for a look at one's own code.
//!
//! ```
//! # use profile_recorder::RecordingAllocator;
//! #[global_allocator]
//! static ALLOC: RecordingAllocator = RecordingAllocator::system();
//!
//! # fn main() {
//! let (words, stats) = profile_recorder::alloc::measure(|| "a b c".split(' ').map(str::to_owned).collect::<Vec<_>>());
//! assert_eq!((words.len(), stats.allocs()), (3, 4)); // three strings and the vector
//! # }
//! ```
//!
//! Only the calling thread counts, so tests may run in parallel. What is counted are calls of the global allocator: the same code can make fewer of them with
//! optimisation than without.

#[cfg(feature = "symbols")]
mod limit;
#[cfg(feature = "symbols")]
mod report;

#[cfg(feature = "symbols")]
pub use crate::__assert_max as assert_max;
#[cfg(feature = "symbols")]
#[doc(hidden)]
pub use limit::{Limit, assert_at_most};

use crate::start;
use capture::region;
use capture::thread::{self, Current, ThreadState};
use layout::{FUNCTIONS, Function};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the closure, and counts what the calling thread allocates meanwhile.
///
/// What other threads allocate does not count, even if the closure started them. Calls can be nested, and a panic of the closure passes through.
///
/// # Panics
/// If the program's `#[global_allocator]` is not a [`RecordingAllocator`](crate::RecordingAllocator), which is what counts, or if the kernel refuses the memory that it takes.
#[track_caller]
pub fn measure<R>(f: impl FnOnce() -> R) -> (R, AllocStats) {
    let before = Snapshot::take(counted_thread());
    let result = f();
    (result, before.since())
}

/// What a thread allocated. See [`measure`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocStats {
    calls: [u64; FUNCTIONS],
    bytes: [u64; FUNCTIONS],
}

/// Calls of one function of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionStats {
    /// The function of [`GlobalAlloc`](std::alloc::GlobalAlloc): `alloc`, `alloc_zeroed`, `realloc` or `dealloc`.
    pub name: &'static str,
    /// How often it was called.
    pub calls: u64,
    /// Bytes asked of it; of `dealloc`, bytes given back.
    pub bytes: u64,
}

/// The functions of the wrapper, by the names that a Rust program has for them.
const COUNTED: [(Function, &str); 4] = [
    (Function::RustAlloc, "alloc"),
    (Function::RustAllocZeroed, "alloc_zeroed"),
    (Function::RustRealloc, "realloc"),
    (Function::RustDealloc, "dealloc"),
];

impl AllocStats {
    /// Calls that asked for memory: of `alloc`, `alloc_zeroed` and `realloc`.
    pub fn allocs(&self) -> u64 {
        self.asking().map(|function| function.calls).sum()
    }

    /// Bytes asked in those calls; `realloc` asks for the whole new block.
    pub fn bytes(&self) -> u64 {
        self.asking().map(|function| function.bytes).sum()
    }

    /// Calls of `dealloc`.
    pub fn frees(&self) -> u64 {
        self.calls[Function::RustDealloc as usize]
    }

    /// Each function of the allocator, called or not.
    pub fn by_function(&self) -> impl Iterator<Item = FunctionStats> {
        let of = |(function, name): (Function, _)| FunctionStats {
            name,
            calls: self.calls[function as usize],
            bytes: self.bytes[function as usize],
        };
        COUNTED.map(of).into_iter()
    }

    fn asking(&self) -> impl Iterator<Item = FunctionStats> {
        self.by_function().filter(|function| function.name != "dealloc")
    }
}

impl fmt::Display for AllocStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} asked, {}",
            Plural(self.allocs(), "allocation"),
            Plural(self.bytes(), "byte"),
            Plural(self.frees(), "free")
        )?;
        let mut called = self.asking().filter(|function| function.calls != 0).peekable();
        if called.peek().is_some() {
            let called: Vec<String> = called.map(|function| format!("{} {}", function.name, function.calls)).collect();
            write!(f, " ({})", called.join(", "))?;
        }
        Ok(())
    }
}

/// A number and what is counted.
struct Plural(u64, &'static str);

impl fmt::Display for Plural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// The counters of a thread at a time.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    counts: AllocStats,
    epoch: u32,
}

impl Snapshot {
    fn take(thread: &ThreadState) -> Self {
        let mut counts = AllocStats::default();
        if let Some(record) = thread.thread_record() {
            counts.calls = record.functions.each_ref().map(|called| called.calls.load(Ordering::Relaxed));
            counts.bytes = record.functions.each_ref().map(|called| called.bytes.load(Ordering::Relaxed));
        }
        Self { counts, epoch: region::epoch() }
    }

    /// What the calling thread, whose snapshot this is, allocated since.
    fn since(&self) -> AllocStats {
        let Current::Known(thread) = thread::current() else { return AllocStats::default() };
        let after = Self::take(thread);
        if after.epoch != self.epoch {
            // A child after fork: its thread has counters of its own, which began there.
            return after.counts;
        }
        let difference = |after: [u64; FUNCTIONS], before: [u64; FUNCTIONS]| {
            std::array::from_fn(|i| after[i].wrapping_sub(before[i]))
        };
        AllocStats {
            calls: difference(after.counts.calls, self.counts.calls),
            bytes: difference(after.counts.bytes, self.counts.bytes),
        }
    }
}

/// The calling thread, whose allocations are counted from now on.
#[track_caller]
fn counted_thread() -> &'static ThreadState {
    assert!(start::in_library(0), "allocations cannot be counted: the kernel refuses memory for the counters");
    let Current::Known(thread) = thread::current() else {
        panic!(
            "allocations of this thread cannot be counted: there are too many threads, or it belongs to the recorder"
        )
    };
    static IS_COUNTED: AtomicBool = AtomicBool::new(false);
    if !IS_COUNTED.load(Ordering::Relaxed) {
        let before = Snapshot::take(thread);
        drop(std::hint::black_box(Box::new(0_u8)));
        assert!(
            before.since().allocs() != 0,
            "allocations are not counted: the program's #[global_allocator] is not a profile_recorder::RecordingAllocator"
        );
        IS_COUNTED.store(true, Ordering::Relaxed);
    }
    thread
}
