//! What stands in a file once, with the numbers by which all else refers to it.

use crate::proto::Function;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::borrow::Cow;

/// The texts of a profile, each once, the empty one first. Most are the model's, which stay where they are.
pub(super) struct Strings<'a> {
    pub(super) all: Vec<Cow<'a, str>>,
    ids: FxHashMap<&'a str, i64>,
    /// Those that were made for this file.
    made: FxHashMap<String, i64>,
}

impl<'a> Strings<'a> {
    /// With room for so many.
    pub(super) fn with_room(count: usize) -> Self {
        let ids = FxHashMap::with_capacity_and_hasher(count, FxBuildHasher);
        let mut strings = Self { all: Vec::with_capacity(count), ids, made: FxHashMap::default() };
        strings.id("");
        strings
    }

    pub(super) fn id(&mut self, text: &'a str) -> i64 {
        let next = self.all.len() as i64;
        let id = *self.ids.entry(text).or_insert(next);
        if id == next {
            self.all.push(Cow::Borrowed(text));
        }
        id
    }

    pub(super) fn id_of_made(&mut self, text: String) -> i64 {
        if let Some(known) = self.ids.get(&*text).or_else(|| self.made.get(&text)) {
            return *known;
        }
        let id = self.all.len() as i64;
        self.all.push(Cow::Owned(text.clone()));
        self.made.insert(text, id);
        id
    }
}

/// The functions of a profile, each once.
#[derive(Default)]
pub(super) struct Functions {
    pub(super) all: Vec<Function>,
    /// The first one with each name, 0 for none: nearly all there are.
    of_name: Vec<u64>,
    /// Those that have their name in common with others, by name, system name and file.
    others: FxHashMap<(i64, i64, i64), u64>,
}

impl Functions {
    pub(super) fn id(&mut self, name: i64, system_name: i64, filename: i64) -> u64 {
        let next = self.all.len() as u64 + 1;
        let index = name as usize;
        if self.of_name.len() <= index {
            self.of_name.resize(index + 1, 0);
        }
        let id = match self.of_name[index] {
            0 => {
                self.of_name[index] = next;
                next
            }
            first => {
                let function = &self.all[first as usize - 1];
                if (function.system_name, function.filename) == (system_name, filename) {
                    return first;
                }
                *self.others.entry((name, system_name, filename)).or_insert(next)
            }
        };
        if id == next {
            self.all.push(Function { id, name, system_name, filename, start_line: 0 });
        }
        id
    }
}
