//! Interned stacks: a prefix tree of frames, so that a stack is one number.

use crate::Frame;
use rustc_hash::FxHashMap;

/// A stack in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// Every stack of a profile. Equal frames and equal stacks have equal ids.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// Stack `i + 1`; the empty stack is not stored.
    nodes: Vec<Node>,
    frames: Vec<Frame>,
    node_ids: FxHashMap<(StackId, FrameId), StackId>,
    frame_ids: FxHashMap<Frame, FrameId>,
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
        if let Some(id) = self.frame_ids.get(&frame) {
            return *id;
        }
        let id = FrameId(u32::try_from(self.frames.len()).expect("fewer than 2^32 frames"));
        self.frames.push(frame.clone());
        self.frame_ids.insert(frame, id);
        id
    }

    /// The stack that has `frame` as its leaf and `parent` below it.
    ///
    /// # Panics
    /// If `parent` or `frame` is not of these stacks.
    pub fn push(&mut self, parent: StackId, frame: FrameId) -> StackId {
        assert!(parent.index() <= self.nodes.len() && frame.index() < self.frames.len(), "ids of other stacks");
        let next = StackId(u32::try_from(self.nodes.len() + 1).expect("fewer than 2^32 stacks"));
        let id = *self.node_ids.entry((parent, frame)).or_insert(next);
        if id == next {
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

    fn node(&self, stack: StackId) -> Option<Node> {
        self.nodes.get(stack.index().checked_sub(1)?).copied()
    }
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
    fn the_empty_stack_has_no_frames_and_is_its_own_parent() {
        let stacks = Stacks::new();
        assert_eq!(stacks.frame(Stacks::ROOT), None);
        assert_eq!(stacks.parent(Stacks::ROOT), Stacks::ROOT);
        assert_eq!(stacks.frames_leaf_first(Stacks::ROOT).count(), 0);
    }

    #[test]
    fn frames_come_leaf_first() {
        let mut stacks = Stacks::new();
        let stack = stacks.intern(["main", "f"].map(Frame::named));
        let names: Vec<_> = stacks.frames_leaf_first(stack).cloned().collect();
        assert_eq!(names, ["f", "main"].map(Frame::named));
    }
}
