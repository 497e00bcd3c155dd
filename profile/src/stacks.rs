//! Interned stacks: a prefix tree of frames, so that a stack is one number.

use crate::Frame;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// A stack in [`Stacks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

impl StackId {
    /// Position among the stacks, root first: every stack comes after its parent.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A frame in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

impl FrameId {
    /// Position in [`Stacks::frames`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    parent: StackId,
    frame: FrameId,
}

/// Stacks as lists of frames, each root-most first: what a file has before it is known which of them begin alike.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// All frames, one list after the other.
    pub(crate) frames: Vec<FrameId>,
    /// Where each list ends.
    pub(crate) ends: Vec<usize>,
}

impl Lists {
    fn get(&self, index: usize) -> &[FrameId] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.frames[start..self.ends[index]]
    }
}

/// Every stack of a profile. Equal frames and equal stacks have equal ids.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// Stack `i + 1`; the empty stack is not stored.
    nodes: Vec<Node>,
    frames: Vec<Frame>,
    /// What of the two is already known by its contents: whoever adds nothing needs none of it.
    children: Children,
    frame_ids: FxHashMap<Frame, FrameId>,
}

/// The stacks with one frame more than another, for each. Most have one or two, which are looked at in turn: a table of all would be in nobody's cache.
#[derive(Clone, Debug, Default)]
struct Children {
    /// Of the empty stack and then of each node.
    links: Vec<Link>,
    /// Those of a stack that has more than [`LINKED`], the first ones aside.
    others: FxHashMap<(StackId, FrameId), StackId>,
}

/// Two stacks, [`Stacks::ROOT`] for none.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    first_child: StackId,
    next_sibling: StackId,
}

/// Children that a stack has in a row.
const LINKED: usize = 4;

impl Children {
    /// The child of `parent` by that frame; `next`, and true, if there is none: then that is one from now on.
    fn find_or_add(&mut self, nodes: &[Node], parent: StackId, frame: FrameId, next: StackId) -> (StackId, bool) {
        let mut child = self.links[parent.index()].first_child;
        let mut last = None;
        for _ in 0..LINKED {
            if child == Stacks::ROOT {
                match last {
                    None => self.links[parent.index()].first_child = next,
                    Some(StackId(last)) => self.links[last as usize].next_sibling = next,
                }
                self.links.push(Link::default());
                return (next, true);
            }
            if nodes[child.index() - 1].frame == frame {
                return (child, false);
            }
            last = Some(child);
            child = self.links[child.index()].next_sibling;
        }
        match self.others.entry((parent, frame)) {
            Entry::Occupied(other) => (*other.get(), false),
            Entry::Vacant(place) => {
                place.insert(next);
                self.links.push(Link::default());
                (next, true)
            }
        }
    }

    /// Makes the children of nodes that were added without them known.
    fn know(&mut self, nodes: &[Node]) {
        if self.links.is_empty() {
            self.links.push(Link::default());
        }
        for at in self.links.len() - 1..nodes.len() {
            let Node { parent, frame } = nodes[at];
            if !self.find_or_add(nodes, parent, frame, StackId(at as u32 + 1)).1 {
                // One that is there twice: the first is the one that is found.
                self.links.push(Link::default());
            }
        }
    }
}

impl Stacks {
    /// The empty stack.
    pub const ROOT: StackId = StackId(0);

    /// No stack but the empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// The id of a frame.
    pub fn frame_id(&mut self, frame: Frame) -> FrameId {
        self.know_frames();
        match self.frame_ids.entry(frame) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let id = FrameId(u32::try_from(self.frames.len()).expect("fewer than 2^32 frames"));
                self.frames.push(place.key().clone());
                *place.insert(id)
            }
        }
    }

    /// The stack that has `frame` as its leaf and `parent` below it.
    ///
    /// # Panics
    /// If `parent` or `frame` is not of these stacks.
    pub fn push(&mut self, parent: StackId, frame: FrameId) -> StackId {
        assert!(parent.index() <= self.nodes.len() && frame.index() < self.frames.len(), "ids of other stacks");
        self.children.know(&self.nodes);
        let next = StackId(u32::try_from(self.nodes.len() + 1).expect("fewer than 2^32 stacks"));
        let (id, is_new) = self.children.find_or_add(&self.nodes, parent, frame, next);
        if is_new {
            self.nodes.push(Node { parent, frame });
        }
        id
    }

    /// The stack with these frames, the root-most first.
    pub fn intern<I: IntoIterator<Item = Frame>>(&mut self, root_first: I) -> StackId {
        root_first.into_iter().fold(Self::ROOT, |stack, frame| {
            let frame = self.frame_id(frame);
            self.push(stack, frame)
        })
    }

    /// The stack without its leaf; the empty stack is its own parent.
    pub fn parent(&self, stack: StackId) -> StackId {
        self.node(stack).map_or(Self::ROOT, |node| node.parent)
    }

    /// The leaf of a stack; `None` for the empty stack.
    pub fn frame(&self, stack: StackId) -> Option<&Frame> {
        self.leaf_id(stack).map(|id| &self.frames[id.index()])
    }

    /// The leaf of a stack as an id; `None` for the empty stack.
    pub fn leaf_id(&self, stack: StackId) -> Option<FrameId> {
        self.node(stack).map(|node| node.frame)
    }

    /// The frames of a stack, leaf first.
    pub fn frames_leaf_first(&self, stack: StackId) -> impl Iterator<Item = &Frame> {
        self.frame_ids_leaf_first(stack).map(|id| &self.frames[id.index()])
    }

    /// The frames of a stack as ids, leaf first.
    pub fn frame_ids_leaf_first(&self, mut stack: StackId) -> impl Iterator<Item = FrameId> {
        std::iter::from_fn(move || {
            let node = self.node(stack)?;
            stack = node.parent;
            Some(node.frame)
        })
    }

    /// Every frame, by its id.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Number of stacks, the empty one included. The ids are `0..len()`, each after its parent's.
    pub fn len(&self) -> usize {
        self.nodes.len() + 1
    }

    /// Whether there is no stack but the empty one.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Enters many stacks where there is none yet, and returns the id of each.
    ///
    /// Sorted, a stack shares with those before it what it shares with the last: nothing is looked up, and the tree comes to lie in the order in which it
    /// is walked.
    ///
    /// # Panics
    /// If there are stacks already, or a frame is not of these.
    pub(crate) fn fill(&mut self, lists: &Lists) -> Vec<StackId> {
        assert!(self.nodes.is_empty(), "stacks come together");
        let mut order: Vec<u32> = (0..lists.ends.len() as u32).collect();
        order.sort_unstable_by_key(|index| lists.get(*index as usize));
        let mut ids = vec![Self::ROOT; order.len()];
        let (mut path, mut last): (Vec<StackId>, &[FrameId]) = (Vec::new(), &[]);
        for index in order {
            let list = lists.get(index as usize);
            path.truncate(list.iter().zip(last).take_while(|(a, b)| a == b).count());
            for frame in &list[path.len()..] {
                assert!(frame.index() < self.frames.len(), "a frame of other stacks");
                self.nodes.push(Node { parent: path.last().copied().unwrap_or(Self::ROOT), frame: *frame });
                path.push(StackId(u32::try_from(self.nodes.len()).expect("fewer than 2^32 stacks")));
            }
            ids[index as usize] = path.last().copied().unwrap_or(Self::ROOT);
            last = list;
        }
        ids
    }

    /// A copy for whoever adds little: by their contents its stacks are known when they are asked for.
    pub(crate) fn contents(&self) -> Self {
        Self { nodes: self.nodes.clone(), frames: self.frames.clone(), ..Self::default() }
    }

    /// As [`Stacks::push`], at once if the stack is the one that is guessed.
    pub(crate) fn push_guessed(&mut self, parent: StackId, frame: FrameId, guess: StackId) -> StackId {
        if self.node(guess) == Some(Node { parent, frame }) { guess } else { self.push(parent, frame) }
    }

    /// The stacks that are chosen, in their order, and all frames of theirs; with the new ids by the old ones, those of the others the empty stack's.
    ///
    /// With a stack, its parent must be chosen.
    pub(crate) fn chosen(self, is_chosen: &[bool]) -> (Self, Vec<StackId>) {
        let mut frame_ids: Vec<Option<FrameId>> = vec![None; self.frames.len()];
        let mut chosen = Self::default();
        let mut ids = vec![Self::ROOT; self.len()];
        for (old, Node { parent, frame }) in (1..).zip(self.nodes) {
            if is_chosen[old] {
                let frame = *frame_ids[frame.index()].get_or_insert_with(|| {
                    chosen.frames.push(self.frames[frame.index()].clone());
                    FrameId(chosen.frames.len() as u32 - 1)
                });
                chosen.nodes.push(Node { parent: ids[parent.index()], frame });
                ids[old] = StackId(chosen.nodes.len() as u32);
            }
        }
        (chosen, ids)
    }

    /// The same stacks with their frames in this order, as `renamed` gives them, and depth first, those with the same parent in the order of their leaves; with the new ids by the
    /// old ones.
    ///
    /// `order` has each frame once, and different frames stay different.
    pub(crate) fn in_order(&self, order: &[usize], renamed: impl Fn(usize) -> Frame) -> (Self, Vec<StackId>) {
        let mut rank = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(frame, position)| rank[*frame] = position);
        // Sorted by counting, by leaf and then by parent, which leaves those of the same parent in the order of their leaves.
        let leaf = |node: &Node| rank[node.frame.index()] as usize;
        let by_leaf = counted(order.len(), 0..self.nodes.len(), |at| leaf(&self.nodes[at])).0;
        let (children, starts) = counted(self.len(), by_leaf.into_iter(), |at| self.nodes[at].parent.index());
        let mut sorted = Self { frames: order.iter().map(|frame| renamed(*frame)).collect(), ..Self::default() };
        sorted.nodes.reserve_exact(self.nodes.len());
        let mut ids = vec![Self::ROOT; self.len()];
        let of = |parent: usize| children[starts[parent]..starts[parent + 1]].iter().rev();
        let mut pending: Vec<usize> = of(0).copied().collect();
        while let Some(at) = pending.pop() {
            let parent = ids[self.nodes[at].parent.index()];
            sorted.nodes.push(Node { parent, frame: FrameId(leaf(&self.nodes[at]) as u32) });
            ids[at + 1] = StackId(sorted.nodes.len() as u32);
            pending.extend(of(at + 1));
        }
        (sorted, ids)
    }

    fn know_frames(&mut self) {
        if self.frame_ids.len() < self.frames.len() {
            self.frame_ids = self.frames.iter().cloned().zip((0..).map(FrameId)).collect();
        }
    }

    fn node(&self, stack: StackId) -> Option<Node> {
        self.nodes.get(stack.index().checked_sub(1)?).copied()
    }
}

/// The items by their keys, which are below `keys`, equal ones in their order; and where the items of each key begin.
fn counted(
    keys: usize,
    items: impl Iterator<Item = usize> + Clone,
    key: impl Fn(usize) -> usize,
) -> (Vec<usize>, Vec<usize>) {
    let mut starts = vec![0; keys + 1];
    items.clone().for_each(|item| starts[key(item) + 1] += 1);
    (0..keys).for_each(|at| starts[at + 1] += starts[at]);
    let mut next = starts.clone();
    let mut sorted = vec![0; starts[keys]];
    for item in items {
        let at = &mut next[key(item)];
        sorted[*at] = item;
        *at += 1;
    }
    (sorted, starts)
}

impl PartialEq for Stacks {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes && self.frames == other.frames
    }
}

impl Eq for Stacks {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressKind, Svma};

    #[test]
    fn equal_stacks_have_equal_ids() {
        let mut stacks = Stacks::new();
        let a = stacks.intern(["main", "f", "g"].map(Frame::named));
        let b = stacks.intern(["main", "f"].map(Frame::named));
        assert_eq!(stacks.intern(["main", "f", "g"].map(Frame::named)), a);
        assert_eq!(stacks.parent(a), b);
        assert_eq!(stacks.len(), 4);
        assert_eq!(stacks.frame(a), Some(&Frame::named("g")));
    }

    #[test]
    fn however_many_frames_follow_a_stack_each_is_found_again() {
        let at_address = |at| Frame::Address { mapping: None, svma: Svma(at), kind: AddressKind::Instruction };
        let mut stacks = Stacks::new();
        let frames: Vec<FrameId> = (0..50).map(|at| stacks.frame_id(at_address(at))).collect();
        let grown = |stacks: &mut Stacks, parent: StackId| -> Vec<StackId> {
            frames.iter().map(|frame| stacks.push(parent, *frame)).collect()
        };
        let of_root = grown(&mut stacks, Stacks::ROOT);
        let of_seventh = grown(&mut stacks, of_root[7]);
        assert_eq!(stacks.len(), 101);
        // Those that come without the index are known as well.
        for mut stacks in [stacks.contents(), stacks] {
            assert_eq!(grown(&mut stacks, Stacks::ROOT), of_root);
            assert_eq!(grown(&mut stacks, of_root[7]), of_seventh);
            assert_eq!(stacks.len(), 101);
            let new = stacks.push(of_seventh[49], frames[0]);
            assert_eq!((stacks.parent(new), new.index()), (of_seventh[49], 101));
        }
    }

    #[test]
    fn the_empty_stack_has_no_frames_and_is_its_own_parent() {
        let stacks = Stacks::new();
        assert_eq!(stacks.frame(Stacks::ROOT), None);
        assert_eq!(stacks.parent(Stacks::ROOT), Stacks::ROOT);
        assert_eq!(stacks.frames_leaf_first(Stacks::ROOT).count(), 0);
    }

    #[test]
    fn stacks_that_are_entered_together_are_those_entered_one_by_one() {
        let mut one_by_one = Stacks::new();
        let names = ["a", "b", "c", "d"];
        names.iter().for_each(|name| _ = one_by_one.frame_id(Frame::named(name)));
        let mut together = one_by_one.clone();
        let (mut lists, mut expected) = (Lists::default(), Vec::new());
        for i in 0..200_usize {
            let list: Vec<FrameId> = (0..i % 6).map(|depth| FrameId((i * 7 / (depth + 1) % 4) as u32)).collect();
            lists.frames.extend(&list);
            lists.ends.push(lists.frames.len());
            expected.push(one_by_one.intern(list.iter().map(|id| Frame::named(names[id.index()]))));
        }
        let ids = together.fill(&lists);
        assert_eq!(together.len(), one_by_one.len());
        for (id, expected) in ids.iter().zip(&expected) {
            assert!(together.frames_leaf_first(*id).eq(one_by_one.frames_leaf_first(*expected)));
        }
        // And they are found again.
        let (last, list) = (ids[199], lists.get(199));
        assert_eq!(together.intern(list.iter().map(|id| Frame::named(names[id.index()]))), last);
        assert_eq!(together.len(), one_by_one.len());
    }

    #[test]
    fn frames_come_leaf_first() {
        let mut stacks = Stacks::new();
        let stack = stacks.intern(["main", "f"].map(Frame::named));
        let names: Vec<_> = stacks.frames_leaf_first(stack).cloned().collect();
        assert_eq!(names, ["f", "main"].map(Frame::named));
    }
}
