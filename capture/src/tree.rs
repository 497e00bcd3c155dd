//! A thread's call tree: nodes in the store, and an index over them that only the thread itself uses.
//!
//! Called from: the owning thread, from one context (its allocation hook, or its handler), which the caller's guard ensures. When the store is full: `None`.
//! A node is (parent, frame). Since every tree belongs to one thread, nodes and their values have a single writer, and threads never touch each other's
//! cache lines.
//!
//! # Orderings    Publish a node: `frame.store(Release)` in `child` -> readers skip nodes whose frame is zero.
#![allow(unsafe_code)]

use crate::mapping::Mapping;
use crate::region::{self, Cursor};
use core::sync::atomic::Ordering;
use layout::{ChunkKind, Frame, Node, Pseudo, RecordId, Root, TimeValues};

#[derive(Clone, Copy)]
#[repr(C)]
struct Slot {
    frame: u64,
    parent: u32,
    node: u32,
}

const FIRST_SLOTS: usize = 256;
/// More nodes than any budget holds.
const MAX_SLOTS: usize = 1 << 26;

/// The tree's writer.
#[derive(Debug, Default)]
pub struct Tree {
    /// By [`Root`]: a thread's handler records CPU time and elapsed time.
    roots: [RecordId; 3],
    owner: RecordId,
    slots: Option<Mapping>,
    mask: usize,
    used: usize,
    nodes: Cursor,
    values: Cursor,
}

impl Tree {
    /// A tree that has no root yet.
    pub const fn new() -> Self {
        Self {
            roots: [RecordId::NONE; 3],
            owner: RecordId::NONE,
            slots: None,
            mask: 0,
            used: 0,
            nodes: Cursor::new(),
            values: Cursor::new(),
        }
    }

    /// The root of a kind, made on first use for the thread's record. A tree that enters stacks of several threads makes their roots by [`Tree::child`].
    #[inline]
    pub fn root(&mut self, kind: Root, thread: RecordId) -> Option<RecordId> {
        let index = (kind as usize).wrapping_sub(1);
        let known = self.roots.get(index).copied().unwrap_or(RecordId::NONE);
        if !known.is_none() {
            return Some(known);
        }
        self.owner = thread;
        let root = self.child(RecordId::NONE, Frame::pseudo(Pseudo::Root(kind, thread)))?;
        if let Some(slot) = self.roots.get_mut(index) {
            *slot = root;
        }
        Some(root)
    }

    /// The node of `frame` called from `parent`.
    #[inline]
    pub fn child(&mut self, parent: RecordId, frame: Frame) -> Option<RecordId> {
        let mut at = hash(parent, frame) & self.mask;
        if let Some(slots) = &self.slots {
            let base = slots.address().cast::<Slot>();
            loop {
                // SAFETY: `at` is masked to the mapping's number of slots.
                let slot = unsafe { *base.add(at) };
                if slot.frame == frame.to_bits() && slot.parent == parent.0 {
                    return Some(RecordId(slot.node));
                }
                if slot.node == 0 {
                    break;
                }
                at = (at + 1) & self.mask;
            }
        }
        self.child_slow(parent, frame)
    }

    #[cold]
    fn child_slow(&mut self, parent: RecordId, frame: Frame) -> Option<RecordId> {
        if self.used * 2 > self.mask || self.slots.is_none() {
            self.grow()?;
        }
        let id = self.nodes.allocate(ChunkKind::Nodes, self.owner, size_of::<Node>())?;
        // SAFETY: just allocated for a node.
        let node: &Node = unsafe { region::record(id) };
        node.parent.store(parent.0, Ordering::Relaxed);
        node.frame.store(frame.to_bits(), Ordering::Release);
        self.insert(Slot { frame: frame.to_bits(), parent: parent.0, node: id.0 });
        self.used += 1;
        Some(id)
    }

    fn insert(&mut self, new: Slot) {
        let Some(slots) = &self.slots else { return };
        let base = slots.address().cast::<Slot>();
        let mut at = hash(RecordId(new.parent), Frame::from_bits(new.frame)) & self.mask;
        loop {
            // SAFETY: `at` is masked to the mapping's number of slots, and the table is at most half full.
            unsafe {
                if (*base.add(at)).node == 0 {
                    *base.add(at) = new;
                    return;
                }
            }
            at = (at + 1) & self.mask;
        }
    }

    fn grow(&mut self) -> Option<()> {
        let count = if self.slots.is_none() { FIRST_SLOTS } else { (self.mask + 1) * 2 };
        if count > MAX_SLOTS {
            return None;
        }
        let old = self.slots.replace(Mapping::new(count * size_of::<Slot>())?);
        let old_count = self.mask + 1;
        self.mask = count - 1;
        if let Some(old) = old {
            let base = old.address().cast::<Slot>();
            for at in 0..old_count {
                // SAFETY: below the old mapping's number of slots.
                let slot = unsafe { *base.add(at) };
                if slot.node != 0 {
                    self.insert(slot);
                }
            }
        }
        Some(())
    }

    /// Adds time to a node below a root of time. False if the store is full.
    #[inline]
    pub fn add_time(&mut self, node: RecordId, samples: u64, nanos: u64) -> bool {
        let Some(id) = self.values(node, ChunkKind::TimeValues, size_of::<TimeValues>()) else { return false };
        // SAFETY: values below roots of time are time values, and who adds time made the node below such a root.
        let values: &TimeValues = unsafe { region::record(id) };
        region::add_own(&values.samples, samples);
        region::add_own(&values.nanos, nanos);
        true
    }

    /// The same stack as `node` of another tree, in this one.
    pub fn copy(&mut self, node: RecordId) -> Option<RecordId> {
        if node.is_none() {
            return Some(RecordId::NONE);
        }
        // SAFETY: a node's id, from a tree of this store.
        let original: &Node = unsafe { region::record(node) };
        let parent = self.copy(RecordId(original.parent.load(Ordering::Relaxed)))?;
        self.child(parent, Frame::from_bits(original.frame.load(Ordering::Relaxed)))
    }

    /// Id of the values of a node, made on first use: `bytes` long, in chunks of `kind`. All nodes below a root have values of one kind.
    #[inline]
    pub fn values(&mut self, node: RecordId, kind: ChunkKind, bytes: usize) -> Option<RecordId> {
        // SAFETY: ids of nodes come from `child`.
        let cell = unsafe { &region::record::<Node>(node).values };
        let mut id = RecordId(cell.load(Ordering::Relaxed));
        if id.is_none() {
            id = self.values.allocate(kind, self.owner, bytes)?;
            cell.store(id.0, Ordering::Release);
        }
        Some(id)
    }
}

#[inline]
fn hash(parent: RecordId, frame: Frame) -> usize {
    let mixed =
        (frame.to_bits() ^ (u64::from(parent.0) << 32 | u64::from(parent.0))).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 29) as usize
}
