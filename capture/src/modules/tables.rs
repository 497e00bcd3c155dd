//! Unwind rules of the modules: where they come from, and looking them up.
//!
//! Called from: `lookup` anywhere; what builds, from hooks and ordinary threads, never from a handler.
//!
//! The rule at one address is read from the object's frame information in place, by its binary-search table, in a microsecond or two. Where that was done often, the rows of the
//! 64 KiB of code around become a table (a piece), so that nobody ever waits for the whole of a large object. Frame information that cannot be searched, or is in the file only
//! (`.debug_frame`), becomes a table of the whole object, which only who may open files can make: a handler asks for it.
//!
//! This crate does not allocate, so the recorder says who builds ([`set_builder`]). Building holds a lock; who finds it taken goes on without the table.
//!
//! # Orderings
//!
//! Publish a table: `store(Release)` -> `load(Acquire)` in `lookup`. Unlinked tables are unmapped when no reader is left (`readers`).
#![allow(unsafe_code)]

use super::readers::{self, Head, reading};
use super::{Entry, entry_of, request_refresh};
use crate::blocked::Blocked;
use crate::mapping::Mapping;
use crate::probed::Copied;
use crate::rules::{Context, Outside};
use crate::spin::Spin;
use crate::thread;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use layout::ModuleIndex;
use unwind::arch::Registers;
use unwind::cfi::{AllRules, Description, Header, Source};
use unwind::table::Table;
use unwind::{Rule, full::AllRegisters};

/// Bytes from an object's entry point that belong to its start-up code, if no table says otherwise.
const ENTRY_CODE: u64 = 128;

/// Bytes without a description between two described functions that are more than an assembler's or a linker's small pieces of code.
const JIT_REGION: u64 = 64 << 10;

/// Bytes of code whose rows are built at once: some hundred functions, a tenth of a millisecond.
const PIECE: u64 = 1 << PIECE_LOG2;
const PIECE_LOG2: u32 = 16;

/// Addresses that are looked up one by one before the rows of their piece are built: as many as cost about the same.
const BEFORE_A_PIECE: u32 = 48;

/// Bytes of stack that whoever builds may take: the host's threads and fibers have small ones too.
const ROOM_TO_BUILD: u64 = 24 << 10;

/// Registers of the host, by DWARF's numbers.
pub const REGISTERS: usize = 17;

/// What is known of an object's file: nothing yet, a handler asked for it, all that it tells.
const UNREAD: u32 = 0;
const WANTED: u32 = 1;
const READ: u32 = 2;

/// A table in memory of its own.
#[repr(C)]
pub(super) struct TableMemory {
    head: Head,
    pcs: *const u32,
    rules: *const u16,
    rows: usize,
    interned: *const u64,
    interned_length: usize,
}

/// The pieces of an object, in memory of its own behind this.
#[repr(C)]
pub(super) struct Directory {
    head: Head,
    count: usize,
    header: Header,
}

struct Piece {
    table: AtomicPtr<TableMemory>,
    /// Addresses that were looked up without it.
    misses: AtomicU32,
    /// How many of the header's functions begin where the piece begins or before, plus one; zero while nobody asked. Numbers alone: what they lead to is read as carefully as without them.
    first: AtomicU32,
}

static BUILD: Spin = Spin::new();
static BUILDER: AtomicPtr<Builder> = AtomicPtr::new(core::ptr::null_mut());

/// Takes a built table: addresses in the file, rule numbers, rules.
pub type Publish<'a> = dyn FnMut(&[u32], &[u16], &[u64]) + 'a;

/// Who builds tables, with a heap of its own.
#[derive(Debug)]
pub struct Builder {
    /// Builds the rows of the addresses from `from` to `to`, which are minus `bias` those of the file.
    pub piece: fn(header: &Header, bias: u64, from: u64, to: u64, publish: &mut Publish<'_>),
    /// Builds what the object's file alone tells.
    pub file: fn(object: &Object, publish: &mut Publish<'_>),
}

/// An object whose file is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Where its executable mapping starts.
    pub start: u64,
    /// Its file's identity.
    pub inode: u64,
    /// Whether its `.eh_frame` was not found in memory, or cannot be searched there.
    pub needs_eh_frame: bool,
}

/// Says who builds tables.
pub fn set_builder(builder: &'static Builder) {
    BUILDER.store(core::ptr::from_ref(builder).cast_mut(), Ordering::Release);
}

fn builder() -> Option<&'static Builder> {
    // SAFETY: `set_builder` stored a static builder.
    unsafe { BUILDER.load(Ordering::Acquire).as_ref() }
}

/// Answer of [`lookup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The rule at the address.
    Rule(Rule),
    /// No frame information in memory describes the address.
    Gap(Gap),
}

/// What surrounds an address that nothing describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// A small piece of code of an assembler or a linker, or an object without any frame information.
    Small,
    /// A region so large that another compiler made it, such as V8's builtins inside node: as good as JIT code.
    Generated,
}

/// Answer of [`lookup_in_file`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFile {
    /// The rule at the address.
    Rule(Rule),
    /// The file does not tell either.
    Nothing,
    /// The file was not read yet, and a handler cannot.
    NotRead,
}

/// Looks an address up in the frame information of its module that is in memory.
pub fn lookup<C: Context>(module: ModuleIndex, avma: u64) -> Lookup {
    let Some(entry) = entry_of(module) else { return Lookup::Gap(Gap::Small) };
    let (bias, table_bias) = (entry.bias.load(Ordering::Relaxed), entry.table_bias.load(Ordering::Relaxed));
    let svma = avma.wrapping_sub(bias);
    let mut gap = 0;
    let _reading = reading();
    // SAFETY: published directories and tables stay while somebody reads.
    let directory = unsafe { entry.pieces.load(Ordering::Acquire).as_ref() };
    if let Some(header) = directory.map(|known| known.header).or_else(|| header_of::<C>(entry)) {
        let index = (avma.wrapping_sub(entry.start.load(Ordering::Relaxed)) >> PIECE_LOG2) as usize;
        if let Some(rule) = directory.and_then(|directory| in_piece(directory, index, svma)) {
            return Lookup::Rule(rule);
        }
        let mut source = C::Code::default();
        let between = directory.and_then(|directory| around(directory, entry, index, &mut source));
        // A mapping of a part of the file at another place has the rules of the first.
        let address = svma.wrapping_add(table_bias);
        match header.describe_within::<Registers>(&mut source, address, between.unwrap_or((0, u64::MAX))) {
            Some(Description::Function { rule, .. }) => {
                if C::MAY_BUILD && thread::has_room(ROOM_TO_BUILD) {
                    build_piece(entry, header, avma);
                }
                return Lookup::Rule(rule);
            }
            Some(Description::Gap { from, to }) => gap = to.saturating_sub(from),
            None => {}
        }
    }
    // The dynamic linker's first instructions have no frame information; nothing called them.
    if avma.wrapping_sub(entry.entry_point.load(Ordering::Relaxed)) < ENTRY_CODE {
        return Lookup::Rule(Rule::END_OF_STACK);
    }
    let text = entry.end.load(Ordering::Relaxed).wrapping_sub(entry.start.load(Ordering::Relaxed));
    Lookup::Gap(if gap.min(text) >= JIT_REGION { Gap::Generated } else { Gap::Small })
}

/// Looks an address up in what only the object's file tells; reads that the first time, unless in a handler.
#[cold]
pub fn lookup_in_file<C: Context>(module: ModuleIndex, avma: u64) -> InFile {
    let Some(entry) = entry_of(module) else { return InFile::Nothing };
    if entry.file.load(Ordering::Acquire) != READ {
        if !C::MAY_BUILD || !thread::has_room(ROOM_TO_BUILD) {
            let _ = entry.file.compare_exchange(UNREAD, WANTED, Ordering::AcqRel, Ordering::Relaxed);
            request_refresh();
            return InFile::NotRead;
        }
        read_file(entry, header_of::<C>(entry).is_none());
    }
    let _reading = reading();
    // SAFETY: published tables are immutable, and stay while somebody reads.
    let Some(table) = (unsafe { entry.in_file.load(Ordering::Acquire).as_ref() }) else { return InFile::Nothing };
    let svma = avma.wrapping_sub(entry.bias.load(Ordering::Relaxed));
    let rule = u32::try_from(svma).ok().and_then(|svma| table.view().lookup(svma)).filter(|rule| !rule.is_none());
    rule.map_or(InFile::Nothing, InFile::Rule)
}

/// The header of an object whose frame information can be searched.
fn header_of<C: Context>(entry: &Entry) -> Option<Header> {
    let address = entry.eh_frame_hdr.load(Ordering::Relaxed);
    if address == 0 {
        return None;
    }
    let header = Header::read(&mut C::Code::default(), address, entry.eh_frame_hdr_length.load(Ordering::Relaxed))?;
    header.is_searchable().then_some(header)
}

fn pieces(directory: &Directory) -> &[Piece] {
    // SAFETY: `count` pieces lie behind the directory, all atomic and zeroed at first.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(directory).add(1).cast(), directory.count) }
}

/// The rule in the table of a piece. While somebody reads.
fn in_piece(directory: &Directory, index: usize, svma: u64) -> Option<Rule> {
    // SAFETY: published tables stay while somebody reads.
    let table = unsafe { pieces(directory).get(index)?.table.load(Ordering::Acquire).as_ref()?.view() };
    table.lookup(u32::try_from(svma).ok()?).filter(|rule| !rule.is_none())
}

/// Between which functions of its header those of a piece are. Searching among all costs a system call for every few of the search's steps, since each leads to another page.
fn around(directory: &Directory, entry: &Entry, index: usize, source: &mut impl Source) -> Option<(u64, u64)> {
    let mut first = |index: usize| {
        let Some(piece) = pieces(directory).get(index) else { return Some(u64::MAX) };
        match piece.first.load(Ordering::Relaxed).checked_sub(1) {
            Some(known) => Some(u64::from(known)),
            None => {
                let found = directory.header.begin_by(source, piece_start(entry, index))?;
                piece.first.store(u32::try_from(found.wrapping_add(1)).ok()?, Ordering::Relaxed);
                Some(found)
            }
        }
    };
    Some((first(index)?, first(index.wrapping_add(1))?))
}

/// Where a piece begins, for the header.
fn piece_start(entry: &Entry, index: usize) -> u64 {
    let bias = entry.table_bias.load(Ordering::Relaxed).wrapping_sub(entry.bias.load(Ordering::Relaxed));
    entry.start.load(Ordering::Relaxed).wrapping_add(index as u64 * PIECE).wrapping_add(bias)
}

/// An address was looked up in place: builds the rows of its piece if that came often.
#[cold]
fn build_piece(entry: &Entry, header: Header, avma: u64) -> Option<()> {
    let builder = builder()?;
    let (start, end) = (entry.start.load(Ordering::Relaxed), entry.end.load(Ordering::Relaxed));
    let index = (avma.checked_sub(start)? >> PIECE_LOG2) as usize;
    if entry.pieces.load(Ordering::Acquire).is_null() {
        let _blocked = Blocked::new();
        let _held = BUILD.try_lock()?;
        let count = (end.checked_sub(start)? >> PIECE_LOG2) as usize + 1;
        let length = size_of::<Directory>() + count * size_of::<Piece>();
        let mapping = Mapping::new(length)?;
        let directory = Directory { head: Head::new(mapping.length()), count, header };
        if entry.pieces.load(Ordering::Acquire).is_null() {
            let memory = mapping.leak().cast::<Directory>();
            // SAFETY: the mapping is large enough and ours alone.
            unsafe { memory.write(directory) };
            entry.pieces.store(memory, Ordering::Release);
        }
    }
    let _reading = reading();
    // SAFETY: published directories stay while somebody reads.
    let piece = pieces(unsafe { entry.pieces.load(Ordering::Acquire).as_ref()? }).get(index)?;
    if piece.misses.fetch_add(1, Ordering::Relaxed) < BEFORE_A_PIECE {
        return None;
    }
    let _blocked = Blocked::new();
    let _held = BUILD.try_lock()?;
    if !piece.table.load(Ordering::Acquire).is_null() {
        return None;
    }
    let (from, table_bias) = (piece_start(entry, index), entry.table_bias.load(Ordering::Relaxed));
    // It allocates, and behind Rust's door that is not to be counted as the thread's.
    thread::disarm_current();
    (builder.piece)(&header, table_bias, from, from.wrapping_add(PIECE), &mut |pcs, rules, interned| {
        if let Some(table) = table_of(pcs, rules, interned) {
            piece.table.store(table, Ordering::Release);
        }
    });
    Some(())
}

/// Reads what only the object's file tells, once.
#[cold]
fn read_file(entry: &Entry, needs_eh_frame: bool) {
    let _blocked = Blocked::new();
    let (Some(_held), Some(builder)) = (BUILD.lock(), builder()) else { return };
    if entry.file.load(Ordering::Acquire) == READ {
        return;
    }
    let object = Object {
        start: entry.start.load(Ordering::Relaxed),
        inode: entry.inode.load(Ordering::Relaxed),
        needs_eh_frame,
    };
    if object.inode != 0 {
        // As above.
        thread::disarm_current();
        (builder.file)(&object, &mut |pcs, rules, interned| {
            if !pcs.is_empty()
                && let Some(table) = table_of(pcs, rules, interned)
            {
                entry.in_file.store(table, Ordering::Release);
            }
        });
    }
    entry.file.store(READ, Ordering::Release);
}

/// Reads the file of an object if a handler asked for it, if its frame information cannot be searched in memory, or if told to.
pub(super) fn prepare(entry: &Entry, always: bool) {
    let file = entry.file.load(Ordering::Acquire);
    if file == READ {
        return;
    }
    // Another thread may be closing the object.
    let searchable = header_of::<Outside>(entry).is_some();
    if always || file == WANTED || !searchable {
        read_file(entry, !searchable);
    }
}

/// Unlinks all tables of an object that went away. Under the refresh lock.
pub(super) fn retire(entry: &Entry) {
    let _blocked = Blocked::new();
    let Some(_held) = BUILD.lock() else { return };
    entry.file.store(UNREAD, Ordering::Release);
    let whole = entry.in_file.swap(core::ptr::null_mut(), Ordering::SeqCst);
    let directory = entry.pieces.swap(core::ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: nobody else retires; what is unlinked here was published once.
    unsafe {
        if let Some(directory) = directory.as_ref() {
            for piece in pieces(directory) {
                let table = piece.table.load(Ordering::Acquire);
                if !table.is_null() {
                    readers::retire(table.cast());
                }
            }
            readers::retire(core::ptr::from_ref(directory).cast_mut().cast());
        }
        if !whole.is_null() {
            readers::retire(whole.cast());
        }
    }
}

/// What is said about all registers at an address, and whether a signal made its frame.
pub(crate) fn all_rules<C: Context>(module: ModuleIndex, avma: u64) -> Option<(AllRules<REGISTERS>, bool)> {
    let entry = entry_of(module)?;
    let svma = avma.wrapping_sub(entry.bias.load(Ordering::Relaxed));
    let address = svma.wrapping_add(entry.table_bias.load(Ordering::Relaxed));
    header_of::<C>(entry)?.describe_all::<Registers, REGISTERS>(&mut C::Code::default(), address)
}

/// All registers of a frame.
pub type All = AllRegisters<REGISTERS>;

/// Start of the function that an address lies in, if frame information describes it; asked from outside.
pub fn function_start(module: ModuleIndex, avma: u64) -> Option<u64> {
    let entry = entry_of(module)?;
    let offset = entry.table_bias.load(Ordering::Relaxed).wrapping_sub(entry.bias.load(Ordering::Relaxed));
    match header_of::<Outside>(entry)?.describe::<Registers>(&mut Copied::new(), avma.wrapping_add(offset))? {
        Description::Function { start, .. } => Some(start.wrapping_sub(offset)),
        Description::Gap { .. } => None,
    }
}

impl TableMemory {
    fn view(&self) -> Table<'_> {
        // SAFETY: the pointers and lengths are those of the arrays that `table_of` copied.
        unsafe {
            Table {
                pcs: core::slice::from_raw_parts(self.pcs, self.rows),
                rules: core::slice::from_raw_parts(self.rules, self.rows),
                interned: core::slice::from_raw_parts(self.interned, self.interned_length),
            }
        }
    }
}

/// A copy of a table in a mapping of its own.
fn table_of(pcs: &[u32], rules: &[u16], interned: &[u64]) -> Option<*mut TableMemory> {
    let rows = pcs.len().min(rules.len());
    let header = size_of::<TableMemory>().next_multiple_of(8);
    let mapping = Mapping::new(header + interned.len() * 8 + rows * 4 + rows * 2)?;
    let length = mapping.length();
    let base = mapping.leak();
    // SAFETY: the mapping is large enough for the header and the three arrays one after the other, each aligned (8, 8, 4, 2), and ours alone.
    unsafe {
        let to_interned = base.add(header).cast::<u64>();
        let to_pcs = to_interned.add(interned.len()).cast::<u32>();
        let to_rules = to_pcs.add(rows).cast::<u16>();
        core::ptr::copy_nonoverlapping(interned.as_ptr(), to_interned, interned.len());
        core::ptr::copy_nonoverlapping(pcs.as_ptr(), to_pcs, rows);
        core::ptr::copy_nonoverlapping(rules.as_ptr(), to_rules, rows);
        let table = TableMemory {
            head: Head::new(length),
            pcs: to_pcs,
            rules: to_rules,
            rows,
            interned: to_interned,
            interned_length: interned.len(),
        };
        core::ptr::write(base.cast::<TableMemory>(), table);
    }
    Some(base.cast())
}
