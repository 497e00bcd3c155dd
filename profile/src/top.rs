//! What leads a profile: functions by what they did themselves and by what was done below them.

use crate::named::{Prefix, Tree};
use crate::{Frame, Profile, Symbols};
use layout::Function as AllocationFunction;
use std::borrow::Cow;
use std::cmp::Reverse;

/// What one function accounts for in one column of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Values of the stacks that end in it.
    pub self_value: i64,
    /// Values of the stacks that it occurs in, however often.
    pub total: i64,
}

/// Which function a stack is said to end in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// The leaf as recorded; of every allocation that is the allocation function itself.
    Recorded,
    /// Not an allocation function, but who called it.
    Caller,
}

/// Every function of a profile, the one with the largest value of its own first.
pub fn functions(profile: &Profile, symbols: &Symbols, column: usize, leaf: Leaf) -> Vec<Function> {
    let tree = Tree::new(profile, symbols, Prefix::NONE, |name| Cow::Borrowed(name));
    of_tree(&tree, profile, column, leaf)
}

pub(crate) fn of_tree(tree: &Tree<'_>, profile: &Profile, column: usize, leaf: Leaf) -> Vec<Function> {
    let own = tree.own_values(profile, column);
    let totals = tree.totals(&own);
    let mut functions: Vec<Function> =
        tree.names().iter().map(|name| Function { name: name.to_string(), self_value: 0, total: 0 }).collect();
    for (sample, node) in profile.samples.iter().zip(tree.of_samples()) {
        let caller = leaf == Leaf::Caller && profile.stacks.frame(sample.stack).is_some_and(is_allocation_function);
        let (leaf, parent) = (tree.name_id(node), tree.name_id(tree.parent(node)));
        let name = if caller && parent != 0 { parent } else { leaf };
        let sum = &mut functions[name as usize].self_value;
        *sum = sum.saturating_add(sample.values.get(column).copied().unwrap_or(0));
    }
    // A function that occurs twice in a stack counts once: at its occurrence next to the root.
    let mut on_path = vec![0_u32; functions.len()];
    let mut path: Vec<u32> = Vec::new();
    for (node, depth) in tree.depth_first() {
        path.drain(depth - 1..).for_each(|name| on_path[name as usize] -= 1);
        let name = tree.name_id(node);
        if on_path[name as usize] == 0 {
            let sum = &mut functions[name as usize].total;
            *sum = sum.saturating_add(totals[node as usize]);
        }
        on_path[name as usize] += 1;
        path.push(name);
    }
    functions.retain(|f| f.self_value != 0 || f.total != 0);
    functions.sort_by(|a, b| {
        let key = |f: &Function| (Reverse(f.self_value), Reverse(f.total));
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    functions
}

pub(crate) fn is_allocation_function(frame: &Frame) -> bool {
    matches!(frame, Frame::Named(name) if AllocationFunction::ALL.iter().any(|f| f.name() == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Labels, Sample, SampleType};

    fn profile(stacks: &[(&[&'static str], i64)]) -> Profile {
        let mut profile = Profile::new(vec![SampleType::new("alloc_space", "bytes")]);
        for (frames, value) in stacks {
            let stack = profile.stacks.intern(frames.iter().map(|name| Frame::named(name)));
            profile.samples.push(Sample { stack, thread: None, labels: Labels::new(), values: crate::values![*value] });
        }
        profile
    }

    fn rows(profile: &Profile, leaf: Leaf) -> Vec<(String, i64, i64)> {
        let functions = functions(profile, &Symbols::new(), 0, leaf);
        functions.into_iter().map(|f| (f.name, f.self_value, f.total)).collect()
    }

    #[test]
    fn a_recursive_function_counts_once_a_stack() {
        let profile = profile(&[(&["main", "f", "g", "f"], 5), (&["main", "f"], 2), (&["main", "g"], 1)]);
        let expected = [("f", 7, 7), ("g", 1, 6), ("main", 0, 8)].map(|(n, s, t)| (n.to_owned(), s, t));
        assert_eq!(rows(&profile, Leaf::Recorded), expected);
    }

    #[test]
    fn allocations_can_be_told_by_who_called_malloc() {
        let profile = profile(&[(&["main", "f", "malloc"], 5), (&["main", "calloc"], 2), (&["free"], 1)]);
        let rows = rows(&profile, Leaf::Caller);
        let expected = [("f", 5, 5), ("main", 2, 7), ("free", 1, 1), ("malloc", 0, 5), ("calloc", 0, 2)];
        assert_eq!(rows, expected.map(|(n, s, t)| (n.to_owned(), s, t)));
    }
}
