//! The loaded objects; their unwind tables are in the child module.
//!
//! Called from: `find` and `lookup` anywhere; `refresh` and `prepare_for_handlers` from hooks and ordinary threads, never from a handler.
//! When the list is full or being rewritten for too long: an address is in no module, and its stack ends with that reason.
//!
//! A module's number names it in the store for ever. An object that is opened again at its old place has its old number, if it is the same: a file can be replaced by
//! another that gets its inode.
//!
//! # Orderings
//! There are two lists, by turns in force and rewritten; `SEQUENCE` is odd meanwhile, and its second bit tells which. A reader that was overtaken twice reads again, and never waits.
#![allow(unsafe_code)]

use crate::blocked::Blocked;
use crate::mapping::Mapping;
use crate::region::{self, SharedCursor};
use crate::spin::Spin;
use crate::{elf, maps, rules, thread};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use layout::{ChunkKind, Module, ModuleIndex};

mod readers;
mod tables;

pub(crate) use tables::all_rules;
pub use tables::{
    All, Builder, Gap, InFile, Lookup, Object, Publish, REGISTERS, function_start, lookup, lookup_in_file, set_builder,
};

/// Most objects over the life of a process.
const MAX_MODULES: usize = ModuleIndex::MAX as usize;
/// Marks a range of a file that got no number any more.
const UNNUMBERED: u32 = u32::MAX;
/// Most executable mappings at a time.
const MAX_RANGES: usize = 8192;

/// A range of executable addresses.
struct Range {
    start: AtomicU64,
    end: AtomicU64,
    /// Number of the module; 0 for code that belongs to no file (JIT).
    module: AtomicU32,
}

/// What is known of a module besides its record in the store.
struct Entry {
    start: AtomicU64,
    end: AtomicU64,
    /// Address of the file's first byte.
    base: AtomicU64,
    /// Address in the process minus address in the file: of this mapping, and of the one that holds the frame information.
    bias: AtomicU64,
    table_bias: AtomicU64,
    entry_point: AtomicU64,
    file_offset: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    /// Of the object's headers, to tell it from another that took its inode.
    fingerprint: AtomicU64,
    eh_frame_hdr: AtomicU64,
    eh_frame_hdr_length: AtomicU64,
    /// Tables of parts of its code.
    pieces: AtomicPtr<tables::Directory>,
    /// Table of what its file alone tells, and how far that was read.
    in_file: AtomicPtr<tables::TableMemory>,
    file: AtomicU32,
    own: AtomicU32,
    /// Number of the refresh that listed it last.
    listed: AtomicU32,
    /// The next entry with the same hash, plus one.
    next: AtomicU32,
}

static RANGES: AtomicPtr<Range> = AtomicPtr::new(core::ptr::null_mut());
static RANGE_COUNTS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static SEQUENCE: AtomicU32 = AtomicU32::new(0);
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(core::ptr::null_mut());
static ENTRY_COUNT: AtomicUsize = AtomicUsize::new(0);
static REFRESH: Spin = Spin::new();
static RECORDS: SharedCursor = SharedCursor::new();
/// How often an object went away, and how many of these times what is known takes into account: if not all, it may be wrong.
static CLOSED: AtomicU32 = AtomicU32::new(0);
static CLOSED_KNOWN: AtomicU32 = AtomicU32::new(0);
/// Number of refreshes so far.
static REFRESHES: AtomicU32 = AtomicU32::new(0);
/// Module number of the recorder's own library, if it is one.
static OWN: AtomicU32 = AtomicU32::new(UNNUMBERED);
/// First entries by the hash of their file's identity, plus one.
static BY_FILE: [AtomicU32; 512] = [const { AtomicU32::new(0) }; 512];

/// Says that an object may have gone away: the next refresh starts anew.
pub fn mark_stale() {
    CLOSED.fetch_add(1, Ordering::AcqRel);
    WANTED.fetch_or(AGAIN, Ordering::Release);
    thread::disarm_current();
}

/// Says that this memory was given back: if code was there, the next refresh starts anew.
pub fn unmapped(start: u64, end: u64) {
    let listed = list(SEQUENCE.load(Ordering::Acquire));
    let at = listed.partition_point(|range| range.end.load(Ordering::Relaxed) <= start);
    if listed.get(at).is_some_and(|range| range.start.load(Ordering::Relaxed) < end) {
        mark_stale();
    }
}

/// Whether [`mark_stale`] was called since a refresh began that is done.
#[inline]
pub fn is_stale() -> bool {
    CLOSED.load(Ordering::Relaxed) != CLOSED_KNOWN.load(Ordering::Relaxed)
}

/// What somebody outside a handler shall do: read the list again, because an object was closed; read also the files that a handler cannot.
static WANTED: AtomicU32 = AtomicU32::new(0);
const AGAIN: u32 = 1;
const FOR_HANDLER: u32 = 2;
/// And more room for rules, which lookups in handlers need.
const ROOM_FOR_RULES: u32 = 4;

/// Asks for [`refresh_on_request`], from a handler.
pub fn request_refresh() {
    WANTED.fetch_or(FOR_HANDLER, Ordering::Release);
    thread::disarm_current();
}

/// The same for room in the rule cache.
pub(crate) fn request_room_for_rules() {
    WANTED.fetch_or(ROOM_FOR_RULES, Ordering::Release);
    thread::disarm_current();
}

/// Does something while the list stays as it is; not if it is being read anew.
pub(crate) fn while_listed(something: impl FnOnce()) {
    let _blocked = Blocked::new();
    if let Some(_held) = REFRESH.try_lock() {
        something();
    }
}

/// Whether a refresh is due, though no stack of an allocation may be walked.
#[inline(always)]
pub fn is_refresh_requested() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

/// Reads the list of mappings, and what else a handler asked for; whether anything was. Not in a handler.
#[cold]
pub fn refresh_on_request() -> bool {
    let wanted = WANTED.swap(0, Ordering::AcqRel);
    if wanted & FOR_HANDLER != 0 {
        refresh();
        prepare(false);
    } else if wanted & AGAIN != 0 {
        refresh_if_stale();
    }
    if wanted & ROOM_FOR_RULES != 0 {
        while_listed(rules::grow);
    }
    wanted != 0
}

/// Reads what handlers may need and cannot: the files of objects whose frame information cannot be searched in memory, and the main executable's. Not in a handler.
pub fn prepare_for_handlers() {
    prepare(true);
}

fn prepare(main: bool) {
    let refreshes = REFRESHES.load(Ordering::Relaxed);
    for (i, entry) in entries().iter().enumerate().filter(|(_, e)| e.listed.load(Ordering::Relaxed) == refreshes) {
        // The first one listed is the main executable's.
        tables::prepare(entry, main && i == 0);
    }
}

fn entries() -> &'static [Entry] {
    let base = ENTRIES.load(Ordering::Acquire);
    if base.is_null() {
        return &[];
    }
    // SAFETY: the array has MAX_MODULES zeroed entries, all atomic, and is never unmapped.
    unsafe { core::slice::from_raw_parts(base, ENTRY_COUNT.load(Ordering::Acquire).min(MAX_MODULES)) }
}

fn entry_of(module: ModuleIndex) -> Option<&'static Entry> {
    entries().get(usize::from(module.get()).wrapping_sub(1))
}

/// The list that is in force at an even number of the sequence, with the places behind it, and its length.
fn ranges(sequence: u32) -> (&'static [Range], &'static AtomicUsize) {
    let base = RANGES.load(Ordering::Acquire);
    let [first, second] = &RANGE_COUNTS;
    if base.is_null() {
        return (&[], first);
    }
    // SAFETY: there are two arrays of MAX_RANGES zeroed entries, all atomic, and they are never unmapped.
    let (low, high) = unsafe { core::slice::from_raw_parts(base, 2 * MAX_RANGES) }.split_at(MAX_RANGES);
    if sequence & 2 == 0 { (low, first) } else { (high, second) }
}

fn list(sequence: u32) -> &'static [Range] {
    let (ranges, count) = ranges(sequence);
    ranges.get(..count.load(Ordering::Relaxed)).unwrap_or(ranges)
}

fn set_up() -> Option<()> {
    if ENTRIES.load(Ordering::Relaxed).is_null() {
        let entries = Mapping::new(MAX_MODULES * size_of::<Entry>())?;
        let ranges = Mapping::new(2 * MAX_RANGES * size_of::<Range>())?;
        RANGES.store(ranges.leak().cast(), Ordering::Release);
        ENTRIES.store(entries.leak().cast(), Ordering::Release);
    }
    Some(())
}

/// Changes whenever the list of mappings was read: what was concluded from an older one may not hold.
#[inline]
pub fn generation() -> u32 {
    SEQUENCE.load(Ordering::Relaxed)
}

/// What is known of the mapping that an address lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Code of this module.
    Module(ModuleIndex),
    /// Executable memory that belongs to no file.
    Anonymous,
    /// In no mapping that was executable at the last refresh.
    Nowhere,
}

/// Finds the mapping of an address.
pub fn find(avma: u64) -> Found {
    for _ in 0..4 {
        let before = SEQUENCE.load(Ordering::Acquire) & !1;
        let sorted = list(before);
        let after = sorted.partition_point(|r| r.start.load(Ordering::Relaxed) <= avma);
        let found = match after.checked_sub(1).and_then(|i| sorted.get(i)) {
            Some(range) if avma < range.end.load(Ordering::Relaxed) => match range.module.load(Ordering::Relaxed) {
                0 => Found::Anonymous,
                UNNUMBERED => Found::Nowhere,
                number => ModuleIndex::new(number as u16).map_or(Found::Nowhere, Found::Module),
            },
            _ => Found::Nowhere,
        };
        fence(Ordering::Acquire);
        if SEQUENCE.load(Ordering::Relaxed).wrapping_sub(before) <= 2 {
            return found;
        }
    }
    Found::Nowhere
}

/// Whether the module is the recorder's own library.
#[inline]
pub fn is_own(module: ModuleIndex) -> bool {
    u32::from(module.get()) == OWN.load(Ordering::Relaxed)
}

/// Reads the list of mappings anew. Not in a handler; waits for another thread that does the same.
#[cold]
pub fn refresh() {
    let _blocked = Blocked::new();
    if let Some(_held) = REFRESH.lock() {
        refresh_locked();
    }
}

/// The same if an object was closed: whoever is under way with it is waited for, and then it is not done again.
#[cold]
pub fn refresh_if_stale() {
    let _blocked = Blocked::new();
    if let Some(_held) = REFRESH.lock()
        && is_stale()
    {
        refresh_locked();
    }
}

fn refresh_locked() {
    if set_up().is_none() {
        return;
    }
    // An object that was listed by the refresh before is the same, unless one was closed since.
    let closed = CLOSED.load(Ordering::Acquire);
    let unchanged = closed == CLOSED_KNOWN.load(Ordering::Relaxed);
    let this = Refresh { number: REFRESHES.load(Ordering::Relaxed).wrapping_add(1), unchanged };
    let own_code = refresh as *const () as u64;
    let Some(mut scratch) = Mapping::new(MAX_RANGES * 24) else { return };
    // Filled aside, so that readers find the old list until the new one is whole.
    let mut found = Scratch { bytes: scratch.bytes_mut(), count: 0 };
    let mut base = (0, 0, 0);
    let whole = maps::each(|line| {
        if line.inode != 0 && line.offset == 0 && base.1 != line.inode {
            base = (line.start, line.inode, line.device);
        } else if line.path == b"[vdso]" {
            base = (line.start, 0, 0);
        } else if line.inode != 0 && line.offset == 0 && base.2 == line.device {
            base = (line.start, line.inode, line.device);
        }
        if !line.executable || line.path == b"[vsyscall]" {
            return true;
        }
        let is_object = line.path == b"[vdso]" || (line.inode != 0 && (line.inode, line.device) == (base.1, base.2));
        let module = if is_object { this.module_of(line, base.0, own_code) } else { 0 };
        found.push(line.start, line.end, module);
        true
    });
    if !whole {
        // The list could not be read: what was known holds.
        return;
    }
    let removed = !unchanged || any_removed(&found);
    publish_ranges(&found);
    if removed {
        rules::clear();
        for entry in entries().iter().filter(|e| e.listed.load(Ordering::Relaxed) == this.number.wrapping_sub(1)) {
            tables::retire(entry);
        }
    }
    CLOSED_KNOWN.store(closed, Ordering::Release);
    REFRESHES.store(this.number, Ordering::Relaxed);
    readers::reclaim();
}

/// Whether a range that was listed is now another, or gone. (One that grew is the same.)
fn any_removed(found: &Scratch<'_>) -> bool {
    let mut new = (0..found.count).filter_map(|i| found.get(i)).peekable();
    list(SEQUENCE.load(Ordering::Relaxed)).iter().any(|old| {
        let (start, end) = (old.start.load(Ordering::Relaxed), old.end.load(Ordering::Relaxed));
        while new.next_if(|[_, new_end, _]| *new_end <= start).is_some() {}
        let module = u64::from(old.module.load(Ordering::Relaxed));
        new.peek().is_none_or(|new| new[0] > start || new[1] < end || new[2] != module)
    })
}

struct Scratch<'a> {
    bytes: &'a mut [u8],
    count: usize,
}

impl Scratch<'_> {
    fn push(&mut self, start: u64, end: u64, module: u32) {
        if let Some(to) = self.bytes.get_mut(self.count * 24..self.count * 24 + 24) {
            for (eight, value) in to.chunks_exact_mut(8).zip([start, end, u64::from(module)]) {
                eight.copy_from_slice(&value.to_ne_bytes());
            }
            self.count += 1;
        }
    }

    fn get(&self, index: usize) -> Option<[u64; 3]> {
        let bytes = self.bytes.get(index * 24..index * 24 + 24)?;
        let word = |i: usize| Some(u64::from_ne_bytes(bytes.get(i * 8..i * 8 + 8)?.try_into().ok()?));
        Some([word(0)?, word(1)?, word(2)?])
    }
}

fn publish_ranges(found: &Scratch<'_>) {
    let next = SEQUENCE.fetch_add(1, Ordering::AcqRel).wrapping_add(2);
    fence(Ordering::Release);
    let (ranges, count) = ranges(next);
    for (i, range) in ranges.iter().take(found.count).enumerate() {
        if let Some([start, end, module]) = found.get(i) {
            range.start.store(start, Ordering::Relaxed);
            range.end.store(end, Ordering::Relaxed);
            range.module.store(module as u32, Ordering::Relaxed);
        }
    }
    count.store(found.count, Ordering::Relaxed);
    SEQUENCE.fetch_add(1, Ordering::Release);
}

struct Refresh {
    number: u32,
    unchanged: bool,
}

impl Refresh {
    /// Number of the module that an executable mapping belongs to: known, or new; 0 if it has no headers.
    fn module_of(&self, line: &maps::Line<'_>, base: u64, own_code: u64) -> u32 {
        let hash = (line.inode ^ line.device.wrapping_mul(31)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
        let Some(first) = BY_FILE.get(hash as usize) else { return 0 };
        let mut headers = None;
        let mut number = first.load(Ordering::Relaxed);
        while let Some(entry) = entries().get((number as usize).wrapping_sub(1)) {
            let same = entry.inode.load(Ordering::Relaxed) == line.inode
                && entry.device.load(Ordering::Relaxed) == line.device
                && entry.start.load(Ordering::Relaxed) <= line.start
                && line.end <= entry.end.load(Ordering::Relaxed);
            if same {
                let listed = entry.listed.load(Ordering::Relaxed);
                let known = listed == self.number || (self.unchanged && listed == self.number.wrapping_sub(1));
                if known || {
                    let now = headers.get_or_insert_with(|| elf::read(base, line.start, line.offset));
                    now.as_ref().is_some_and(|now| now.fingerprint == entry.fingerprint.load(Ordering::Relaxed))
                } {
                    entry.listed.store(self.number, Ordering::Relaxed);
                    return number;
                }
            }
            number = entry.next.load(Ordering::Relaxed);
        }
        let Some(headers) = headers.unwrap_or_else(|| elf::read(base, line.start, line.offset)) else { return 0 };
        let count = ENTRY_COUNT.load(Ordering::Relaxed);
        let all = ENTRIES.load(Ordering::Relaxed);
        if count >= MAX_MODULES || all.is_null() {
            return UNNUMBERED;
        }
        // SAFETY: below the array's length.
        let entry = unsafe { &*all.add(count) };
        entry.start.store(line.start, Ordering::Relaxed);
        entry.end.store(line.end, Ordering::Relaxed);
        entry.base.store(base, Ordering::Relaxed);
        entry.bias.store(headers.mapping_bias, Ordering::Relaxed);
        entry.table_bias.store(headers.bias, Ordering::Relaxed);
        entry.entry_point.store(headers.entry, Ordering::Relaxed);
        entry.file_offset.store(line.offset, Ordering::Relaxed);
        entry.device.store(line.device, Ordering::Relaxed);
        entry.inode.store(line.inode, Ordering::Relaxed);
        entry.fingerprint.store(headers.fingerprint, Ordering::Relaxed);
        entry.eh_frame_hdr.store(headers.eh_frame_hdr, Ordering::Relaxed);
        entry.eh_frame_hdr_length.store(headers.eh_frame_hdr_length, Ordering::Relaxed);
        entry.listed.store(self.number, Ordering::Relaxed);
        entry.next.store(first.load(Ordering::Relaxed), Ordering::Relaxed);
        let number = count as u32 + 1;
        if OWN_IS_LIBRARY.load(Ordering::Relaxed) != 0 && line.start <= own_code && own_code < line.end {
            entry.own.store(1, Ordering::Relaxed);
            OWN.store(number, Ordering::Relaxed);
        }
        ENTRY_COUNT.store(count + 1, Ordering::Release);
        first.store(number, Ordering::Relaxed);
        write_record(number, entry, line.path, &headers);
        number
    }
}

static OWN_IS_LIBRARY: AtomicU32 = AtomicU32::new(0);

/// Says that this code lies in a library of its own, whose frames do not belong in stacks.
pub fn set_own_library() {
    OWN_IS_LIBRARY.store(1, Ordering::Release);
}

fn write_record(index: u32, entry: &Entry, path: &[u8], headers: &elf::Headers) {
    let path = path.get(..path.len().min(4000)).unwrap_or(path);
    let Some(id) = RECORDS.allocate(ChunkKind::Modules, size_of::<Module>()) else { return };
    // SAFETY: just allocated for a module.
    let record: &Module = unsafe { region::record(id) };
    record.start_avma.store(entry.start.load(Ordering::Relaxed), Ordering::Relaxed);
    record.end_avma.store(entry.end.load(Ordering::Relaxed), Ordering::Relaxed);
    record.file_offset.store(entry.file_offset.load(Ordering::Relaxed), Ordering::Relaxed);
    record.bias.store(entry.bias.load(Ordering::Relaxed), Ordering::Relaxed);
    record.inode.store(entry.inode.load(Ordering::Relaxed), Ordering::Relaxed);
    record.device.store(entry.device.load(Ordering::Relaxed), Ordering::Relaxed);
    record.own.store(entry.own.load(Ordering::Relaxed), Ordering::Relaxed);
    if let Some(text) = region::allocate_text(path) {
        record.path.store(text.0, Ordering::Relaxed);
        record.path_length.store(path.len() as u32, Ordering::Relaxed);
    }
    region::store_bytes(&record.build_id, &headers.build_id);
    record.build_id_length.store(headers.build_id_length as u32, Ordering::Relaxed);
    record.index.store(index, Ordering::Release);
    if let Some(header) = region::header() {
        header.modules.fetch_max(index, Ordering::Relaxed);
    }
}

/// In a child after fork, with a new store: numbers and tables are kept, the records are written again.
pub fn rewrite_records() {
    readers::reset_in_child();
    RECORDS.reset();
    // A refresh that was cut short by the fork leaves the sequence odd, and the list before it whole.
    let sequence = SEQUENCE.load(Ordering::Relaxed);
    SEQUENCE.store(sequence & !1, Ordering::Release);
    maps::each(|line| {
        if !line.executable {
            return true;
        }
        if let Found::Module(module) = find(line.start)
            && let Some(entry) = entry_of(module)
            && entry.start.load(Ordering::Relaxed) == line.start
        {
            let headers = elf::read(entry.base.load(Ordering::Relaxed), line.start, line.offset).unwrap_or_default();
            write_record(u32::from(module.get()), entry, line.path, &headers);
        }
        true
    });
}
