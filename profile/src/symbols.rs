//! Names of addresses.

use crate::{AddressKey, Frame, Svma};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

/// One function at an address. An address inside inlined code has several.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolFrame {
    /// The name for a reader, demangled.
    pub name: Arc<str>,
    /// The name as the linker knows it, if it is another.
    pub system_name: Option<Arc<str>>,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Line in `file`; 0 if unknown.
    pub line: u32,
    /// Where the function begins.
    pub function_start: Option<Svma>,
    /// Whether this function was inlined into the next one.
    pub inlined: bool,
}

impl SymbolFrame {
    /// A function of which only the name is known.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), system_name: None, file: None, line: 0, function_start: None, inlined: false }
    }
}

/// The names that were found for the addresses of one profile. Its keys hold mapping ids, so it fits that profile only: find the
/// names after merging and sorting.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Of each address, its part of `frames`.
    by_address: FxHashMap<AddressKey, Range<u32>>,
    frames: Vec<SymbolFrame>,
}

impl Symbols {
    /// No names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names an address, perhaps anew: the innermost inlined function first, the function that encloses them last.
    ///
    /// # Panics
    /// If there are more than 2^32 functions.
    pub fn insert(&mut self, address: AddressKey, frames: Vec<SymbolFrame>) {
        if frames.is_empty() {
            return;
        }
        let known = self.by_address.get(&address).filter(|known| known.len() == frames.len());
        if let Some(known) = known {
            self.frames.splice(usize_range(known), frames);
            return;
        }
        let first = self.frames.len();
        self.frames.extend(frames);
        self.by_address.insert(address, number(first)..number(self.frames.len()));
    }

    /// Names an address that has no name yet, taking the functions. Whether it has these now; if it had others they stay, and those given are left.
    ///
    /// # Panics
    /// As [`Symbols::insert`].
    pub(crate) fn name(&mut self, address: AddressKey, functions: &mut Vec<SymbolFrame>) -> bool {
        match self.by_address.entry(address) {
            Entry::Occupied(known) => self.frames[usize_range(known.get())] == **functions,
            Entry::Vacant(place) => {
                place.insert(number(self.frames.len())..number(self.frames.len() + functions.len()));
                self.frames.append(functions);
                true
            }
        }
    }

    /// The functions at a frame, innermost first; empty if it has no name here.
    pub fn get(&self, frame: &Frame) -> &[SymbolFrame] {
        let known = frame.address().and_then(|address| self.by_address.get(&address));
        known.map_or(&[], |known| &self.frames[usize_range(known)])
    }

    /// Number of addresses with names.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Whether any source line is known.
    pub fn has_lines(&self) -> bool {
        self.by_address.values().flat_map(|known| &self.frames[usize_range(known)]).any(|symbol| symbol.line != 0)
    }
}

impl PartialEq for Symbols {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.by_address.iter().all(|(address, known)| {
                let others = other.by_address.get(address).map(|others| &other.frames[usize_range(others)]);
                others == Some(&self.frames[usize_range(known)])
            })
    }
}

impl Eq for Symbols {}

fn number(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^32 functions")
}

fn usize_range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}
