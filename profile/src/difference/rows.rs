//! Both sides' values by stack.

use super::estimate::Change;
use super::paths::{Entry, Name, Node};
use crate::StackId;
use rustc_hash::FxHashMap;

/// A stack by its names, with everything that both sides have there.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) node: Node,
    pub(super) site: Option<Name>,
    /// One for each compared column.
    pub(super) values: Vec<Change>,
    /// The base's own stacks that go by these names.
    pub(super) base: Vec<StackId>,
    /// The head's.
    pub(super) head: Vec<StackId>,
    /// Whether the base's stacks go by other names.
    pub(super) moved: bool,
}

impl Row {
    pub(super) fn is_in_base(&self) -> bool {
        !self.base.is_empty()
    }

    pub(super) fn is_in_head(&self) -> bool {
        !self.head.is_empty()
    }

    /// Whether one side's values are the other's.
    pub(super) fn same_values(&self, other: &Self) -> bool {
        self.values.iter().zip(&other.values).all(|(a, b)| a.base == b.head && a.head == b.base)
    }

    /// All its values, as a measure of how much there is.
    pub(super) fn weight(&self) -> u128 {
        self.values.iter().map(|c| u128::from(c.base.unsigned_abs()) + u128::from(c.head.unsigned_abs())).sum()
    }

    /// Takes the values of a stack of the base that is this one under other names.
    pub(super) fn take_over(&mut self, old: &Self) {
        self.values.iter_mut().zip(&old.values).for_each(|(sum, change)| sum.add(*change));
        self.base.extend(&old.base);
        self.moved = true;
    }
}

/// Every stack of both sides.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) all: Vec<Row>,
}

impl Rows {
    /// Of the entries of both sides, in the order in which they come.
    pub(super) fn new(base: Vec<Entry>, head: Vec<Entry>) -> Self {
        let mut rows = Self::default();
        let mut of_node: FxHashMap<Node, usize> = FxHashMap::default();
        let both = base.into_iter().map(|entry| (entry, true)).chain(head.into_iter().map(|entry| (entry, false)));
        for (entry, is_base) in both {
            let at = *of_node.entry(entry.node).or_insert(rows.all.len());
            if at == rows.all.len() {
                let values = vec![Change::default(); entry.values.len()];
                let (node, site) = (entry.node, entry.site);
                rows.all.push(Row { node, site, values, base: Vec::new(), head: Vec::new(), moved: false });
            }
            let Some(row) = rows.all.get_mut(at) else { continue };
            let values = entry.values.iter().zip(&entry.variances);
            row.values.iter_mut().zip(values).for_each(|(sum, (value, variance))| {
                let (base, head) = if is_base { (*value, 0) } else { (0, *value) };
                sum.add(Change { base, head, variance: *variance });
            });
            if is_base { row.base.push(entry.stack) } else { row.head.push(entry.stack) }
        }
        rows
    }
}
