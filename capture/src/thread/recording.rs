//! What a stack is captured into.

use crate::region::LogCursor;
use crate::tree::{Place, Tree};
use layout::{Frame, Pseudo, RecordId, Root};

/// Frames of one stack that are kept.
pub const MAX_FRAMES: usize = 4096;

/// What one context of a thread uses: its allocation hook or its handler.
#[derive(Debug)]
pub struct Recording {
    /// Call tree of this context.
    pub tree: Tree,
    /// Log of single time samples.
    pub log: LogCursor,
    /// Label set that stacks are entered below; none: the thread's root itself.
    pub labels: RecordId,
    /// Frames of the stack being captured, leaf first, as [`layout::Frame`] bits.
    pub frames: [u64; MAX_FRAMES],
    /// Frames used.
    pub depth: usize,
}

impl Recording {
    /// One that has no tree yet.
    pub const fn new() -> Self {
        Self { tree: Tree::new(), log: LogCursor::new(), labels: RecordId::NONE, frames: [0; MAX_FRAMES], depth: 0 }
    }

    /// Where the thread's stacks begin: its root of a kind, or the labels in force below it. `None` if the store is full.
    #[inline]
    pub fn root(&mut self, kind: Root, thread: RecordId) -> Option<Place> {
        let root = self.tree.root(kind, thread)?;
        if self.labels.is_none() {
            return Some(root);
        }
        self.tree.child(root, Frame::pseudo(Pseudo::Labels(self.labels)))
    }
}

impl Default for Recording {
    fn default() -> Self {
        Self::new()
    }
}
