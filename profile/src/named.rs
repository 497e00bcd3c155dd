//! The stacks of a profile by name: what formats without addresses are made of.

mod build;

use crate::{Label, LabelValue, Options, Profile, Sample, Symbols};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// What stands for the name of a stack that has no frames.
pub(crate) const NO_STACK: &str = "[no stack]";

/// A node of [`Tree`]; every node comes after its parent.
pub(crate) type NodeId = u32;

#[derive(Clone, Copy)]
struct Node {
    parent: NodeId,
    name: u32,
}

/// A prefix tree of names. Node 0 is its root, which has no name.
pub(crate) struct Tree<'a> {
    names: Vec<Cow<'a, str>>,
    nodes: Vec<Node>,
    /// What each sample ends in, and the node of that: there are fewer than samples and than nodes, and they stay in the processor's cache.
    ends: Vec<u32>,
    of_end: Vec<NodeId>,
    /// Whether the nodes are in the order of [`Tree::depth_first`].
    is_in_order: bool,
}

/// Frames of process and thread that stand before those of the stack.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    pub(crate) process: bool,
    pub(crate) thread: bool,
}

impl Prefix {
    pub(crate) const NONE: Self = Self { process: false, thread: false };
}

/// What stands before the frames of a stack.
#[derive(Clone, Copy)]
pub(crate) enum Before<'a> {
    /// What a reader wants to tell apart, each in a frame of its own.
    Frames { process: bool, thread: bool, labels: bool },
    /// One text that this makes of a sample, as it is: it may hold separators.
    Text(&'a dyn Fn(&Profile, &Sample) -> String),
}

impl From<Prefix> for Before<'_> {
    fn from(Prefix { process, thread }: Prefix) -> Self {
        Self::Frames { process, thread, labels: false }
    }
}

impl Before<'_> {
    /// What the options ask for.
    pub(crate) fn of(profile: &Profile, options: &Options) -> Self {
        let process = profile.has_several_processes();
        Self::Frames { process, thread: options.thread_frames, labels: options.label_frames }
    }

    /// Whether nothing stands before any stack.
    fn is_nothing(self) -> bool {
        matches!(self, Self::Frames { process: false, thread: false, labels: false })
    }

    /// Whether samples of one thread can have different ones.
    fn follows_labels(self) -> bool {
        matches!(self, Self::Text(_) | Self::Frames { labels: true, .. })
    }

    fn names(self, profile: &Profile, sample: &Sample, escape: fn(&str) -> Cow<'_, str>) -> Vec<String> {
        let (process, thread, labels) = match self {
            Self::Frames { process, thread, labels } => (process, thread, labels),
            Self::Text(text) => return vec![text(profile, sample)],
        };
        let of_sample = sample.thread.and_then(|id| profile.thread(id));
        let mut names = Vec::new();
        if process {
            names.push(of_sample.map_or_else(|| "[no process]".into(), |t| format!("{} ({})", t.process, t.pid)));
        }
        if thread {
            names.push(of_sample.map_or_else(|| "[no thread]".into(), |t| t.name.clone()));
        }
        if labels {
            let mut sorted: Vec<&Label> = sample.labels.iter().collect();
            sorted.sort_unstable();
            names.extend(sorted.into_iter().map(label_text));
        }
        names.iter().map(|name| escape(name).into_owned()).collect()
    }
}

/// `request=GET /`, `shard=3`, `size=4096 bytes`.
pub(crate) fn label_text(label: &Label) -> String {
    match &label.value {
        LabelValue::Text(text) => format!("{}={text}", label.key),
        LabelValue::Number { value, unit: None } => format!("{}={value}", label.key),
        LabelValue::Number { value, unit: Some(unit) } => format!("{}={value} {unit}", label.key),
    }
}

/// Stands for a node that is not known.
pub(crate) const NONE: NodeId = NodeId::MAX;

impl<'a> Tree<'a> {
    /// The stacks of every sample by name, each name passed through `escape` before it is compared with others.
    pub(crate) fn new<'b>(
        profile: &'a Profile,
        symbols: &'a Symbols,
        before: impl Into<Before<'b>>,
        escape: fn(&str) -> Cow<'_, str>,
    ) -> Self {
        build::tree(profile, symbols, before.into(), escape)
    }

    /// The same with nothing before the stacks, and the node of each stack that a sample has or that lies below one; [`NONE`] for the others.
    pub(crate) fn with_stacks(
        profile: &'a Profile,
        symbols: &'a Symbols,
        escape: fn(&str) -> Cow<'_, str>,
    ) -> (Self, Vec<NodeId>) {
        build::tree_with_stacks(profile, symbols, escape)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn parent(&self, node: NodeId) -> NodeId {
        self.nodes[node as usize].parent
    }

    pub(crate) fn name(&self, node: NodeId) -> &str {
        &self.names[self.name_id(node) as usize]
    }

    pub(crate) fn name_id(&self, node: NodeId) -> u32 {
        self.nodes[node as usize].name
    }

    pub(crate) fn names(&self) -> &[Cow<'a, str>] {
        &self.names
    }

    /// The node of each sample.
    pub(crate) fn of_samples(&self) -> impl Iterator<Item = NodeId> {
        self.ends.iter().map(|end| self.of_end[*end as usize])
    }

    /// The same stacks from their leaves on: who called a function lies above it. What stood before the stacks comes last.
    pub(crate) fn reversed(&self) -> Self {
        let mut nodes = vec![self.nodes[0]];
        let mut children: FxHashMap<(NodeId, u32), NodeId> = FxHashMap::default();
        let mut reversed = |mut from: NodeId| {
            let mut to = 0;
            while from != 0 {
                let name = self.name_id(from);
                to = *children.entry((to, name)).or_insert_with(|| {
                    nodes.push(Node { parent: to, name });
                    nodes.len() as u32 - 1
                });
                from = self.parent(from);
            }
            to
        };
        let of_end = self.of_end.iter().map(|node| reversed(*node)).collect();
        Self { names: self.names.clone(), nodes, ends: self.ends.clone(), of_end, is_in_order: false }
    }

    /// What ends at each node, in one column of the profile.
    pub(crate) fn own_values(&self, profile: &Profile, column: usize) -> Vec<i64> {
        let mut sums = vec![0_i64; self.of_end.len()];
        for (sample, end) in profile.samples.iter().zip(&self.ends) {
            let sum = &mut sums[*end as usize];
            *sum = sum.saturating_add(sample.values.get(column).copied().unwrap_or(0));
        }
        let mut own = vec![0_i64; self.len()];
        for (node, sum) in self.of_end.iter().zip(sums) {
            let own = &mut own[*node as usize];
            *own = own.saturating_add(sum);
        }
        own
    }

    /// What ends at each node or above it, from what ends at each.
    pub(crate) fn totals(&self, own: &[i64]) -> Vec<i64> {
        let mut totals = own.to_vec();
        for node in (1..self.len()).rev() {
            let parent = self.nodes[node].parent as usize;
            totals[parent] = totals[parent].saturating_add(totals[node]);
        }
        totals
    }

    /// Every node but the root, each after its parent and before its later siblings, siblings by name; with its depth from 1.
    pub(crate) fn depth_first(&self) -> impl Iterator<Item = (NodeId, usize)> {
        let order = (!self.is_in_order).then(|| self.order());
        let mut path = vec![0];
        (1..self.len()).map(move |at| {
            let node = order.as_ref().map_or(at as NodeId, |order| order[at - 1]);
            while path.pop_if(|last| *last != self.parent(node)).is_some() {}
            path.push(node);
            (node, path.len() - 1)
        })
    }

    fn order(&self) -> Vec<NodeId> {
        let mut by_name: Vec<u32> = (0..self.names.len() as u32).collect();
        by_name.sort_unstable_by_key(|name| &self.names[*name as usize]);
        let mut rank = vec![0_u32; self.names.len()];
        by_name.iter().enumerate().for_each(|(position, name)| rank[*name as usize] = position as u32);
        // Children of one node next to each other, in the order of the nodes; then each family by itself, the last name first.
        let mut first = vec![0_usize; self.len() + 1];
        self.nodes.iter().skip(1).for_each(|node| first[node.parent as usize + 1] += 1);
        (1..first.len()).for_each(|i| first[i] += first[i - 1]);
        let mut next = first.clone();
        let mut siblings = vec![0; self.len() - 1];
        for (node, Node { parent, .. }) in self.nodes.iter().enumerate().skip(1) {
            siblings[next[*parent as usize]] = node as NodeId;
            next[*parent as usize] += 1;
        }
        for node in 0..self.len() {
            if first[node + 1] - first[node] > 1 {
                siblings[first[node]..first[node + 1]]
                    .sort_unstable_by_key(|node| std::cmp::Reverse(rank[self.name_id(*node) as usize]));
            }
        }
        let mut ordered = Vec::with_capacity(self.len());
        let mut pending: Vec<NodeId> = vec![0];
        while let Some(node) = pending.pop() {
            if node != 0 {
                ordered.push(node);
            }
            pending.extend(&siblings[first[node as usize]..first[node as usize + 1]]);
        }
        ordered
    }
}
