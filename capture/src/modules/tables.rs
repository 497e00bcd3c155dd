//! Unwind tables of the modules: who builds them, when, and looking up in them.
//!
//! Called from: `lookup` anywhere; everything else from hooks and ordinary threads, never from a handler. This crate does not allocate, so the recorder says who builds
//! ([`set_builder`]). Building holds a lock with a bound; a thread that does not get it goes on without the table.
//!
//! # Orderings    Publish a table: `table.store(Release)` in `publish_table` -> `table.load(Acquire)` in `lookup`. Tables are never freed: an object that is opened
//! again takes up the table it had.
#![allow(unsafe_code)]

use super::{Entry, Found, entries, find};
use crate::mapping::Mapping;
use crate::spin::Spin;
use crate::syscall;
use core::sync::atomic::{AtomicPtr, Ordering};
use layout::ModuleIndex;
use unwind::Rule;
use unwind::table::Table;

/// Bytes from an object's entry point that belong to its start-up code, if no table says otherwise.
const ENTRY_CODE: u64 = 128;

/// Bytes without a row between two described functions that are more than an assembler's or a linker's small pieces of code.
const JIT_REGION: u32 = 64 << 10;

/// A table in memory of its own.
pub(super) struct TableMemory {
    pcs: *const u32,
    rules: *const u16,
    rows: usize,
    interned: *const u64,
    interned_length: usize,
}

static BUILD: Spin = Spin::new();
static BUILDER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// In a child after fork: whoever was building is not here.
pub(super) fn reset_in_child() {
    BUILD.reset();
}

/// An object's frame information, for a [`Builder`].
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Address of the object minus its addresses in the file; tables count from here.
    pub bias: u64,
    /// Bytes of `.eh_frame_hdr`, and its address in the process.
    pub eh_frame_hdr: &'a [u8],
    /// Address of these bytes.
    pub eh_frame_hdr_avma: u64,
    /// Bytes from `.eh_frame`'s start to the end of its segment.
    pub eh_frame: &'a [u8],
    /// Address of these bytes.
    pub eh_frame_avma: u64,
}

/// Builds the table of an object and hands it to `publish` as (addresses in the file, rule numbers, rules). May allocate, from its own heap.
pub type Builder = fn(image: &Image<'_>, publish: &mut Publish<'_>);

/// Takes a built table.
pub type Publish<'a> = dyn FnMut(&[u32], &[u16], &[u64]) + 'a;

/// Finds the rule at one address without a table. May allocate, from its own heap.
pub type Evaluator = fn(image: &Image<'_>, avma: u64) -> Option<Rule>;

/// Finds `.eh_frame` by its header: address of the section, from the header's address and bytes.
pub type FindEhFrame = fn(eh_frame_hdr: &[u8], eh_frame_hdr_avma: u64) -> Option<u64>;

static FIND_EH_FRAME: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static EVALUATOR: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Says who builds tables. This crate cannot: it does not allocate.
pub fn set_builder(find: FindEhFrame, evaluate: Evaluator, build: Builder) {
    FIND_EH_FRAME.store(find as *mut (), Ordering::Release);
    EVALUATOR.store(evaluate as *mut (), Ordering::Release);
    BUILDER.store(build as *mut (), Ordering::Release);
}

/// Answer of [`lookup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The rule at the address; [`Rule::NONE`] if the object's table has none there.
    Rule(Rule),
    /// The table is silent about a region so large that another compiler made it, such as V8's builtins inside node: as good as JIT code.
    Generated,
    /// The object's table is not built yet.
    NotBuilt,
}

/// Looks an address up in the table of its module.
pub fn lookup(module: ModuleIndex, avma: u64) -> Lookup {
    let Some(entry) = entries().get(usize::from(module.get()).wrapping_sub(1)) else { return Lookup::Rule(Rule::NONE) };
    let table = entry.table.load(Ordering::Acquire);
    if table.is_null() {
        return Lookup::NotBuilt;
    }
    let offset = avma.wrapping_sub(entry.bias.load(Ordering::Relaxed));
    // SAFETY: published tables are immutable and never freed.
    let table = unsafe { (*table).view() };
    let Ok(offset) = u32::try_from(offset) else { return Lookup::Rule(Rule::NONE) };
    if let Some(rule) = table.lookup(offset).filter(|rule| !rule.is_none()) {
        return Lookup::Rule(rule);
    }
    // The dynamic linker's first instructions have no frame information; nothing called them.
    if avma.wrapping_sub(entry.entry_point.load(Ordering::Relaxed)) < ENTRY_CODE {
        return Lookup::Rule(Rule::END_OF_STACK);
    }
    if gap(table.pcs, offset) >= JIT_REGION { Lookup::Generated } else { Lookup::Rule(Rule::NONE) }
}

/// Bytes around an address that no row describes.
fn gap(pcs: &[u32], offset: u32) -> u32 {
    let after = pcs.partition_point(|pc| *pc <= offset);
    let start = after.checked_sub(1).and_then(|i| pcs.get(i)).copied().unwrap_or(0);
    let end = pcs.get(after).copied().unwrap_or(u32::MAX);
    end.wrapping_sub(start)
}

impl TableMemory {
    fn view(&self) -> Table<'_> {
        // SAFETY: the pointers and lengths are those of the arrays that `publish_table` copied.
        unsafe {
            Table {
                pcs: core::slice::from_raw_parts(self.pcs, self.rows),
                rules: core::slice::from_raw_parts(self.rules, self.rows),
                interned: core::slice::from_raw_parts(self.interned, self.interned_length),
            }
        }
    }
}

/// Builds the tables of every listed module that has none yet, as a handler cannot.
pub fn ensure_tables() {
    let count = entries().len();
    for number in 1..=count {
        if let Some(module) = ModuleIndex::new(number as u16)
            && entries().get(number - 1).is_some_and(|e| e.present.load(Ordering::Relaxed) != 0)
        {
            ensure_table(module);
        }
    }
}

/// The rule at an address of a module that has no table, found in its frame information in place: a command that lasts for a moment needs a
/// hundred rules of an executable with a million. `None` once a table is worth its while, and where nothing describes the address. Not in a handler.
#[cold]
pub fn evaluate(module: ModuleIndex, avma: u64) -> Option<Rule> {
    let entry = entries().get(usize::from(module.get()).wrapping_sub(1))?;
    let left = entry.evaluations.load(Ordering::Relaxed).checked_sub(1)?;
    entry.evaluations.store(left, Ordering::Relaxed);
    let evaluator = EVALUATOR.load(Ordering::Acquire);
    if evaluator.is_null() {
        return None;
    }
    // SAFETY: `set_builder` stored a function of this type.
    let evaluator = unsafe { core::mem::transmute::<*mut (), Evaluator>(evaluator) };
    in_place(entry, avma, evaluator)
}

/// Calls `f` with the frame information of the module that an address lies in, and the address in the mapping that this describes. `None` where it could be
/// unmapped meanwhile. Not in a handler.
pub fn with_image<R>(avma: u64, f: impl FnOnce(&Image<'_>, u64) -> Option<R>) -> Option<R> {
    let Found::Module(module) = find(avma) else { return None };
    let entry = entries().get(usize::from(module.get()).wrapping_sub(1))?;
    (entry.at_start.load(Ordering::Relaxed) != 0).then(|| in_place(entry, avma, f))?
}

/// The entry's object was there when the list was first read, and a live frame leads to it: whoever unmapped it now would take the code away under that frame.
fn in_place<R>(entry: &Entry, avma: u64, f: impl FnOnce(&Image<'_>, u64) -> Option<R>) -> Option<R> {
    let finder = FIND_EH_FRAME.load(Ordering::Acquire);
    if finder.is_null() {
        return None;
    }
    // SAFETY: `set_builder` stored a function of this type.
    let finder = unsafe { core::mem::transmute::<*mut (), FindEhFrame>(finder) };
    let hdr_avma = entry.eh_frame_hdr.load(Ordering::Relaxed);
    let end = entry.eh_frame_end.load(Ordering::Relaxed);
    let hdr_length = entry.eh_frame_hdr_length.load(Ordering::Relaxed);
    if hdr_avma == 0 || hdr_avma.checked_add(hdr_length)? > end {
        return None;
    }
    // SAFETY: within a segment of an object that stays mapped, as above.
    let hdr = unsafe { core::slice::from_raw_parts(hdr_avma as *const u8, hdr_length as usize) };
    let eh_frame_avma = finder(hdr, hdr_avma)?;
    let base = entry.base.load(Ordering::Relaxed);
    let length = end.checked_sub(eh_frame_avma).filter(|_| eh_frame_avma > base)?;
    // SAFETY: as above; in the same segment, between its object's first byte and the segment's end.
    let eh_frame = unsafe { core::slice::from_raw_parts(eh_frame_avma as *const u8, length as usize) };
    let (bias, table_bias) = (entry.bias.load(Ordering::Relaxed), entry.table_bias.load(Ordering::Relaxed));
    let image = Image { bias: table_bias, eh_frame_hdr: hdr, eh_frame_hdr_avma: hdr_avma, eh_frame, eh_frame_avma };
    // A mapping of a part of the file at another place has the rules of the first.
    f(&image, avma.wrapping_sub(bias).wrapping_add(table_bias))
}

/// Builds the table of a module unless it has one. Not in a handler.
#[cold]
pub fn ensure_table(module: ModuleIndex) {
    let Some(entry) = entries().get(usize::from(module.get()).wrapping_sub(1)) else { return };
    if !entry.table.load(Ordering::Acquire).is_null() {
        return;
    }
    let Some(_held) = BUILD.lock() else { return };
    if !entry.table.load(Ordering::Acquire).is_null() {
        return;
    }
    if build(entry).is_none() {
        // Nothing to build from: an empty table says so, and nobody tries again.
        publish_table(entry, &[], &[], &[]);
    }
}

fn build(entry: &Entry) -> Option<()> {
    let builder = BUILDER.load(Ordering::Acquire);
    let finder = FIND_EH_FRAME.load(Ordering::Acquire);
    if builder.is_null() || finder.is_null() {
        return None;
    }
    // SAFETY: `set_builder` stored functions of these types.
    let (builder, finder) = unsafe {
        (core::mem::transmute::<*mut (), Builder>(builder), core::mem::transmute::<*mut (), FindEhFrame>(finder))
    };
    let hdr_avma = entry.eh_frame_hdr.load(Ordering::Relaxed);
    let end = entry.eh_frame_end.load(Ordering::Relaxed);
    let hdr_length = entry.eh_frame_hdr_length.load(Ordering::Relaxed) as usize;
    if hdr_avma == 0 || end <= hdr_avma || end - hdr_avma > 1 << 30 {
        return None;
    }
    let mut hdr = [0; 64];
    let hdr = hdr.get_mut(..hdr_length.min(64))?;
    if syscall::copy_memory(hdr_avma, hdr) != hdr.len() {
        return None;
    }
    let eh_frame_avma = finder(hdr, hdr_avma)?;
    let length = end.checked_sub(eh_frame_avma).filter(|l| *l <= 1 << 30)? as usize;
    // A copy: the object may be unmapped by another thread meanwhile.
    let mut copy = Mapping::new(length)?;
    let bytes = copy.bytes_mut().get_mut(..length)?;
    let read = syscall::copy_memory(eh_frame_avma, bytes);
    let image = Image {
        bias: entry.table_bias.load(Ordering::Relaxed),
        eh_frame_hdr: hdr,
        eh_frame_hdr_avma: hdr_avma,
        eh_frame: bytes.get(..read)?,
        eh_frame_avma,
    };
    builder(&image, &mut |pcs, rules, interned| publish_table(entry, pcs, rules, interned));
    if entry.table.load(Ordering::Relaxed).is_null() { None } else { Some(()) }
}

fn publish_table(entry: &Entry, pcs: &[u32], rules: &[u16], interned: &[u64]) {
    let rows = pcs.len().min(rules.len());
    let header = size_of::<TableMemory>().next_multiple_of(8);
    let bytes = header + interned.len() * 8 + rows * 4 + rows * 2;
    let Some(mapping) = Mapping::new(bytes) else { return };
    let base = mapping.leak();
    // SAFETY: the mapping is large enough for the header and the three arrays one after the other, each aligned (8, 8, 4, 2), and ours alone.
    unsafe {
        let to_interned = base.add(header).cast::<u64>();
        let to_pcs = to_interned.add(interned.len()).cast::<u32>();
        let to_rules = to_pcs.add(rows).cast::<u16>();
        core::ptr::copy_nonoverlapping(interned.as_ptr(), to_interned, interned.len());
        core::ptr::copy_nonoverlapping(pcs.as_ptr(), to_pcs, rows);
        core::ptr::copy_nonoverlapping(rules.as_ptr(), to_rules, rows);
        let table =
            TableMemory { pcs: to_pcs, rules: to_rules, rows, interned: to_interned, interned_length: interned.len() };
        core::ptr::write(base.cast::<TableMemory>(), table);
    }
    entry.table.store(base.cast(), Ordering::Release);
}
