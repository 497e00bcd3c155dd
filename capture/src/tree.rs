//! A thread's call tree: nodes in the store, and an index over them that only the thread itself uses.
//!
//! Called from: the owning thread, from one context (its allocation hook, or its handler), which the caller's guard ensures. When the store is full: `None`.
//! A node is (parent, frame). Since every tree belongs to one thread, nodes and their values have a single writer, and threads never touch each other's
//! cache lines.
//!
//! # Orderings
//!
//! Publish a node: `frame.store(Release)` in `child` -> readers skip nodes whose frame is zero.
#![allow(unsafe_code)]

use crate::blocked::Blocked;
use crate::mapping::{Mapping, fetch_line};
use crate::region::{self, Cursor};
use core::sync::atomic::Ordering;
use layout::{AllocValues, ChunkKind, Frame, Function, Lost, Node, Pseudo, RecordId, Root, TimeValues};

#[derive(Clone, Copy)]
#[repr(C)]
struct Slot {
    frame: u64,
    parent: u32,
    /// Record id of the node; of its values, if the frame is an allocation function.
    id: u32,
}

const FIRST_SLOTS_LOG2: u32 = 8;
/// More nodes than any budget holds.
const MAX_SLOTS_LOG2: u32 = 26;

/// A node, with a hash of all frames from the root to it.
///
/// Where a child lies in the index follows from frames alone, not from its parent's node: so the processor fetches the places of a whole stack at once, instead of each after the one
/// before, and in a large tree each is a cache miss.
///
/// One word, the hash in its upper half: kept in memory as two, they would be written one by one and read together, which stalls the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u64);

impl Place {
    /// Where roots hang.
    pub const NOWHERE: Self = Self(0);

    #[inline]
    const fn new(node: RecordId, path: u32) -> Self {
        Self((path as u64) << 32 | node.0 as u64)
    }

    /// The node.
    #[inline]
    pub const fn node(self) -> RecordId {
        RecordId(self.0 as u32)
    }

    #[inline]
    const fn path(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// As one word; zero for [`Place::NOWHERE`] alone.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The place that was stored.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    fn path_of(self, frame: Frame) -> u32 {
        let frame = (frame.to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        (self.path().rotate_left(5) ^ frame).wrapping_mul(0x9e37_79b1)
    }
}

/// The tree's writer.
#[derive(Debug, Default)]
pub struct Tree {
    /// By [`Root`]: a thread's handler records CPU time and elapsed time.
    roots: [u64; 3],
    owner: RecordId,
    /// Slots, and behind them a hash for each, which tells where it goes when the index grows.
    index: Option<Mapping>,
    slots_log2: u32,
    used: usize,
    nodes: Cursor,
    values: Cursor,
}

impl Tree {
    /// A tree that has no root yet.
    pub const fn new() -> Self {
        Self {
            roots: [0; 3],
            owner: RecordId::NONE,
            index: None,
            slots_log2: 0,
            used: 0,
            nodes: Cursor::new(),
            values: Cursor::new(),
        }
    }

    /// The root of a kind, made on first use for the thread's record. A tree that enters stacks of several threads makes their roots by [`Tree::child`].
    #[inline]
    pub fn root(&mut self, kind: Root, thread: RecordId) -> Option<Place> {
        let index = (kind as usize).wrapping_sub(1);
        let known = Place::from_bits(self.roots.get(index).copied().unwrap_or(0));
        if !known.node().is_none() {
            return Some(known);
        }
        self.owner = thread;
        let root = self.child(Place::NOWHERE, Frame::pseudo(Pseudo::Root(kind, thread)))?;
        if let Some(slot) = self.roots.get_mut(index) {
            *slot = root.to_bits();
        }
        Some(root)
    }

    /// The node of `frame` called from `parent`. Not for allocation functions: see [`Tree::site`].
    #[inline]
    pub fn child(&mut self, parent: Place, frame: Frame) -> Option<Place> {
        self.announced_child(parent, Place::new(RecordId::NONE, parent.path_of(frame)), frame)
    }

    /// The same as [`Tree::child`] for a stack whose frames were [announced](Tree::announce): `announced` is what that returned.
    #[inline]
    pub fn announced_child(&mut self, parent: Place, announced: Place, frame: Frame) -> Option<Place> {
        let path = announced.path();
        let id = match self.find(path, parent.node(), frame) {
            Some(id) => id,
            None => self.child_slow(path, parent.node(), frame)?,
        };
        Some(Place::new(id, path))
    }

    /// Lets the processor fetch the place of `frame` from memory while others are looked for. What it returns stands for that place, which is not known yet, where callees are announced.
    #[inline]
    pub fn announce(&self, parent: Place, frame: Frame) -> Place {
        let path = parent.path_of(frame);
        if let Some(index) = &self.index {
            // SAFETY: below the number of slots.
            fetch_line(unsafe { index.address().cast::<Slot>().add(self.home(path)) }.cast());
        }
        Place::new(RecordId::NONE, path)
    }

    /// The values of allocations by `function`, called from `parent`.
    #[inline]
    pub fn site(&mut self, parent: Place, function: Function) -> Option<RecordId> {
        let frame = Self::frame_of(function);
        let path = parent.path_of(frame);
        match self.find(path, parent.node(), frame) {
            Some(values) => Some(values),
            None => self.site_slow(path, parent.node(), frame),
        }
    }

    /// The values of allocations whose stack was lost, for this reason. Nobody owns them: whoever writes there writes pairs.
    pub fn lost_site(&mut self, root: Place, reason: Lost) -> Option<RecordId> {
        let values = self.values.allocate(ChunkKind::AllocValues, self.owner, size_of::<AllocValues>())?;
        let id = self.nodes.allocate(ChunkKind::Nodes, self.owner, size_of::<Node>())?;
        self.publish(id, root.node(), Frame::pseudo(Pseudo::Lost(reason)), values);
        Some(values)
    }

    /// The frame by which an allocation function is looked for.
    #[inline]
    pub const fn frame_of(function: Function) -> Frame {
        Frame::pseudo(Pseudo::Function(function))
    }

    #[inline]
    fn find(&self, path: u32, parent: RecordId, frame: Frame) -> Option<RecordId> {
        let slots = self.index.as_ref()?.address().cast::<Slot>();
        let mut at = self.home(path);
        loop {
            // SAFETY: below the number of slots.
            let slot = unsafe { *slots.add(at) };
            if slot.frame == frame.to_bits() && slot.parent == parent.0 {
                return Some(RecordId(slot.id));
            }
            if slot.id == 0 {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Where the search for a path begins: in the upper bits every frame has its share.
    #[inline]
    fn home(&self, path: u32) -> usize {
        (path >> (32 - self.slots_log2)) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & ((1 << self.slots_log2) - 1)
    }

    #[cold]
    fn child_slow(&mut self, path: u32, parent: RecordId, frame: Frame) -> Option<RecordId> {
        self.make_room()?;
        let id = self.nodes.allocate(ChunkKind::Nodes, self.owner, size_of::<Node>())?;
        self.publish(id, parent, frame, RecordId::NONE);
        self.insert(path, Slot { frame: frame.to_bits(), parent: parent.0, id: id.0 });
        Some(id)
    }

    #[cold]
    fn site_slow(&mut self, path: u32, parent: RecordId, frame: Frame) -> Option<RecordId> {
        self.make_room()?;
        let id = self.nodes.allocate(ChunkKind::Nodes, self.owner, size_of::<Node>())?;
        let values = self.values.allocate(ChunkKind::AllocValues, self.owner, size_of::<AllocValues>())?;
        // SAFETY: just allocated for values.
        unsafe { region::record::<AllocValues>(values) }.owner.store(self.owner.0, Ordering::Relaxed);
        self.publish(id, parent, frame, values);
        self.insert(path, Slot { frame: frame.to_bits(), parent: parent.0, id: values.0 });
        Some(values)
    }

    fn publish(&self, id: RecordId, parent: RecordId, frame: Frame, values: RecordId) {
        // SAFETY: just allocated for a node.
        let node: &Node = unsafe { region::record(id) };
        node.parent.store(parent.0, Ordering::Relaxed);
        node.values.store(values.0, Ordering::Relaxed);
        node.frame.store(frame.to_bits(), Ordering::Release);
    }

    fn make_room(&mut self) -> Option<()> {
        let slots = if self.index.is_some() { 1_usize << self.slots_log2 } else { 0 };
        if self.used * 2 >= slots { self.grow() } else { Some(()) }
    }

    fn insert(&mut self, path: u32, new: Slot) {
        let Some(index) = &self.index else { return };
        let slots = index.address().cast::<Slot>();
        let mut at = self.home(path);
        loop {
            // SAFETY: below the number of slots, some of which are free; the hashes lie behind them.
            unsafe {
                if (*slots.add(at)).id == 0 {
                    *slots.add(at) = new;
                    *slots.add(1 << self.slots_log2).cast::<u32>().add(at) = path;
                    self.used += 1;
                    return;
                }
            }
            at = self.after(at);
        }
    }

    fn grow(&mut self) -> Option<()> {
        let _blocked = Blocked::new();
        let log2 = if self.index.is_none() { FIRST_SLOTS_LOG2 } else { self.slots_log2 + 1 };
        if log2 > MAX_SLOTS_LOG2 {
            return None;
        }
        let old = self.index.replace(Mapping::new_whole((size_of::<Slot>() + size_of::<u32>()) << log2)?);
        let old_slots = 1_usize << self.slots_log2;
        self.slots_log2 = log2;
        self.used = 0;
        if let Some(old) = old {
            let slots = old.address().cast::<Slot>();
            for at in 0..old_slots {
                // SAFETY: below the old mapping's number of slots.
                let (slot, path) = unsafe { (*slots.add(at), *slots.add(old_slots).cast::<u32>().add(at)) };
                if slot.id != 0 {
                    self.insert(path, slot);
                }
            }
        }
        Some(())
    }

    /// Adds time to a node below a root of time. False if the store is full.
    #[inline]
    pub fn add_time(&mut self, node: RecordId, samples: u64, nanos: u64) -> bool {
        // SAFETY: ids of nodes come from `child`.
        let cell = unsafe { &region::record::<Node>(node).values };
        let mut id = RecordId(cell.load(Ordering::Relaxed));
        if id.is_none() {
            let Some(new) = self.values.allocate(ChunkKind::TimeValues, self.owner, size_of::<TimeValues>()) else {
                return false;
            };
            cell.store(new.0, Ordering::Release);
            id = new;
        }
        // SAFETY: values below roots of time are time values, and who adds time made the node below such a root.
        let values: &TimeValues = unsafe { region::record(id) };
        region::add_own(&values.samples, samples);
        region::add_own(&values.nanos, nanos);
        true
    }

    /// The same stack as `node` of another tree, in this one.
    pub fn copy(&mut self, node: RecordId) -> Option<Place> {
        if node.is_none() {
            return Some(Place::NOWHERE);
        }
        // SAFETY: a node's id, from a tree of this store.
        let original: &Node = unsafe { region::record(node) };
        let parent = self.copy(RecordId(original.parent.load(Ordering::Relaxed)))?;
        self.child(parent, Frame::from_bits(original.frame.load(Ordering::Relaxed)))
    }
}
