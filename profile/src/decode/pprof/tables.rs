//! What samples refer to by numbers: strings, functions, locations. A large profile has a hundred thousand of each, so they lie in a few vectors.

use super::not_proto;
use crate::decode::DecodeError;
use crate::decode::wire::{Field, field};
use rustc_hash::FxHashMap;
use std::ops::Range;

// Field numbers of a profile.
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING: u32 = 6;
/// Field number of a location.
const LINE: u32 = 4;

/// A location, without its lines.
#[derive(Default)]
pub(super) struct Location {
    pub(super) id: u64,
    pub(super) mapping: u64,
    pub(super) address: u64,
    lines: Range<u32>,
}

/// A function at a location, and the line there.
#[derive(Default)]
pub(super) struct Line {
    pub(super) function: u64,
    pub(super) line: u64,
}

/// A function; the texts by their numbers.
#[derive(Clone, Copy, Default)]
pub(super) struct Function {
    pub(super) id: u64,
    pub(super) name: u64,
    pub(super) system_name: u64,
    pub(super) file: u64,
}

/// The tables of a file.
#[derive(Default)]
pub(super) struct Tables {
    /// All strings, one after the other, and where each ends.
    text: String,
    ends: Vec<usize>,
    pub(super) functions: Vec<Function>,
    pub(super) locations: Vec<Location>,
    lines: Vec<Line>,
}

impl Tables {
    /// Takes a field of the profile. False if it is none of these.
    pub(super) fn take(&mut self, number: u32, found: &Field<'_>) -> Result<bool, DecodeError> {
        match (number, found) {
            (LOCATION, Field::Bytes(location)) => self.location(location)?,
            (FUNCTION, Field::Bytes(function)) => self.function(function)?,
            (STRING, Field::Bytes(string)) => {
                // Go writes names and labels as they come, whatever their bytes are. To look whether they are text is faster alone.
                match str::from_utf8(string) {
                    Ok(string) => self.text.push_str(string),
                    Err(_) => self.text.push_str(&String::from_utf8_lossy(string)),
                }
                self.ends.push(self.text.len());
            }
            (LOCATION | FUNCTION | STRING, _) => return Err(of_another_type()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn location(&mut self, rest: &[u8]) -> Result<(), DecodeError> {
        let first = self.lines.len() as u32;
        let mut location = Location::default();
        let lines = &mut self.lines;
        let mut take_line = |rest: &[u8]| {
            let mut line = Line::default();
            numbers(rest, [(1, &mut line.function), (2, &mut line.line)], |_, _| Ok(false))?;
            lines.push(line);
            Ok(true)
        };
        let of_location = [(1, &mut location.id), (2, &mut location.mapping), (3, &mut location.address)];
        numbers(rest, of_location, |tag, field| match (tag, field) {
            (LINE, Field::Bytes(line)) => take_line(line),
            (LINE, _) => Err(of_another_type()),
            _ => Ok(false),
        })?;
        location.lines = first..self.lines.len() as u32;
        self.locations.push(location);
        Ok(())
    }

    fn function(&mut self, rest: &[u8]) -> Result<(), DecodeError> {
        let mut function = Function::default();
        let Function { id, name, system_name, file } = &mut function;
        numbers(rest, [(1, id), (2, name), (3, system_name), (4, file)], |_, _| Ok(false))?;
        self.functions.push(function);
        Ok(())
    }

    /// The functions at a location, the innermost inlined one first.
    pub(super) fn lines(&self, location: &Location) -> &[Line] {
        &self.lines[location.lines.start as usize..location.lines.end as usize]
    }

    pub(super) fn all_strings(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.text[*start..*end])
    }

    /// Number of strings.
    pub(super) fn strings(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn string(&self, index: u64) -> Result<&str, DecodeError> {
        let at = usize::try_from(index).ok().filter(|at| *at < self.ends.len());
        let at = at.ok_or_else(|| DecodeError::corrupt(format!("string {} does not exist", index as i64)))?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        Ok(&self.text[start..self.ends[at]])
    }
}

/// Reads the fields of a message that are numbers, by their tags; `other` takes those that are not, and says whether it did.
pub(super) fn numbers<const N: usize>(
    mut rest: &[u8],
    mut known: [(u32, &mut u64); N],
    mut other: impl FnMut(u32, &Field<'_>) -> Result<bool, DecodeError>,
) -> Result<(), DecodeError> {
    while !rest.is_empty() {
        let (tag, found) = field(&mut rest).map_err(not_proto)?;
        if other(tag, &found)? {
            continue;
        }
        let Some((_, place)) = known.iter_mut().find(|(of, _)| *of == tag) else { continue };
        let Field::Number(number) = found else { return Err(of_another_type()) };
        **place = number;
    }
    Ok(())
}

pub(super) fn of_another_type() -> DecodeError {
    DecodeError::corrupt("not a pprof profile: a field is of another type")
}

/// Things by their ids. Most writers number them from 1 on, and what has such a number is looked up without a search.
pub(super) struct ById<T> {
    dense: Vec<Option<T>>,
    sparse: FxHashMap<u64, T>,
}

impl<T> ById<T> {
    pub(super) fn new(count: usize) -> Self {
        Self { dense: (0..=count).map(|_| None).collect(), sparse: FxHashMap::default() }
    }

    /// Enters one; an error if its id is zero, or another has it.
    pub(super) fn insert(&mut self, what: &str, id: u64, of: T) -> Result<(), DecodeError> {
        let before = match usize::try_from(id).ok().and_then(|id| self.dense.get_mut(id)) {
            Some(place) => place.replace(of),
            None => self.sparse.insert(id, of),
        };
        if id == 0 || before.is_some() {
            return Err(DecodeError::corrupt(format!("{what} id {id} is zero or not unique")));
        }
        Ok(())
    }

    pub(super) fn get(&self, what: &str, id: u64) -> Result<&T, DecodeError> {
        let found = match usize::try_from(id).ok().and_then(|id| self.dense.get(id)) {
            Some(place) => place.as_ref(),
            None => self.sparse.get(&id),
        };
        found.ok_or_else(|| DecodeError::corrupt(format!("{what} {id} does not exist")))
    }
}
