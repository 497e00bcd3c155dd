//! What was measured, by thread, labels and node of the tree.

use super::column::Column;
use crate::named::Tree;
use crate::{Label, Profile, ThreadId};
use rustc_hash::FxHashMap;

/// What tells samples apart beyond their stack.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) thread: Option<ThreadId>,
    pub(super) labels: Vec<&'a Label>,
    /// Number of its rows.
    pub(super) rows: usize,
}

/// Samples of one group and one node, added up.
#[derive(Debug, Default)]
pub(super) struct Rows<'a> {
    pub(super) groups: Vec<Group<'a>>,
    pub(super) node: Column,
    pub(super) values: Vec<Column>,
    /// Of each column, whether sums can be beyond what a double counts exactly.
    pub(super) wide: Vec<bool>,
}

impl<'a> Rows<'a> {
    /// `place` is the number of each node in depth-first order.
    pub(super) fn new(profile: &'a Profile, tree: &Tree, place: &[u32]) -> Self {
        let (mut groups, of_sample) = groups(profile);
        let mut order: Vec<(u64, u32)> = (of_sample.iter().zip(&tree.of_sample).enumerate())
            .map(|(i, (group, node))| (u64::from(*group) << 32 | u64::from(place[*node as usize]), i as u32))
            .collect();
        order.sort_unstable();
        let width = profile.sample_types.len();
        let mut rows = Self {
            node: Column::with_capacity(order.len()),
            values: (0..width).map(|_| Column::with_capacity(order.len())).collect(),
            ..Self::default()
        };
        let mut sizes = vec![0_i128; width];
        let mut before = (u32::MAX, 0);
        for run in order.chunk_by(|a, b| a.0 == b.0) {
            let mut sums = vec![0_i64; width];
            for (_, sample) in run {
                let values = &profile.samples[*sample as usize].values;
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
            }
            let Some((key, _)) = run.first() else { continue };
            if sums.iter().all(|sum| *sum == 0) {
                continue;
            }
            let (group, node) = ((key >> 32) as u32, *key as u32);
            let from = if before.0 == group { before.1 } else { 0 };
            before = (group, node);
            rows.node.push(u64::from(node - from));
            groups[group as usize].rows += 1;
            for ((column, sum), size) in rows.values.iter_mut().zip(sums).zip(&mut sizes) {
                column.push_signed(sum);
                *size += i128::from(sum).abs();
            }
        }
        rows.wide = sizes.iter().map(|size| *size > 1 << 53).collect();
        rows.groups = groups;
        rows
    }
}

/// Every thread and set of labels that occurs, and which of them each sample has.
fn groups(profile: &Profile) -> (Vec<Group<'_>>, Vec<u32>) {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut ids: FxHashMap<(Option<ThreadId>, Vec<&Label>), u32> = FxHashMap::default();
    // Labels as they stand: most samples of a thread have them in one order.
    let mut seen: FxHashMap<(Option<ThreadId>, &[Label]), u32> = FxHashMap::default();
    let of_sample = profile.samples.iter().map(|sample| {
        *seen.entry((sample.thread, &sample.labels)).or_insert_with(|| {
            let mut labels: Vec<&Label> = sample.labels.iter().collect();
            labels.sort_unstable();
            *ids.entry((sample.thread, labels.clone())).or_insert_with(|| {
                groups.push(Group { thread: sample.thread, labels, rows: 0 });
                groups.len() as u32 - 1
            })
        })
    });
    let of_sample = of_sample.collect();
    (groups, of_sample)
}
