//! The stacks of a profile by name: what formats without addresses are made of.

mod children;

use crate::{FrameId, Label, LabelValue, Options, Profile, Sample, StackId, Stacks, Symbols, names};
use children::Children;
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
pub(crate) struct Tree {
    names: Vec<String>,
    nodes: Vec<Node>,
    /// The node of each sample.
    pub(crate) of_sample: Vec<NodeId>,
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
pub(crate) enum Before {
    /// What a reader wants to tell apart, each in a frame of its own.
    Frames { process: bool, thread: bool, labels: bool },
    /// One text that this makes of a sample, as it is: it may hold separators.
    Text(fn(&Profile, &Sample) -> String),
}

impl From<Prefix> for Before {
    fn from(Prefix { process, thread }: Prefix) -> Self {
        Self::Frames { process, thread, labels: false }
    }
}

impl Before {
    /// What the options ask for.
    pub(crate) fn of(profile: &Profile, options: &Options) -> Self {
        let process = profile.has_several_processes();
        Self::Frames { process, thread: options.thread_frames, labels: options.label_frames }
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

struct Builder<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    escape: fn(&str) -> Cow<'_, str>,
    tree: Tree,
    name_ids: FxHashMap<String, u32>,
    children: Children,
    /// Names of frames, those of each outermost first.
    frame_names: Vec<u32>,
    /// Where those of a frame begin and end; they are empty until they are asked for.
    of_frame: Vec<(u32, u32)>,
    /// Nodes of stacks, [`NONE`] if not known, below the start that most samples have: the first.
    of_stack: Vec<NodeId>,
    first_start: Option<NodeId>,
    /// The same below other starts.
    of_other: FxHashMap<(NodeId, StackId), NodeId>,
}

/// Stands for a node that is not known.
pub(crate) const NONE: NodeId = NodeId::MAX;

impl Tree {
    /// The stacks of every sample by name, each name passed through `escape` before it is compared with others.
    pub(crate) fn new(
        profile: &Profile,
        symbols: &Symbols,
        before: impl Into<Before>,
        escape: fn(&str) -> Cow<'_, str>,
    ) -> Self {
        Self::with_stacks(profile, symbols, before, escape).0
    }

    /// The same, with the node of each stack that a sample has or that lies below one; [`NONE`] for the others, and for those that are found only below
    /// another start than the first sample's.
    pub(crate) fn with_stacks(
        profile: &Profile,
        symbols: &Symbols,
        before: impl Into<Before>,
        escape: fn(&str) -> Cow<'_, str>,
    ) -> (Self, Vec<NodeId>) {
        let before = before.into();
        let root = Node { parent: 0, name: 0 };
        let tree = Self { names: vec![String::new()], nodes: vec![root], of_sample: Vec::new() };
        let mut builder = Builder {
            profile,
            symbols,
            escape,
            tree,
            name_ids: FxHashMap::default(),
            children: Children::new(profile.stacks.len()),
            frame_names: Vec::new(),
            of_frame: vec![(0, 0); profile.stacks.frames().len()],
            of_stack: vec![NONE; profile.stacks.len()],
            first_start: None,
            of_other: FxHashMap::default(),
        };
        let mut prefixes = FxHashMap::default();
        for sample in &profile.samples {
            let labels: &[Label] = if before.follows_labels() { &sample.labels } else { &[] };
            let start = *prefixes.entry((sample.thread, labels)).or_insert_with(|| {
                before.names(profile, sample, escape).into_iter().fold(0, |node, name| {
                    let name = builder.escaped_name(name);
                    builder.child(node, name)
                })
            });
            let node = builder.node(start, sample.stack);
            builder.tree.of_sample.push(node);
        }
        (builder.tree, builder.of_stack)
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

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The same stacks from their leaves on: who called a function lies above it. What stood before the stacks comes last.
    pub(crate) fn reversed(&self) -> Self {
        let mut reversed = Self { names: self.names.clone(), nodes: vec![self.nodes[0]], of_sample: Vec::new() };
        let mut children: FxHashMap<(NodeId, u32), NodeId> = FxHashMap::default();
        let mut of_node: FxHashMap<NodeId, NodeId> = FxHashMap::default();
        for of_sample in &self.of_sample {
            let end = *of_node.entry(*of_sample).or_insert_with(|| {
                let (mut from, mut to) = (*of_sample, 0);
                while from != 0 {
                    let name = self.name_id(from);
                    let nodes = &mut reversed.nodes;
                    to = *children.entry((to, name)).or_insert_with(|| {
                        nodes.push(Node { parent: to, name });
                        nodes.len() as u32 - 1
                    });
                    from = self.parent(from);
                }
                to
            });
            reversed.of_sample.push(end);
        }
        reversed
    }

    /// What ends at each node, in one column of the profile.
    pub(crate) fn own_values(&self, profile: &Profile, column: usize) -> Vec<i64> {
        let mut own = vec![0_i64; self.len()];
        for (sample, node) in profile.samples.iter().zip(&self.of_sample) {
            let sum = &mut own[*node as usize];
            *sum = sum.saturating_add(sample.values.get(column).copied().unwrap_or(0));
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
    pub(crate) fn depth_first(&self) -> Vec<(NodeId, usize)> {
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
        let mut pending: Vec<(NodeId, usize)> = vec![(0, 0)];
        while let Some((node, depth)) = pending.pop() {
            if node != 0 {
                ordered.push((node, depth));
            }
            let children = &siblings[first[node as usize]..first[node as usize + 1]];
            pending.extend(children.iter().map(|child| (*child, depth + 1)));
        }
        ordered
    }
}

impl Builder<'_> {
    fn node(&mut self, start: NodeId, stack: StackId) -> NodeId {
        if stack == Stacks::ROOT {
            let name = self.name(NO_STACK);
            return self.child(start, name);
        }
        // Leaf-most first: the part of the stack that is not known yet.
        let mut unknown = Vec::new();
        let mut at = stack;
        let mut node = loop {
            match self.known(start, at) {
                Some(node) => break node,
                None if at == Stacks::ROOT => break start,
                None => unknown.push(at),
            }
            at = self.profile.stacks.parent(at);
        };
        for stack in unknown.into_iter().rev() {
            let Some(frame) = self.profile.stacks.leaf_id(stack) else { continue };
            let (first, end) = self.names_of(frame);
            for i in first..end {
                node = self.child(node, self.frame_names[i as usize]);
            }
            if self.first_start == Some(start) {
                self.of_stack[stack.index()] = node;
            } else {
                self.of_other.insert((start, stack), node);
            }
        }
        node
    }

    fn names_of(&mut self, frame: FrameId) -> (u32, u32) {
        if let range @ (first, end) = self.of_frame[frame.index()]
            && first != end
        {
            return range;
        }
        let (profile, symbols) = (self.profile, self.symbols);
        let first = self.frame_names.len() as u32;
        for name in names::of(&profile.stacks.frames()[frame.index()], profile, symbols).iter().rev() {
            let name = self.name(name);
            self.frame_names.push(name);
        }
        self.of_frame[frame.index()] = (first, self.frame_names.len() as u32);
        self.of_frame[frame.index()]
    }

    fn known(&mut self, start: NodeId, stack: StackId) -> Option<NodeId> {
        if *self.first_start.get_or_insert(start) == start {
            return self.of_stack.get(stack.index()).copied().filter(|node| *node != NONE);
        }
        self.of_other.get(&(start, stack)).copied()
    }

    fn name(&mut self, name: &str) -> u32 {
        self.escaped_name((self.escape)(name).into_owned())
    }

    fn escaped_name(&mut self, name: String) -> u32 {
        if let Some(id) = self.name_ids.get(&name) {
            return *id;
        }
        let id = self.tree.names.len() as u32;
        self.tree.names.push(name.clone());
        self.name_ids.insert(name, id);
        id
    }

    fn child(&mut self, parent: NodeId, name: u32) -> NodeId {
        self.children.find_or_add(parent, name).unwrap_or_else(|| {
            self.tree.nodes.push(Node { parent, name });
            self.tree.nodes.len() as u32 - 1
        })
    }
}
