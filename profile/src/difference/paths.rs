//! The stacks of both sides in one prefix tree of canonical names.

use super::canonical::canonical;
use super::estimate::Precision;
use crate::sites::{self, Level};
use crate::{Profile, SampleType, StackId, Stacks, Symbols, top};
use rustc_hash::FxHashMap;

/// A stack by its names; 0 is the empty one.
pub(super) type Node = u32;
/// A canonical name in [`Paths`].
pub(super) type Name = u32;

/// One of the two profiles that are compared, with the names of its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// What was measured.
    pub profile: &'a Profile,
    /// Names of its addresses.
    pub symbols: &'a Symbols,
}

/// Stacks by name.
#[derive(Debug)]
pub(super) struct Paths {
    names: Vec<String>,
    ids: FxHashMap<String, Name>,
    nodes: Vec<(Node, Name)>,
    children: FxHashMap<(Node, Name), Node>,
}

/// Everything that one side has at one of its own stacks.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stack: StackId,
    pub(super) node: Node,
    /// The function that the values are said to be of: who allocated, or the leaf.
    pub(super) site: Option<Name>,
    /// One for each compared column.
    pub(super) values: Vec<i64>,
    /// One for each compared column.
    pub(super) variances: Vec<f64>,
}

/// A level of a frame, as far as telling the site needs it.
struct Named {
    name: Name,
    is_program: bool,
    is_layer: bool,
}

impl Paths {
    pub(super) fn new() -> Self {
        Self { names: Vec::new(), ids: FxHashMap::default(), nodes: vec![(0, 0)], children: FxHashMap::default() }
    }

    pub(super) fn name(&self, name: Name) -> &str {
        self.names.get(name as usize).map_or("", String::as_str)
    }

    /// Number of different names.
    pub(super) fn names(&self) -> usize {
        self.names.len()
    }

    /// The names of a stack, leaf first.
    pub(super) fn leaf_first(&self, mut node: Node) -> impl Iterator<Item = Name> {
        std::iter::from_fn(move || {
            let (parent, name) = *self.nodes.get(node as usize).filter(|_| node != 0)?;
            node = parent;
            Some(name)
        })
    }

    fn intern(&mut self, name: &str) -> Name {
        let name = canonical(name);
        if let Some(id) = self.ids.get(&*name) {
            return *id;
        }
        let id = self.names.len() as Name;
        self.names.push(name.clone().into_owned());
        self.ids.insert(name.into_owned(), id);
        id
    }

    fn child(&mut self, parent: Node, name: Name) -> Node {
        let next = self.nodes.len() as Node;
        let node = *self.children.entry((parent, name)).or_insert(next);
        if node == next {
            self.nodes.push((parent, name));
        }
        node
    }

    /// Enters the stacks of a side that have values, in the order of the side's own stacks. `columns` are those of the side's profile that are compared.
    pub(super) fn enter(&mut self, side: Side<'_>, columns: &[usize]) -> Vec<Entry> {
        let profile = side.profile;
        let stacks = &profile.stacks;
        let of_frame: Vec<Vec<Named>> = stacks
            .frames()
            .iter()
            .map(|frame| {
                let layer = top::is_allocation_function(frame);
                let levels = sites::of_frame(profile, side.symbols, frame).into_iter();
                levels.map(|level| self.named(&level, layer)).collect()
            })
            .collect();
        let width = profile.sample_types.len();
        let mut sums = vec![0_i64; stacks.len() * width];
        let mut has_values = vec![false; stacks.len()];
        for sample in &profile.samples {
            let at = sample.stack.index();
            if let (Some(sums), Some(seen)) = (sums.get_mut(at * width..(at + 1) * width), has_values.get_mut(at)) {
                sums.iter_mut().zip(&sample.values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
                *seen = true;
            }
        }
        let allocates = profile.sample_types.iter().any(SampleType::is_memory);
        let precisions: Vec<Precision> = columns.iter().map(|column| Precision::of(profile, *column)).collect();
        let mut nodes: Vec<Node> = Vec::with_capacity(stacks.len());
        let mut entries = Vec::new();
        for stack in (0..stacks.len() as u32).map(StackId) {
            let parent = nodes.get(stacks.parent(stack).index()).copied().unwrap_or(0);
            let levels = stacks.leaf_id(stack).and_then(|id| of_frame.get(id.index()));
            let node = levels.into_iter().flatten().rev().fold(parent, |node, level| self.child(node, level.name));
            nodes.push(node);
            let values = &sums[stack.index() * width..(stack.index() + 1) * width];
            if !has_values[stack.index()] || values.iter().all(|value| *value == 0) {
                continue;
            }
            let of = |column: &usize| values.get(*column).copied().unwrap_or(0);
            entries.push(Entry {
                stack,
                node,
                site: site(stacks, &of_frame, stack, allocates),
                values: columns.iter().map(of).collect(),
                variances: columns.iter().zip(&precisions).map(|(column, p)| p.variance(values, *column)).collect(),
            });
        }
        entries
    }

    fn named(&mut self, level: &Level, is_allocation_function: bool) -> Named {
        Named {
            name: self.intern(&level.name),
            is_program: level.is_program && !is_allocation_function,
            is_layer: is_allocation_function || sites::is_named_after_allocation(&level.name),
        }
    }
}

/// As [`sites::site`], without texts: of a stack that does not allocate the leaf.
fn site(stacks: &Stacks, of_frame: &[Vec<Named>], stack: StackId, allocates: bool) -> Option<Name> {
    let mut levels = stacks.frame_ids_leaf_first(stack).filter_map(|id| of_frame.get(id.index())).flatten();
    if !allocates {
        return levels.next().map(|level| level.name);
    }
    let mut next_best: Option<&Named> = None;
    for level in levels {
        if level.is_program && !level.is_layer {
            return Some(level.name);
        }
        if next_best.is_none_or(|best| level.is_program && !best.is_program) {
            next_best = Some(level);
        }
    }
    next_best.map(|level| level.name)
}
