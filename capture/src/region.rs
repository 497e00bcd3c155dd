//! The store's region: one contiguous mapping, handed out in chunks, private or in a file that outlives the process.
//!
//! Called from: anywhere, handlers included. May: make system calls when a file needs more blocks. When full: returns `None`, and the caller
//! counts what it loses.
//!
//! # Orderings
//! Publish the region: `BASE.store(Release)` in `open` -> `BASE.load(Acquire)` in `base`.
//! Publish a record: its *last* field by a Release store of whoever made it -> readers of the file, or Acquire loads.
#![allow(unsafe_code)]

use crate::mapping::{Mapping, fetch_line};
use crate::syscall::{Errno, File, map, mm, unmap};
use crate::{clock, syscall};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};
use layout::{CHUNK, Chunk, ChunkKind, DIRECTORY_OFFSET, Header, Lost, MAGIC, RecordId, Thread, VERSION};

static BASE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// How many regions this process's memory has seen: one more in each child after fork.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// Path of the file, for allocating more blocks; zero-terminated, empty if the region is private.
static PATH: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Blocks of a file are allocated this many chunks at a time.
const COMMIT_CHUNKS: u32 = 64;

/// Longest path of a store's file, its terminating zero included.
pub const PATH_BYTES: usize = 512;

/// What a new store is for.
#[derive(Clone, Copy, Debug)]
pub struct Purpose {
    /// Bits of [`layout::modes`].
    pub modes: u32,
    /// Most bytes that the store may take.
    pub budget_bytes: usize,
    /// Mean bytes between sampled allocations; 1: every allocation.
    pub alloc_interval_bytes: u64,
    /// Nanoseconds between ticks.
    pub period_ns: u64,
}

/// Sets the region up, once in a process (and again in its children). `path` (zero-terminated) names the file to make; without it the memory is private.
///
/// A region that is there already, because somebody counted before anything was to be recorded, is what `purpose` says from now on; its budget stays, and its counts, a forked child's too.
pub fn open(purpose: &Purpose, path: Option<&[u8]>) -> Result<(), Errno> {
    if let Some(header) = header() {
        note_process(header);
        header.modes.store(purpose.modes, Ordering::Relaxed);
        header.alloc_interval_bytes.store(purpose.alloc_interval_bytes, Ordering::Relaxed);
        header.period_ns.store(purpose.period_ns, Ordering::Relaxed);
        return Ok(());
    }
    // What the program may map is for the program: where that is limited, the store takes a quarter of what is left.
    let most = path.map_or_else(|| syscall::data_left() / 4, |_| syscall::file_size_limit());
    let most = most.min(syscall::address_space_left() / 4);
    let budget_bytes = purpose.budget_bytes.min(usize::try_from(most).unwrap_or(usize::MAX));
    let capacity = (budget_bytes / CHUNK).clamp(64, u32::MAX as usize / (CHUNK / 16)) as u32;
    let directory_end = DIRECTORY_OFFSET + capacity as usize * 8;
    let data_offset = directory_end.next_multiple_of(CHUNK);
    let first = (data_offset / CHUNK) as u32;
    let length = capacity as usize * CHUNK;
    let base = match path {
        None => map(length, mm::READ_WRITE, mm::ANONYMOUS, None)?,
        Some(path) => {
            if path.len() > PATH_BYTES {
                return Err(Errno::INVAL);
            }
            let file = File::open(path, File::CREATE_NEW)?;
            allocate_blocks(&file, 0, u64::from(first) * CHUNK as u64)?;
            // Where that is not allowed, the file grows as its blocks are allocated.
            let _ = file.grow(length as u64);
            map(length, mm::READ_WRITE, mm::SHARED, Some(&file))?
        }
    };
    for (i, word) in PATH.iter().enumerate() {
        let mut bytes = [0; 8];
        for (k, byte) in bytes.iter_mut().enumerate() {
            *byte = path.and_then(|p| p.get(i * 8 + k)).copied().unwrap_or(0);
        }
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
    // SAFETY: the mapping is zeroed, page-aligned, larger than a header, and lives until the process ends.
    let header = unsafe { &*base.cast::<Header>() };
    header.version.store(VERSION, Ordering::Relaxed);
    note_process(header);
    header.pid_namespace.store(path.and_then(|_| syscall::pid_namespace()).unwrap_or(0), Ordering::Relaxed);
    header.modes.store(purpose.modes, Ordering::Relaxed);
    header.data_offset.store(data_offset as u32, Ordering::Relaxed);
    header.capacity_chunks.store(capacity, Ordering::Relaxed);
    header.used_chunks.store(first, Ordering::Relaxed);
    header.committed_chunks.store(if path.is_some() { first } else { capacity }, Ordering::Relaxed);
    header.alloc_interval_bytes.store(purpose.alloc_interval_bytes, Ordering::Relaxed);
    header.period_ns.store(purpose.period_ns, Ordering::Relaxed);
    header.start_realtime_ns.store(clock::realtime_ns(), Ordering::Relaxed);
    header.start_monotonic_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
    // Not on the stack: a child that nobody announced comes here from wherever it allocates.
    let mut exe = Mapping::new(4096);
    let exe = exe.as_mut().map_or(&mut [][..], Mapping::bytes_mut);
    let length = syscall::read_link(b"/proc/self/exe\0", exe).map_or(0, <[u8]>::len);
    store_bytes(&header.exe, exe);
    header.exe_length.store(length as u64, Ordering::Relaxed);
    header.magic.store(MAGIC, Ordering::Release);
    BASE.store(base, Ordering::Release);
    Ok(())
}

/// Writes whose the region is, and where that process's clocks stand, if that is not written.
fn note_process(header: &Header) {
    if header.pid.swap(syscall::getpid(), Ordering::Relaxed) == syscall::getpid() {
        return;
    }
    header.parent_pid.store(syscall::getppid(), Ordering::Relaxed);
    header.start_cpu_ns.store(clock::process_cpu_ns(), Ordering::Relaxed);
    header.start_thread_cpu_ns.store(clock::thread_cpu_ns(), Ordering::Relaxed);
}

/// Forgets the region, in a child after fork: it belongs to the parent, who may share it with a reader.
pub fn abandon() {
    let base = BASE.swap(core::ptr::null_mut(), Ordering::AcqRel);
    EPOCH.fetch_add(1, Ordering::AcqRel);
    RECYCLED.store(0, Ordering::Relaxed);
    if !base.is_null() {
        // SAFETY: the only thread of the child is here, and its records were forgotten before.
        unsafe { unmap(base, header_at(base).capacity_chunks.load(Ordering::Relaxed) as usize * CHUNK) };
    }
}

/// Whether nothing more shall be recorded: whoever reads the store has what is wanted.
#[inline]
pub fn is_stopped() -> bool {
    header().is_some_and(|header| header.stopped.load(Ordering::Relaxed) != 0)
}

/// Notes a sign of the process, if the store is its own and not its parent's (after vfork). Anywhere.
pub fn note_sign() {
    if let Some(header) = header().filter(|header| header.pid.load(Ordering::Relaxed) == syscall::getpid()) {
        header.last_monotonic_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
    }
}

/// Number of the region: what was noted of another one means nothing in this one.
#[inline]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

/// Path of the store's file with its terminating zero; empty if the region is private.
pub fn path() -> [u8; PATH_BYTES] {
    let mut path = [0; PATH_BYTES];
    for (to, word) in path.chunks_exact_mut(8).zip(&PATH) {
        to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    path
}

/// The store's header, once there is a store.
#[inline]
pub fn header() -> Option<&'static Header> {
    let base = BASE.load(Ordering::Acquire);
    if base.is_null() { None } else { Some(header_at(base)) }
}

fn header_at(base: *mut u8) -> &'static Header {
    // SAFETY: a published base begins with a header and stays mapped until the process ends or forks.
    unsafe { &*base.cast::<Header>() }
}

/// The record with this id.
///
/// # Safety
/// The id was allocated in this region for a `T` of the layout, whose fields are all atomic.
#[inline]
pub unsafe fn record<T>(id: RecordId) -> &'static T {
    // SAFETY: the caller's promise; chunks are never taken back.
    unsafe { &*BASE.load(Ordering::Relaxed).add(id.offset()).cast::<T>() }
}

/// Lets the processor fetch a record from memory.
#[inline(always)]
pub fn fetch(id: RecordId) {
    fetch_line(BASE.load(Ordering::Relaxed).wrapping_add(id.offset()));
}

/// The bytes of a text.
///
/// # Safety
/// The id came from [`allocate_text`] of this region with at least so many bytes, and nobody writes them again.
pub unsafe fn text(id: RecordId, length: usize) -> &'static [u8] {
    // SAFETY: the caller's promise; chunks are never taken back.
    unsafe { core::slice::from_raw_parts(BASE.load(Ordering::Relaxed).add(id.offset()), length) }
}

/// A new chunk, or `count` adjacent ones, zeroed.
#[inline(never)]
pub fn allocate_chunks(kind: ChunkKind, owner: RecordId, count: u32) -> Option<RecordId> {
    let base = BASE.load(Ordering::Acquire);
    if base.is_null() {
        return None;
    }
    let header = header_at(base);
    let capacity = header.capacity_chunks.load(Ordering::Relaxed);
    if header.used_chunks.load(Ordering::Relaxed) >= capacity {
        return None;
    }
    let first = header.used_chunks.fetch_add(count, Ordering::Relaxed);
    let end = first.checked_add(count).filter(|end| *end <= capacity)?;
    if !commit(base, header, end) {
        return None;
    }
    for index in first..end {
        // SAFETY: the directory has an entry for each chunk below the capacity.
        let entry = unsafe { &*base.add(DIRECTORY_OFFSET + index as usize * 8).cast::<AtomicU64>() };
        entry.store(Chunk { kind, owner }.to_bits(), Ordering::Release);
    }
    Some(RecordId::at_offset(first as usize * CHUNK))
}

/// Makes sure that the file has blocks up to chunk `end`: a write to a hole on a full file system would be a SIGBUS in the host.
fn commit(base: *mut u8, header: &Header, end: u32) -> bool {
    let committed = header.committed_chunks.load(Ordering::Acquire);
    if end <= committed {
        return true;
    }
    let to = end.next_multiple_of(COMMIT_CHUNKS).min(header.capacity_chunks.load(Ordering::Relaxed));
    let (offset, length) = (committed as usize * CHUNK, (to - committed) as usize * CHUNK);
    // Through the mapping first: that needs no file, which a host that changed its user or root directory, used up its descriptors or filters its system calls
    // could not open.
    // SAFETY: both ends are within the capacity, hence within the mapping; nobody uses this range yet.
    let populated = unsafe { syscall::populate(base.add(offset), length) };
    if populated.is_err() && !allocate_by_path(offset as u64, length as u64) {
        return false;
    }
    header.committed_chunks.fetch_max(to, Ordering::AcqRel);
    true
}

/// Makes sure that so many more chunks can be used without a system call, if there is room.
pub fn commit_ahead(chunks: u32) {
    let base = BASE.load(Ordering::Acquire);
    if !base.is_null() {
        let header = header_at(base);
        let end = header.used_chunks.load(Ordering::Relaxed).saturating_add(chunks);
        commit(base, header, end.min(header.capacity_chunks.load(Ordering::Relaxed)));
    }
}

/// The same for a kernel before 5.14, or a file that could not be grown in advance.
fn allocate_by_path(offset: u64, length: u64) -> bool {
    let path = path();
    let end = path.iter().position(|b| *b == 0).unwrap_or(0);
    let Some(path) = path.get(..=end) else { return false };
    // The descriptor is not kept: the host may close it, and reuse its number for a file of its own.
    File::open(path, File::READ_WRITE).is_ok_and(|file| allocate_blocks(&file, offset, length).is_ok())
}

fn allocate_blocks(file: &File, offset: u64, length: u64) -> Result<(), Errno> {
    match file.allocate(offset, length) {
        Err(Errno::OPNOTSUPP) => {
            // A file system without fallocate: written zeros have blocks too. Nobody uses this range yet.
            // Not on the stack: a handler's is small.
            static ZEROS: [u8; CHUNK] = [0; CHUNK];
            let mut at = offset;
            while at < offset + length {
                at += file.write_at(&ZEROS, at)? as u64;
            }
            Ok(())
        }
        result => result,
    }
}

/// Records of one kind, one after the other, for one owner.
#[derive(Debug, Default)]
pub struct Cursor {
    next: u32,
    end: u32,
}

impl Cursor {
    /// A cursor that has no chunk yet.
    pub const fn new() -> Self {
        Self { next: 0, end: 0 }
    }

    /// A new zeroed record of `bytes` (a multiple of 16) in a chunk of `kind`.
    #[inline]
    pub fn allocate(&mut self, kind: ChunkKind, owner: RecordId, bytes: usize) -> Option<RecordId> {
        let units = (bytes / 16) as u32;
        // A jump out of a handler may leave it anywhere: later chunks lie behind earlier ones, so that the new one's beginning with the old one's end is no room.
        if self.end.saturating_sub(self.next) < units {
            let chunk = allocate_chunks(kind, owner, 1)?;
            self.next = chunk.0;
            compiler_fence(Ordering::SeqCst);
            // The tail that no record fits in is left out, so that records never lie across chunks.
            self.end = chunk.0 + (CHUNK / 16) as u32;
        }
        let id = RecordId(self.next);
        self.next += units;
        // Nobody gets it a second time.
        compiler_fence(Ordering::SeqCst);
        Some(id)
    }
}

/// A [`Cursor`] that several threads share.
#[derive(Debug, Default)]
pub struct SharedCursor(AtomicU64);

impl SharedCursor {
    /// A cursor that has no chunk yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A new zeroed record of `bytes` (a multiple of 16) in a chunk of `kind`.
    pub fn allocate(&self, kind: ChunkKind, bytes: usize) -> Option<RecordId> {
        let units = (bytes / 16) as u64;
        // Bounded: each round that fails means that another thread got a record.
        for _ in 0..1_000 {
            let state = self.0.load(Ordering::Relaxed);
            let (next, end) = (state & 0xffff_ffff, state >> 32);
            if end - next >= units {
                let new = (next + units) | (end << 32);
                if self.0.compare_exchange_weak(state, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    return Some(RecordId(next as u32));
                }
            } else {
                let chunk = u64::from(allocate_chunks(kind, RecordId::NONE, 1)?.0);
                let new = (chunk + units) | ((chunk + (CHUNK / 16) as u64) << 32);
                if self.0.compare_exchange(state, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    return Some(RecordId(chunk as u32));
                }
            }
        }
        None
    }

    /// Forgets its chunk, in a child after fork.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Bytes of text, which may be longer than a chunk.
pub fn allocate_text(bytes: &[u8]) -> Option<RecordId> {
    static TEXT: SharedText = SharedText(AtomicU64::new(0));
    TEXT.allocate(bytes)
}

struct SharedText(AtomicU64);

impl SharedText {
    fn allocate(&self, bytes: &[u8]) -> Option<RecordId> {
        let length = bytes.len().next_multiple_of(16).max(16);
        let id = allocate_chunks_for_text(&self.0, length)?;
        // SAFETY: the range was just allocated, is zeroed, and nobody else knows of it.
        unsafe {
            let to = BASE.load(Ordering::Relaxed).add(id.offset());
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Some(id)
    }
}

fn allocate_chunks_for_text(state: &AtomicU64, length: usize) -> Option<RecordId> {
    let epoch = u64::from(epoch() & 0xffff);
    let units = (length / 16) as u64;
    let per_chunk = (CHUNK / 16) as u64;
    // A child after fork, whose epoch is another, must not write where its parent does.
    let now = state.load(Ordering::Relaxed);
    let (owner, next) = (now >> 48, now & 0xffff_ffff);
    let room = per_chunk - next % per_chunk;
    if owner == epoch && !next.is_multiple_of(per_chunk) && room >= units {
        let new = (epoch << 48) | (next + units);
        if state.compare_exchange(now, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return Some(RecordId(next as u32));
        }
    }
    let id = allocate_chunks(ChunkKind::Text, RecordId::NONE, length.div_ceil(CHUNK) as u32)?;
    state.store((epoch << 48) | (u64::from(id.0) + units), Ordering::Relaxed);
    Some(id)
}

/// Records of the log of single samples: what is welcome but not needed. Its chunks come from the first half of the budget, and are used again.
#[derive(Debug, Default)]
pub struct LogCursor {
    records: Cursor,
    generation: u32,
}

/// Chunks of the log that may be used again: the first of a list, whose links lie in the chunks themselves.
static RECYCLED: AtomicU64 = AtomicU64::new(0);
static LOG_GENERATION: AtomicU32 = AtomicU32::new(0);

impl LogCursor {
    /// A cursor that has no chunk yet.
    pub const fn new() -> Self {
        Self { records: Cursor::new(), generation: 0 }
    }

    /// A zeroed record for a sample; `None` if the log is full.
    pub fn allocate(&mut self, owner: RecordId) -> Option<&'static layout::TimeSample> {
        let generation = LOG_GENERATION.load(Ordering::Acquire);
        if self.generation != generation {
            *self = Self { records: Cursor::new(), generation };
        }
        if self.records.end == self.records.next {
            let chunk = recycled_chunk().or_else(|| {
                let header = header()?;
                let half = header.capacity_chunks.load(Ordering::Relaxed) / 2;
                let full = header.used_chunks.load(Ordering::Relaxed) >= half;
                if full { None } else { allocate_chunks(ChunkKind::TimeSamples, owner, 1) }
            })?;
            self.records = Cursor { next: chunk.0, end: chunk.0 + (CHUNK / 16) as u32 };
        }
        let id = self.records.allocate(ChunkKind::TimeSamples, owner, size_of::<layout::TimeSample>())?;
        // SAFETY: in a chunk of time samples.
        Some(unsafe { record(id) })
    }
}

/// Empties the log. A handler that still runs may write into a chunk that another then gets: one sample is not what it was.
pub fn recycle_log() {
    let Some(header) = header() else { return };
    let base = BASE.load(Ordering::Acquire);
    LOG_GENERATION.fetch_add(1, Ordering::AcqRel);
    RECYCLED.store(0, Ordering::Relaxed);
    let first = header.data_offset.load(Ordering::Relaxed) / CHUNK as u32;
    for index in first..(used_bytes() / CHUNK) as u32 {
        // SAFETY: the directory has an entry for each chunk below the capacity.
        let entry = unsafe { &*base.add(DIRECTORY_OFFSET + index as usize * 8).cast::<AtomicU64>() };
        if Chunk::from_bits(entry.load(Ordering::Relaxed)).is_some_and(|c| c.kind == ChunkKind::TimeSamples) {
            let chunk = RecordId::at_offset(index as usize * CHUNK);
            for word in 0..CHUNK / 8 {
                // SAFETY: within the chunk; every word of it may be written as an atomic word.
                unsafe { &*base.add(chunk.offset() + word * 8).cast::<AtomicU64>() }.store(0, Ordering::Relaxed);
            }
            let before = RECYCLED.load(Ordering::Relaxed);
            link(chunk).store(before & 0xffff_ffff, Ordering::Relaxed);
            RECYCLED.store((before >> 32).wrapping_add(1) << 32 | u64::from(chunk.0), Ordering::Release);
        }
    }
}

/// Where a recycled chunk keeps the next one: in a field of a sample that readers skip, since its `node` is zero.
fn link(chunk: RecordId) -> &'static AtomicU64 {
    // SAFETY: a chunk of the log holds time samples.
    &unsafe { record::<layout::TimeSample>(chunk) }.weight_ns
}

fn is_of_log(chunk: RecordId) -> bool {
    chunk.offset().is_multiple_of(CHUNK) && kind_of(chunk.offset() / CHUNK) == Some(ChunkKind::TimeSamples)
}

fn recycled_chunk() -> Option<RecordId> {
    for _ in 0..1_000 {
        let head = RECYCLED.load(Ordering::Acquire);
        let chunk = RecordId(head as u32);
        if chunk.is_none() {
            return None;
        }
        let next = link(chunk).load(Ordering::Relaxed) & 0xffff_ffff;
        // A handler that was at it when the log was emptied may have written what it waited for there.
        let next = if is_of_log(RecordId(next as u32)) { next } else { 0 };
        // The upper half counts, so that a chunk that came and went is not mistaken for the same list.
        let new = (head >> 32).wrapping_add(1) << 32 | next;
        if RECYCLED.compare_exchange(head, new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            link(chunk).store(0, Ordering::Relaxed);
            return Some(chunk);
        }
    }
    None
}

/// Counts something that was not recorded where it belongs.
pub fn lose(reason: Lost, events: u64, weight: u64) {
    let Some(header) = header() else { return };
    if let Some(cell) = header.lost.get(reason as usize) {
        cell.fetch_add(events, Ordering::Relaxed);
    }
    if let Some(cell) = header.lost_weight.get(reason as usize) {
        cell.fetch_add(weight, Ordering::Relaxed);
    }
}

/// Stores bytes into words, zero-padded.
pub fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    for (i, word) in words.iter().enumerate() {
        let mut eight = [0; 8];
        for (k, byte) in eight.iter_mut().enumerate() {
            *byte = bytes.get(i * 8 + k).copied().unwrap_or(0);
        }
        word.store(u64::from_ne_bytes(eight), Ordering::Relaxed);
    }
}

/// Bytes of the region in use so far, for a copy of it.
pub fn used_bytes() -> usize {
    header().map_or(0, |h| {
        h.used_chunks.load(Ordering::Acquire).min(h.capacity_chunks.load(Ordering::Relaxed)) as usize * CHUNK
    })
}

/// Kind of a chunk of the region; `None` if it is not in use.
pub(crate) fn kind_of(chunk: usize) -> Option<ChunkKind> {
    let header = header()?;
    let capacity = header.capacity_chunks.load(Ordering::Relaxed) as usize;
    if chunk >= capacity {
        return None;
    }
    // SAFETY: the directory has an entry for each chunk below the capacity.
    let entry = unsafe { &*BASE.load(Ordering::Relaxed).add(DIRECTORY_OFFSET + chunk * 8).cast::<AtomicU64>() };
    Chunk::from_bits(entry.load(Ordering::Acquire)).map(|chunk| chunk.kind)
}

/// The words of a chunk. `None` past what is in use.
pub(crate) fn words(chunk: usize) -> Option<&'static [AtomicU64; CHUNK / 8]> {
    let base = BASE.load(Ordering::Acquire);
    if base.is_null() || chunk >= used_bytes() / CHUNK {
        return None;
    }
    // SAFETY: below `used_bytes`, aligned, and every cell of the layout may be read as an atomic word.
    Some(unsafe { &*base.add(chunk * CHUNK).cast() })
}

/// Calls `visit` for every record of a thread.
pub fn each_thread_record(mut visit: impl FnMut(&'static Thread)) {
    for chunk in 0..used_bytes() / CHUNK {
        if kind_of(chunk) != Some(ChunkKind::Threads) {
            continue;
        }
        for place in 0..CHUNK / size_of::<Thread>() {
            // SAFETY: a chunk of threads holds their records, used or zero.
            visit(unsafe { record(RecordId::at_offset(chunk * CHUNK + place * size_of::<Thread>())) });
        }
    }
}

/// Adds to a counter that only the calling thread writes. One instruction, so that a handler that interrupts it loses nothing.
#[inline(always)]
pub fn add_own(counter: &AtomicU64, amount: u64) {
    // SAFETY: the counter is valid, and this thread alone writes it; readers see the old or the new value of an aligned word.
    unsafe {
        core::arch::asm!(
            "add qword ptr [{counter}], {amount}",
            counter = in(reg) counter.as_ptr(),
            amount = in(reg) amount,
            options(nostack),
        );
    }
}

/// The same for a 32-bit counter.
#[inline(always)]
pub fn add_own_u32(counter: &AtomicU32, amount: u32) {
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "add dword ptr [{counter}], {amount:e}",
            counter = in(reg) counter.as_ptr(),
            amount = in(reg) amount,
            options(nostack),
        );
    }
}

/// Adds to two neighbouring counters at once, whatever other threads do.
pub fn add_pair(first: &AtomicU64, second: &AtomicU64, [to_first, to_second]: [u64; 2]) {
    let place = first.as_ptr();
    if second.as_ptr() != place.wrapping_add(1) || !(place as usize).is_multiple_of(16) {
        first.fetch_add(to_first, Ordering::Relaxed);
        second.fetch_add(to_second, Ordering::Relaxed);
        return;
    }
    let mut low = first.load(Ordering::Relaxed);
    let mut high = second.load(Ordering::Relaxed);
    loop {
        let (new_low, new_high) = (low.wrapping_add(to_first), high.wrapping_add(to_second));
        let equal: u8;
        // SAFETY: sixteen aligned bytes that belong to the two counters. `rbx` may not be named as an operand, so it is put aside.
        unsafe {
            core::arch::asm!(
                "xchg {new_low}, rbx",
                "lock cmpxchg16b xmmword ptr [{place}]",
                "sete {equal}",
                "mov rbx, {new_low}",
                new_low = inout(reg) new_low => _,
                place = in(reg) place,
                equal = out(reg_byte) equal,
                inout("rax") low,
                inout("rdx") high,
                in("rcx") new_high,
                options(nostack),
            );
        }
        if equal != 0 {
            return;
        }
    }
}
