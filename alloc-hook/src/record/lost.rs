//! Allocations that are recorded without their stacks.

use super::{FOLLOW_FREES, cells, follow};
use crate::live::{Allocation, Wait};
use crate::sampling::Weight;
use capture::region;
use capture::tree::Tree;
use core::sync::atomic::{AtomicU32, Ordering};
use layout::{Lost, OBJECTS_FRACTION_BITS, RecordId, Root};

/// Where allocations go whose stack was not kept, by reason: a frame that names it. Made while there is room.
static LOST: [(Lost, AtomicU32); 2] = [(Lost::StoreFull, AtomicU32::new(0)), (Lost::Reentered, AtomicU32::new(0))];

/// Makes places for allocations whose stack cannot be kept. In a child after fork, too.
pub fn prepare_for_losses() {
    let mut tree = Tree::new();
    let root = tree.root(Root::Allocs, RecordId::NONE);
    for (reason, site) in &LOST {
        let values = root.and_then(|root| tree.lost_site(root, *reason));
        site.store(values.map_or(0, |values| values.0), Ordering::Relaxed);
    }
}

/// Records an allocation without its stack; `allocation.values` is not known yet.
#[cold]
#[inline(never)]
pub(super) fn lose(reason: Lost, mut allocation: Allocation) {
    let Weight { objects_q16, bytes } = allocation.weight();
    let site = LOST.iter().find(|(lost, _)| *lost == reason).map_or(0, |(_, site)| site.load(Ordering::Relaxed));
    if site == 0 {
        region::lose(reason, objects_q16 >> OBJECTS_FRACTION_BITS, bytes);
        return;
    }
    // Their values are in place; what is counted is that they have no stack.
    region::lose(reason, objects_q16 >> OBJECTS_FRACTION_BITS, 0);
    allocation.values = RecordId(site);
    let cells = cells(allocation.values);
    region::add_pair(&cells.objects_q16, &cells.bytes, [objects_q16, bytes]);
    if FOLLOW_FREES.load(Ordering::Relaxed) {
        // Possibly in a signal handler of the host, above a hook that holds a lock.
        follow(None, allocation, Wait::Never);
    }
}
