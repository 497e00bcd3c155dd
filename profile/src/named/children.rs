//! Which node is whose child. Most families are small and are searched in turn, which touches less memory than a table of all nodes.

use super::NodeId;
use rustc_hash::FxHashMap;

/// A family with more members than this is looked up by name.
const SMALL: u32 = 8;

/// A node's place in its family; 0 is no node, since the root is nobody's child.
#[derive(Clone, Copy, Default)]
struct Kin {
    /// The child that came last.
    last_child: NodeId,
    children: u32,
    /// The sibling that came before.
    sibling: NodeId,
    name: u32,
}

/// The children of every node, by name.
pub(super) struct Children {
    of: Vec<Kin>,
    large: FxHashMap<(NodeId, u32), NodeId>,
}

impl Children {
    /// Of the root alone, with room for so many nodes.
    pub(super) fn new(nodes: usize) -> Self {
        let mut of = Vec::with_capacity(nodes + 1);
        of.push(Kin::default());
        Self { of, large: FxHashMap::default() }
    }

    /// The child of this name; `None` if there was none: then the next node is.
    pub(super) fn find_or_add(&mut self, parent: NodeId, name: u32) -> Option<NodeId> {
        let family = self.of[parent as usize];
        if family.children > SMALL {
            if let Some(child) = self.large.get(&(parent, name)) {
                return Some(*child);
            }
        } else if let Some(child) = self.siblings(family.last_child).find(|child| self.of[*child as usize].name == name)
        {
            return Some(child);
        }
        let child = self.of.len() as NodeId;
        self.of.push(Kin { sibling: family.last_child, name, ..Kin::default() });
        let kin = &mut self.of[parent as usize];
        (kin.last_child, kin.children) = (child, family.children + 1);
        if family.children == SMALL {
            let all: Vec<NodeId> = self.siblings(child).collect();
            self.large.extend(all.into_iter().map(|child| ((parent, self.of[child as usize].name), child)));
        } else if family.children > SMALL {
            self.large.insert((parent, name), child);
        }
        None
    }

    fn siblings(&self, last: NodeId) -> impl Iterator<Item = NodeId> {
        let and_before = |node: NodeId| Some(node).filter(|node| *node != 0);
        std::iter::successors(and_before(last), move |node| and_before(self.of[*node as usize].sibling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_child_is_found_in_small_and_large_families() {
        let mut children = Children::new(0);
        let mut expected = FxHashMap::default();
        for round in 0..3 {
            for (parent, name) in (0..40).map(|i| (i % 3, i * 7 % 31)) {
                let next = expected.len() as NodeId + 1;
                let known = *expected.entry((parent, name)).or_insert(next);
                let found = children.find_or_add(parent, name);
                assert_eq!(found.unwrap_or(next), known, "{round}: {parent} {name}");
                assert_eq!(found.is_none(), known == next);
            }
        }
        assert!(expected.keys().filter(|(parent, _)| *parent == 0).count() > SMALL as usize + 2);
    }
}
