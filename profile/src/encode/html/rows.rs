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
    pub(super) fn new(profile: &'a Profile, tree: &Tree<'_>, place: &[u32]) -> Self {
        let width = profile.sample_types.len();
        let (mut groups, of_group) = groups(profile, tree, place);
        // Side by side: they are read in another order.
        let mut values = vec![0_i64; profile.samples.len() * width];
        for (to, sample) in values.chunks_exact_mut(width.max(1)).zip(&profile.samples) {
            to.iter_mut().zip(&sample.values).for_each(|(to, value)| *to = *value);
        }
        let mut rows = Self {
            node: Column::with_capacity(profile.samples.len()),
            values: (0..width).map(|_| Column::with_capacity(profile.samples.len())).collect(),
            ..Self::default()
        };
        let mut sizes = vec![0_i128; width];
        let mut sums = vec![0_i64; width];
        for (group, mut samples) in groups.iter_mut().zip(of_group) {
            samples.sort_unstable();
            let mut before = 0;
            for run in samples.chunk_by(|a, b| a.node == b.node) {
                sums.fill(0);
                for at in run.iter().map(|sample| sample.index as usize * width) {
                    sums.iter_mut().zip(&values[at..]).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
                }
                let Some(Sampled { node, .. }) = run.first().filter(|_| sums.iter().any(|sum| *sum != 0)) else {
                    continue;
                };
                rows.node.push(u64::from(node - before));
                before = *node;
                group.rows += 1;
                for ((column, sum), size) in rows.values.iter_mut().zip(&sums).zip(&mut sizes) {
                    column.push_signed(*sum);
                    *size += i128::from(*sum).abs();
                }
            }
        }
        rows.wide = sizes.iter().map(|size| *size > 1 << 53).collect();
        rows.groups = groups;
        rows
    }
}

/// A sample by the number of its node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sampled {
    node: u32,
    index: u32,
}

/// Every thread and set of labels that occurs, and its samples.
fn groups<'a>(profile: &'a Profile, tree: &Tree<'_>, place: &[u32]) -> (Vec<Group<'a>>, Vec<Vec<Sampled>>) {
    let (mut groups, mut of_group): (Vec<Group<'_>>, Vec<Vec<Sampled>>) = Default::default();
    let mut ids: FxHashMap<(Option<ThreadId>, Vec<&Label>), usize> = FxHashMap::default();
    // Labels as they stand: most samples of a thread have them in one order.
    let mut seen: FxHashMap<(Option<ThreadId>, &[Label]), usize> = FxHashMap::default();
    for (index, (sample, node)) in (0..).zip(profile.samples.iter().zip(tree.of_samples())) {
        let group = *seen.entry((sample.thread, &sample.labels)).or_insert_with(|| {
            let mut labels: Vec<&Label> = sample.labels.iter().collect();
            labels.sort_unstable();
            *ids.entry((sample.thread, labels.clone())).or_insert_with(|| {
                groups.push(Group { thread: sample.thread, labels, rows: 0 });
                of_group.push(Vec::new());
                groups.len() - 1
            })
        });
        of_group[group].push(Sampled { node: place[node as usize], index });
    }
    (groups, of_group)
}
