use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::Rule;
use crate::cfi::{Cie, Compile, Entry, Executor, Fde, RowOf, SectionKind, Source};

/// The descriptions of functions (FDEs) in a section, and what groups of them share (CIEs).
pub(super) struct Functions<A: Compile, S> {
    kind: SectionKind,
    source: S,
    /// Address of the section.
    section: u64,
    /// The address that those of functions are counted from.
    base: u64,
    cies: BTreeMap<u64, Option<Group<A>>>,
    /// The one that was asked for last: neighbours share it.
    last: Option<(u64, Group<A>)>,
    executor: Executor<RowOf<A>>,
}

/// A CIE with the row that its functions begin with; `None` if that is malformed.
struct Group<A> {
    cie: Cie,
    initial: Option<RowOf<A>>,
}

impl<A> Clone for Group<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Group<A> {}

/// The addresses that an FDE describes, in bytes from the base.
pub(super) struct Function {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) kind: SectionKind,
    pub(super) signal: bool,
    /// Address of the FDE.
    at: u64,
}

impl Function {
    pub(super) fn key(&self) -> (u32, u32) {
        (self.start, self.end)
    }
}

impl<A: Compile, S: Source> Functions<A, S> {
    pub(super) fn new(kind: SectionKind, source: S, section: u64, base: u64) -> Self {
        Self { kind, source, section, base, cies: BTreeMap::new(), last: None, executor: Executor::default() }
    }

    /// All functions that are described in the first `bytes` of the section and lie within 4 GiB above the base, sorted. Those whose description is malformed are counted
    /// in `skipped`.
    pub(super) fn list(&mut self, bytes: u64, skipped: &mut usize) -> Vec<Function> {
        let mut functions = Vec::new();
        let mut at = self.section;
        let end = at.wrapping_add(bytes);
        while let Some(entry) = self.entry(at).filter(|entry| entry.next <= end && entry.next > at) {
            if entry.cie.is_some() {
                match self.function(entry, at) {
                    Some(function) => functions.push(function),
                    None => *skipped = skipped.wrapping_add(1),
                }
            }
            at = entry.next;
        }
        functions.sort_unstable_by_key(Function::key);
        functions
    }

    /// The functions with these FDEs, sorted.
    pub(super) fn at(&mut self, fdes: &[u64], skipped: &mut usize) -> Vec<Function> {
        let mut functions = Vec::with_capacity(fdes.len());
        for at in fdes {
            match self.entry(*at).and_then(|entry| self.function(entry, *at)) {
                Some(function) => functions.push(function),
                None => *skipped = skipped.wrapping_add(1),
            }
        }
        functions.sort_unstable_by_key(Function::key);
        functions
    }

    fn entry(&mut self, at: u64) -> Option<Entry> {
        Entry::read(&mut self.source, self.kind, self.section, at)
    }

    fn function(&mut self, entry: Entry, at: u64) -> Option<Function> {
        let (fde, group) = self.read(entry)?;
        let start = u32::try_from(fde.start.checked_sub(self.base)?).ok()?;
        let end = start.checked_add(u32::try_from(fde.length).ok()?)?;
        (start != end).then_some(Function { start, end, kind: self.kind, signal: group.cie.signal, at })
    }

    /// An FDE with what it shares; `None` if it or its CIE's head is malformed.
    fn read(&mut self, entry: Entry) -> Option<(Fde, Group<A>)> {
        let group = self.group(entry.cie?)?;
        Some((Fde::read(&mut self.source, entry, &group.cie)?, group))
    }

    fn group(&mut self, at: u64) -> Option<Group<A>> {
        if let Some((_, group)) = self.last.filter(|(last, _)| *last == at) {
            return Some(group);
        }
        if !self.cies.contains_key(&at) {
            let group = Cie::read(&mut self.source, self.kind, self.section, at).map(|cie| {
                let initial = cie.initial(&mut self.source, &mut self.executor);
                Group { cie, initial: initial.filter(|_| cie.return_address == A::RA) }
            });
            self.cies.insert(at, group);
        }
        let group = (*self.cies.get(&at)?)?;
        self.last = Some((at, group));
        Some(group)
    }

    /// Gives each rule with the address from which it holds, ascending.
    ///
    /// # Errors
    ///
    /// The address from which on the description is malformed.
    pub(super) fn execute(&mut self, function: &Function, mut emit: impl FnMut(u32, Rule)) -> Result<(), u32> {
        let read = self.entry(function.at).and_then(|entry| self.read(entry));
        let Some((fde, Group { cie, initial: Some(initial) })) = read else { return Err(function.start) };
        let base = self.base;
        let offset = |address: u64| u32::try_from(address.wrapping_sub(base)).unwrap_or(u32::MAX);
        fde.execute(&mut self.source, &cie, &mut self.executor, &initial, |address, row| {
            emit(offset(address), A::rule(&row.0, cie.signal));
        })
        .map_err(offset)
    }
}
