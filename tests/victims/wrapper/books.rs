//! A global allocator in front of the recorder's that counts the program's calls by itself.
//!
//! # Safety
//! Every call goes on to the recorder's allocator as it came.

use profile_recorder::RecordingAllocator;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

thread_local! {
    /// Inside a call: what comes now is the recorder's own.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Whether the thread is the program's, once that is known.
    static IS_OURS: Cell<Option<bool>> = const { Cell::new(None) };
}

/// From now on every thread that is no thread of the recorder yet is the program's.
static SETTLED: AtomicBool = AtomicBool::new(false);

/// Calls of one function, and the bytes they asked for.
struct Function {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Function {
    const fn new() -> Self {
        Self { calls: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    fn count(&self, bytes: usize) {
        if !INSIDE.get() && is_ours() {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

fn is_ours() -> bool {
    if let Some(known) = IS_OURS.get() {
        return known;
    }
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most sixteen bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let ours = !name.starts_with(b"profrec-");
    if SETTLED.load(Ordering::Relaxed) {
        IS_OURS.set(Some(ours));
    }
    ours
}

/// Passes everything on, and counts what the program asked for.
pub(crate) struct Books<A> {
    recording: RecordingAllocator<A>,
    alloc: Function,
    alloc_zeroed: Function,
    realloc: Function,
    dealloc: Function,
}

impl<A> Books<A> {
    pub(crate) const fn new(recording: RecordingAllocator<A>) -> Self {
        let [alloc, alloc_zeroed, realloc, dealloc] = [const { Function::new() }; 4];
        Self { recording, alloc, alloc_zeroed, realloc, dealloc }
    }
}

fn inside<T>(call: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(true);
    let result = call();
    INSIDE.set(before);
    result
}

// SAFETY: the recorder's allocator gets every call as it came.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Books<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.alloc.count(layout.size());
        // SAFETY: as it came.
        inside(|| unsafe { self.recording.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.alloc_zeroed.count(layout.size());
        // SAFETY: as it came.
        inside(|| unsafe { self.recording.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.realloc.count(size);
        // SAFETY: as it came.
        inside(|| unsafe { self.recording.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.dealloc.count(0);
        // SAFETY: as it came.
        inside(|| unsafe { self.recording.dealloc(block, layout) });
    }
}

/// What a program with such books can do.
pub(crate) trait Reports: Sync {
    /// Calls that have returned or will return a block, or null.
    fn allocations(&self) -> u64;
    /// Prints the books under the name of what was just done, and waits until they were read. Allocates nothing.
    fn report(&self, name: &str);
}

impl<A: Sync> Reports for Books<A> {
    fn allocations(&self) -> u64 {
        [&self.alloc, &self.alloc_zeroed, &self.realloc].iter().map(|f| f.calls.load(Ordering::Relaxed)).sum()
    }

    fn report(&self, name: &str) {
        SETTLED.store(true, Ordering::Relaxed);
        let mut line = [0_u8; 512];
        let mut rest = &mut line[..];
        let _ = write!(rest, "{name}");
        for function in [&self.alloc, &self.alloc_zeroed, &self.realloc, &self.dealloc] {
            let (calls, bytes) = (function.calls.load(Ordering::Relaxed), function.bytes.load(Ordering::Relaxed));
            let _ = write!(rest, "\t{calls}\t{bytes}");
        }
        let _ = writeln!(rest);
        let length = 512 - rest.len();
        let mut pipe = std::mem::ManuallyDrop::new(unbuffered(1));
        pipe.write_all(&line[..length]).expect("the test reads");
        let mut pipe = std::mem::ManuallyDrop::new(unbuffered(0));
        pipe.read_exact(&mut [0]).expect("the test answers");
    }
}

/// A standard stream without the buffers that std puts in front.
fn unbuffered(descriptor: i32) -> std::fs::File {
    // SAFETY: standard streams stay open, and the caller never closes this.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(descriptor) }
}
