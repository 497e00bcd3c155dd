//! From the stacks of a profile to the tree of their names.
//!
//! The names' tree is walked once, depth first, each node as the set of stacks that have its names: nothing is looked up, and what is read lies mostly next to
//! what was read before.

use super::{Before, NO_STACK, NONE, Node, NodeId, Prefix, Tree};
use crate::dense::Dense;
use crate::{Label, Profile, StackId, Stacks, Symbols, ThreadId, names};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

type Escape = fn(&str) -> Cow<'_, str>;

/// Names by their numbers, the empty one of the root first.
struct Names<'a> {
    all: Vec<Cow<'a, str>>,
    ids: FxHashMap<Cow<'a, str>, u32>,
}

impl<'a> Names<'a> {
    fn id(&mut self, name: Cow<'a, str>) -> u32 {
        *self.ids.entry(name).or_insert_with_key(|name| {
            self.all.push(name.clone());
            self.all.len() as u32 - 1
        })
    }
}

/// Lists of names, outermost first: those of each frame, [`NO_STACK`], and those of each beginning.
#[derive(Default)]
struct Lists {
    names: Vec<u32>,
    ends: Vec<usize>,
}

/// A list of [`Lists`] by its number; one of a single name is that name instead, which is not looked up.
#[derive(Clone, Copy)]
struct List(u32);

const SINGLE: u32 = 1 << 31;

impl Lists {
    fn push(&mut self, names: &[u32]) -> List {
        if let [single] = names {
            return List(single | SINGLE);
        }
        self.names.extend(names);
        self.ends.push(self.names.len());
        List(self.ends.len() as u32 - 1)
    }

    fn get(&self, List(list): List, position: u32) -> Option<u32> {
        if list & SINGLE != 0 {
            return (position == 0).then_some(list & !SINGLE);
        }
        let start = (list as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        self.names[start..self.ends[list as usize]].get(position as usize).copied()
    }
}

/// Stacks below one beginning. A spot is a stack there; the first is the beginning itself.
struct Spots {
    /// Stacks with samples, and their parents.
    stacks: Dense,
    /// The first of these spots among those of all beginnings.
    from: u32,
    /// Stacks with samples, and the first of them among those of all beginnings.
    ends: Dense,
    from_end: u32,
}

impl Spots {
    fn of(&self, stack: StackId) -> u32 {
        match stack {
            // What has no stack has the spot behind the others.
            Stacks::ROOT => self.from + self.stacks.len() as u32,
            _ => self.from + self.stacks.number(stack.0) as u32,
        }
    }
}

/// What stands before the stacks.
struct Beginnings {
    /// The names before each.
    all: Vec<Vec<u32>>,
    /// That of each sample; empty if nothing stands before any.
    of_samples: Vec<u32>,
}

impl Beginnings {
    fn new<'a>(profile: &Profile, before: Before<'_>, names: &mut Names<'a>, escape: Escape) -> Self {
        if before.is_nothing() {
            return Self { all: vec![Vec::new()], of_samples: Vec::new() };
        }
        let mut all: Vec<Vec<u32>> = Vec::new();
        let mut ids: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
        let mut known: FxHashMap<(Option<ThreadId>, &[Label]), u32> = FxHashMap::default();
        let of_samples = profile.samples.iter().map(|sample| {
            let labels: &[Label] = if before.follows_labels() { &sample.labels } else { &[] };
            *known.entry((sample.thread, labels)).or_insert_with(|| {
                let list = before.names(profile, sample, escape).into_iter().map(|name| names.id(Cow::Owned(name)));
                *ids.entry(list.collect()).or_insert_with_key(|list| {
                    all.push(list.clone());
                    all.len() as u32 - 1
                })
            })
        });
        Self { of_samples: of_samples.collect(), all }
    }

    /// The stacks that samples have, below each.
    fn ends(&self, profile: &Profile) -> Vec<Dense> {
        let limit = profile.stacks.len();
        if self.of_samples.is_empty() {
            return vec![Dense::new(limit, profile.samples.iter().map(|sample| sample.stack.0)); self.all.len()];
        }
        let mut stacks = vec![Vec::new(); self.all.len()];
        profile.samples.iter().zip(&self.of_samples).for_each(|(sample, of)| stacks[*of as usize].push(sample.stack.0));
        stacks.into_iter().map(|stacks| Dense::new(limit, stacks.into_iter())).collect()
    }
}

/// The tree of every sample's stack by name.
pub(super) fn tree<'a>(profile: &'a Profile, symbols: &'a Symbols, before: Before<'_>, escape: Escape) -> Tree<'a> {
    built(profile, symbols, before, escape).0
}

/// The same, and the node at which the names of each stack end, [`NONE`] for stacks without samples.
pub(super) fn tree_with_stacks<'a>(
    profile: &'a Profile,
    symbols: &'a Symbols,
    escape: Escape,
) -> (Tree<'a>, Vec<NodeId>) {
    let (tree, spots, of_spot) = built(profile, symbols, Prefix::NONE.into(), escape);
    let mut of_stack = vec![NONE; profile.stacks.len()];
    for here in &spots {
        here.stacks.ids().skip(1).for_each(|id| of_stack[id as usize] = of_spot[here.of(StackId(id)) as usize]);
    }
    (tree, of_stack)
}

fn built<'a>(
    profile: &'a Profile,
    symbols: &'a Symbols,
    before: Before<'_>,
    escape: Escape,
) -> (Tree<'a>, Vec<Spots>, Vec<NodeId>) {
    let mut names = Names { all: vec![Cow::Borrowed("")], ids: FxHashMap::default() };
    let beginnings = Beginnings::new(profile, before, &mut names, escape);
    let parent = |id: u32| profile.stacks.parent(StackId(id)).0;
    let (mut from, mut from_end) = (0, 0);
    let spots = beginnings.ends(profile).into_iter().map(|ends| {
        let stacks = Dense::with_parents(profile.stacks.len(), ends.ids(), parent);
        let here = Spots { from, from_end, stacks, ends };
        from += here.stacks.len() as u32 + 1;
        from_end += here.ends.len() as u32;
        here
    });
    let spots: Vec<Spots> = spots.collect();
    let mut lists = Lists::default();
    let of_frames = frames(profile, symbols, &spots, &mut names, &mut lists, escape);
    let no_stack = names.id(escape(NO_STACK));
    let no_stack = lists.push(&[no_stack]);

    let count = from as usize;
    let (mut first_above, mut next_above) = (vec![NONE; count], vec![NONE; count]);
    let mut put_above = |spot: u32, below: u32| {
        next_above[spot as usize] = std::mem::replace(&mut first_above[below as usize], spot);
    };
    let mut list_of = Vec::with_capacity(count);
    for (here, beginning) in spots.iter().zip(&beginnings.all) {
        list_of.push(lists.push(beginning));
        for (id, spot) in here.stacks.ids().zip(here.from..).skip(1) {
            put_above(spot, here.from + here.stacks.number(parent(id)) as u32);
            list_of.push(profile.stacks.leaf_id(StackId(id)).map_or(no_stack, |leaf| of_frames[leaf.index()]));
        }
        list_of.push(no_stack);
        if here.ends.ids().next() == Some(Stacks::ROOT.0) {
            put_above(here.of(Stacks::ROOT), here.from);
        }
    }

    let mut walk = Walk {
        names: &names.all,
        lists: &lists,
        list_of: &list_of,
        first_above: &first_above,
        next_above: &next_above,
        nodes: vec![Node { parent: 0, name: 0 }],
        of_spot: vec![0; count],
    };
    walk.walk(spots.iter().map(|spots| spots.from));
    let Walk { nodes, of_spot, .. } = walk;
    let of_end = spots.iter().flat_map(|here| here.ends.ids().map(|id| of_spot[here.of(StackId(id)) as usize]));
    let of_end = of_end.collect();
    let end_in = |here: &Spots, stack: StackId| here.from_end + here.ends.number(stack.0) as u32;
    let stacks = profile.samples.iter().map(|sample| sample.stack);
    let ends = match &spots[..] {
        [here] => stacks.map(|stack| end_in(here, stack)).collect(),
        _ => stacks.zip(&beginnings.of_samples).map(|(stack, of)| end_in(&spots[*of as usize], stack)).collect(),
    };
    (Tree { names: names.all, nodes, of_end, ends, is_in_order: true }, spots, of_spot)
}

/// The names of each frame that samples have.
fn frames<'a>(
    profile: &'a Profile,
    symbols: &'a Symbols,
    spots: &[Spots],
    names: &mut Names<'a>,
    lists: &mut Lists,
    escape: Escape,
) -> Vec<List> {
    let mut is_used = vec![false; profile.stacks.frames().len()];
    for here in spots {
        let leaves = here.stacks.ids().filter_map(|id| profile.stacks.leaf_id(StackId(id)));
        leaves.for_each(|leaf| is_used[leaf.index()] = true);
    }
    names.all.reserve(is_used.len());
    names.ids.reserve(is_used.len());
    let mut of_frame = Vec::new();
    let mut list = |(frame, is_used)| {
        of_frame.clear();
        if is_used {
            let escaped = |name| match name {
                Cow::Borrowed(name) => escape(name),
                Cow::Owned(name) => Cow::Owned(escape(&name).into_owned()),
            };
            of_frame.extend(names::of(frame, profile, symbols).into_iter().rev().map(|name| names.id(escaped(name))));
        }
        lists.push(&of_frame)
    };
    profile.stacks.frames().iter().zip(is_used).map(&mut list).collect()
}

/// The walk over the names' tree.
struct Walk<'a> {
    names: &'a [Cow<'a, str>],
    lists: &'a Lists,
    /// By spot: its names, the first spot above it, and the next one above the same; [`NONE`] for none.
    list_of: &'a [List],
    first_above: &'a [u32],
    next_above: &'a [u32],
    nodes: Vec<Node>,
    /// The node at which the names of each spot end.
    of_spot: Vec<NodeId>,
}

/// A name of a spot: the spot, and which of its names.
type Step = (u32, u32);

impl Walk<'_> {
    fn walk(&mut self, beginnings: impl Iterator<Item = u32>) {
        let mut pending: Vec<(NodeId, u32, usize)> = Vec::new();
        // The steps of all that is pending, those of the last at the end.
        let mut steps: Vec<Step> = Vec::new();
        let (mut next, mut groups) = (Vec::new(), Vec::new());
        beginnings.for_each(|spot| self.enter(spot, 0, 0, &mut next));
        let mut node = 0;
        loop {
            // Most have one way on.
            while let [(name, (spot, position))] = next[..] {
                next.clear();
                node = self.push(node, name);
                self.enter(spot, position + 1, node, &mut next);
            }
            self.group(&mut next, &mut groups);
            for (name, range) in groups.drain(..) {
                pending.push((node, name, steps.len()));
                steps.extend(next[range].iter().map(|(_, step)| *step));
            }
            next.clear();
            let Some((parent, name, from)) = pending.pop() else { return };
            node = self.push(parent, name);
            for (spot, position) in steps.drain(from..) {
                self.enter(spot, position + 1, node, &mut next);
            }
        }
    }

    fn push(&mut self, parent: NodeId, name: u32) -> NodeId {
        self.nodes.push(Node { parent, name });
        self.nodes.len() as NodeId - 1
    }

    /// What comes after the names of a spot up to this one, which led to `node`.
    fn enter(&mut self, spot: u32, position: u32, node: NodeId, next: &mut Vec<(u32, Step)>) {
        if let Some(name) = self.lists.get(self.list_of[spot as usize], position) {
            next.push((name, (spot, position)));
            return;
        }
        self.of_spot[spot as usize] = node;
        let mut above = self.first_above[spot as usize];
        while above != NONE {
            next.extend(self.lists.get(self.list_of[above as usize], 0).map(|name| (name, (above, 0))));
            above = self.next_above[above as usize];
        }
    }

    /// Steps of one name next to each other; the names in reverse, since what is entered last is walked first.
    fn group(&self, next: &mut [(u32, Step)], groups: &mut Vec<(u32, std::ops::Range<usize>)>) {
        if next.len() > 1 {
            next.sort_unstable();
        }
        let mut from = 0;
        for same in next.chunk_by(|(a, _), (b, _)| a == b) {
            groups.push((same[0].0, from..from + same.len()));
            from += same.len();
        }
        if groups.len() > 1 {
            groups.sort_unstable_by(|(a, _), (b, _)| self.names[*b as usize].cmp(&self.names[*a as usize]));
        }
    }
}
