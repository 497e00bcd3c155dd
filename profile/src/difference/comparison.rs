//! Two profiles, compared by the names of their functions.

use super::estimate::{Change, Precision, Status};
use super::paths::{Name, Paths, Side};
use super::rows::{Row, Rows};
use super::{blame, moves};
use crate::SampleType;
use crate::sites::{self, Level};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// A column that both profiles have.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// What it holds.
    pub sample_type: SampleType,
    /// Its sum.
    pub total: Change,
    /// Whether every event was counted, on both sides.
    pub is_exact: bool,
    base: usize,
    head: usize,
}

/// What became of one stack, in one column.
#[derive(Clone, Debug, PartialEq)]
pub struct StackChange {
    /// Its levels, leaf first: those of the head, or of the base where the stack shrank or is gone; on the lines that the change is on.
    pub levels: Vec<Level>,
    /// The level that the change is said to be of: who allocated, past the layers of allocators; of other columns the leaf.
    pub site: Option<Level>,
    /// Its values.
    pub change: Change,
    /// What became of it.
    pub status: Status,
    /// Whether it goes by other names in the base: a function was renamed, inlined away or put in between.
    pub moved: bool,
}

/// What became of one function, in one column.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionChange {
    /// Its name, without what changes from build to build.
    pub name: String,
    /// Its name in the base, if that is another.
    pub was: Option<String>,
    /// Values of the stacks that are said to be of it: that it allocated in, or, in other columns, that end in it.
    pub own: Change,
    /// Values of the stacks that it occurs in, however often.
    pub total: Change,
}

/// How many stacks became what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the head only.
    pub new: usize,
    /// More in the head.
    pub grown: usize,
    /// Less in the head.
    pub shrunk: usize,
    /// In the base only.
    pub gone: usize,
    /// The same.
    pub same: usize,
    /// Different by no more than chance.
    pub noise: usize,
    /// Of all these, those that go by other names in the base.
    pub moved: usize,
}

/// Two profiles, compared. Equal stacks are those of equal names: neither addresses nor lines, threads nor labels count, nor do the hashes that compilers put into names.
#[derive(Debug)]
pub struct Comparison<'a> {
    base: Side<'a>,
    head: Side<'a>,
    columns: Vec<Column>,
    pub(super) paths: Paths,
    rows: Rows,
    /// Old names by new names.
    renamed: FxHashMap<Name, Name>,
}

impl<'a> Comparison<'a> {
    /// Compares the columns that both have.
    pub fn new(base: Side<'a>, head: Side<'a>) -> Self {
        let (old, new) = (base.profile, head.profile);
        let both = old.sample_types.iter().enumerate();
        let mut columns: Vec<Column> = both
            .filter_map(|(base, sample_type)| {
                let head = new.sample_types.iter().position(|t| t == sample_type)?;
                let is_exact =
                    Precision::of(old, base) == Precision::Exact && Precision::of(new, head) == Precision::Exact;
                Some(Column { sample_type: sample_type.clone(), total: Change::default(), is_exact, base, head })
            })
            .collect();
        let mut paths = Paths::new();
        let of_base = paths.enter(base, &columns.iter().map(|c| c.base).collect::<Vec<_>>());
        let of_head = paths.enter(head, &columns.iter().map(|c| c.head).collect::<Vec<_>>());
        let mut rows = Rows::new(of_base, of_head);
        for (i, column) in columns.iter_mut().enumerate() {
            let variance = rows.all.iter().filter_map(|row| row.values.get(i)).map(|change| change.variance).sum();
            column.total = Change { base: old.total(column.base), head: new.total(column.head), variance };
        }
        let renamed = moves::pair(&mut rows, &paths);
        Self { base, head, columns, paths, rows, renamed }
    }

    /// Base and head.
    pub fn sides(&self) -> (Side<'a>, Side<'a>) {
        (self.base, self.head)
    }

    /// The columns that both profiles have, in the base's order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The number of the column with this kind, as the other functions take it.
    pub fn column(&self, kind: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.sample_type.kind == kind)
    }

    /// The number of the column that the head shows first; 0 if the base does not have it.
    pub fn default_column(&self) -> usize {
        let head = self.head.profile.default_column();
        self.columns.iter().position(|column| column.head == head).unwrap_or(0)
    }

    /// How many stacks became what in a column.
    pub fn counts(&self, column: usize) -> Counts {
        let mut counts = Counts::default();
        for row in &self.rows.all {
            let change = row.values.get(column).copied().unwrap_or_default();
            if (change.base, change.head) == (0, 0) {
                continue;
            }
            *match change.status_of_one() {
                Status::New => &mut counts.new,
                Status::Grown => &mut counts.grown,
                Status::Shrunk => &mut counts.shrunk,
                Status::Gone => &mut counts.gone,
                Status::Same => &mut counts.same,
                Status::Noise => &mut counts.noise,
            } += 1;
            counts.moved += usize::from(row.moved);
        }
        counts
    }

    /// The stacks that changed beyond chance, those that changed most first, at most so many.
    pub fn stacks(&self, column: usize, most: usize) -> Vec<StackChange> {
        let Some(of) = self.columns.get(column) else { return Vec::new() };
        let news = |row: &&Row| {
            let change = row.values.get(column).copied().unwrap_or_default();
            !matches!(change.status_of_one(), Status::Same | Status::Noise)
        };
        let delta = |row: &Row| row.values.get(column).map_or(0, |change| change.delta());
        let mut changed: Vec<&Row> = self.rows.all.iter().filter(news).collect();
        changed.sort_by_cached_key(|row| {
            let names: Vec<&str> = self.paths.leaf_first(row.node).map(|name| self.paths.name(name)).collect();
            (Reverse(delta(row).unsigned_abs()), delta(row) < 0, names)
        });
        changed.truncate(most);
        // Two places with as many objects rarely have as many bytes. Which allocations are temporary depends on what comes after them.
        let of_kind = |c: &Column| c.sample_type.kind.split_once('_').map(|(what, _)| what.to_owned());
        let alike = self.columns.iter().filter(|c| **c != *of && of_kind(c).is_some() && of_kind(c) == of_kind(of));
        let columns: Vec<(usize, usize)> = std::iter::once(of).chain(alike).map(|c| (c.base, c.head)).collect();
        let allocates = of.sample_type.is_memory();
        let stack = |row: &&Row| {
            let change = row.values.get(column).copied().unwrap_or_default();
            let levels = blame::levels((self.base, &row.base), (self.head, &row.head), &columns);
            let site = match allocates {
                // The allocation function is no level that a reader looks for.
                true => sites::site(levels.iter().filter(|level| !is_allocation_function(level)).cloned()),
                false => levels.first().cloned(),
            };
            StackChange { levels, site, change, status: change.status_of_one(), moved: row.moved }
        };
        changed.iter().map(stack).collect()
    }

    /// The functions that changed beyond chance, by what they did themselves, then by what was done below them; at most so many.
    pub fn functions(&self, column: usize, most: usize) -> Vec<FunctionChange> {
        let (mut own, mut total) =
            (vec![Change::default(); self.paths.names()], vec![Change::default(); self.paths.names()]);
        let add = |to: &mut [Change], name: Name, change: Change| {
            if let Some(sum) = to.get_mut(name as usize) {
                sum.add(change);
            }
        };
        let by_old: FxHashMap<Name, Name> = self.renamed.iter().map(|(new, old)| (*old, *new)).collect();
        let now = |name: Name| by_old.get(&name).copied().unwrap_or(name);
        let mut seen = vec![u32::MAX; self.paths.names()];
        for (number, row) in self.rows.all.iter().enumerate() {
            let change = row.values.get(column).copied().unwrap_or_default();
            if let Some(site) = row.site {
                add(&mut own, now(site), change);
            }
            for name in self.paths.leaf_first(row.node).map(now) {
                match seen.get_mut(name as usize) {
                    Some(last) if *last != number as u32 => *last = number as u32,
                    _ => continue,
                }
                add(&mut total, name, change);
            }
        }
        let is_news = |change: &Change| !matches!(change.status_of_one(), Status::Same | Status::Noise);
        let mut functions: Vec<FunctionChange> = own
            .into_iter()
            .zip(total)
            .enumerate()
            .filter(|(_, (own, total))| is_news(own) || is_news(total))
            .map(|(name, (own, total))| FunctionChange {
                name: self.paths.name(name as Name).to_owned(),
                was: self.renamed.get(&(name as Name)).map(|old| self.paths.name(*old).to_owned()),
                own,
                total,
            })
            .collect();
        functions.sort_by(|a, b| {
            let key =
                |f: &FunctionChange| (Reverse(f.own.delta().unsigned_abs()), Reverse(f.total.delta().unsigned_abs()));
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        functions.truncate(most);
        functions
    }

    /// Functions that go by another name now: old name and new name, in the order of the new ones.
    pub fn renamed(&self) -> Vec<(&str, &str)> {
        let mut pairs: Vec<(&str, &str)> =
            self.renamed.iter().map(|(new, old)| (self.paths.name(*old), self.paths.name(*new))).collect();
        pairs.sort_by_key(|(old, new)| (*new, *old));
        pairs
    }

    /// Every stack of both sides with its values in a column: its names, root first.
    pub(super) fn every_stack(&self, column: usize) -> impl Iterator<Item = (Vec<&str>, Change)> {
        self.rows.all.iter().map(move |row| {
            let mut names: Vec<&str> = self.paths.leaf_first(row.node).map(|name| self.paths.name(name)).collect();
            names.reverse();
            (names, row.values.get(column).copied().unwrap_or_default())
        })
    }
}

fn is_allocation_function(level: &Level) -> bool {
    level.file.is_none() && crate::top::is_allocation_function(&crate::Frame::Named(level.name.clone().into()))
}
