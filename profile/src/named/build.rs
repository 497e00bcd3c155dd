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
struct Names {
    all: Vec<String>,
    ids: FxHashMap<String, u32>,
}

impl Names {
    fn id(&mut self, name: &str) -> u32 {
        if let Some(known) = self.ids.get(name) {
            return *known;
        }
        let id = self.all.len() as u32;
        self.all.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }
}

/// Lists of names, outermost first: those of each frame, [`NO_STACK`], and those of each beginning.
#[derive(Default)]
struct Lists {
    names: Vec<u32>,
    ends: Vec<usize>,
}

impl Lists {
    fn push(&mut self, names: impl IntoIterator<Item = u32>) -> u32 {
        self.names.extend(names);
        self.ends.push(self.names.len());
        self.ends.len() as u32 - 1
    }

    fn get(&self, list: u32) -> &[u32] {
        let start = (list as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.names[start..self.ends[list as usize]]
    }
}

/// Stacks below one beginning. A spot is a stack there; the first is the beginning itself.
struct Spots {
    /// Stacks with samples, and their parents.
    stacks: Dense,
    /// The first of these spots among those of all beginnings.
    from: u32,
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

/// What stands before each sample's stack: the number of its list, by sample; and what belongs to each.
fn beginnings(profile: &Profile, before: Before<'_>, names: &mut Names, escape: Escape) -> (Vec<u32>, Vec<Vec<u32>>) {
    if before.is_nothing() {
        return (vec![0; profile.samples.len()], vec![Vec::new()]);
    }
    let mut lists: Vec<Vec<u32>> = Vec::new();
    let mut ids: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
    let mut known: FxHashMap<(Option<ThreadId>, &[Label]), u32> = FxHashMap::default();
    let of_samples = profile.samples.iter().map(|sample| {
        let labels: &[Label] = if before.follows_labels() { &sample.labels } else { &[] };
        *known.entry((sample.thread, labels)).or_insert_with(|| {
            let list: Vec<u32> = before.names(profile, sample, escape).iter().map(|name| names.id(name)).collect();
            *ids.entry(list).or_insert_with_key(|list| {
                lists.push(list.clone());
                lists.len() as u32 - 1
            })
        })
    });
    (of_samples.collect(), lists)
}

/// The tree of every sample's stack by name.
pub(super) fn tree(profile: &Profile, symbols: &Symbols, before: Before<'_>, escape: Escape) -> Tree {
    built(profile, symbols, before, escape).0
}

/// The same, and the node at which the names of each stack end, [`NONE`] for stacks without samples.
pub(super) fn tree_with_stacks(profile: &Profile, symbols: &Symbols, escape: Escape) -> (Tree, Vec<NodeId>) {
    let (tree, spots, of_spot) = built(profile, symbols, Prefix::NONE.into(), escape);
    let mut of_stack = vec![NONE; profile.stacks.len()];
    for here in &spots {
        here.stacks.ids().skip(1).for_each(|id| of_stack[id as usize] = of_spot[here.of(StackId(id)) as usize]);
    }
    (tree, of_stack)
}

fn built(profile: &Profile, symbols: &Symbols, before: Before<'_>, escape: Escape) -> (Tree, Vec<Spots>, Vec<NodeId>) {
    let mut names = Names { all: vec![String::new()], ids: FxHashMap::default() };
    let (of_samples, beginnings) = beginnings(profile, before, &mut names, escape);
    let mut lists = frames(profile, symbols, &mut names, escape);
    let no_stack = names.id(&escape(NO_STACK));
    let no_stack = lists.push([no_stack]);

    let mut stacks_of = vec![Vec::new(); beginnings.len()];
    profile.samples.iter().zip(&of_samples).for_each(|(sample, of)| stacks_of[*of as usize].push(sample.stack.0));
    let mut spots: Vec<Spots> = Vec::with_capacity(beginnings.len());
    // By spot: its list of names, and where the spots above it begin among `above`.
    let (mut list_of, mut first_above, mut above) = (Vec::new(), Vec::new(), Vec::new());
    for (stacks, beginning) in stacks_of.into_iter().zip(&beginnings) {
        let here = Spots {
            stacks: Dense::with_parents(profile.stacks.len(), &stacks, |id| profile.stacks.parent(StackId(id)).0),
            from: list_of.len() as u32,
        };
        let parent = |id: u32| here.stacks.number(profile.stacks.parent(StackId(id)).0);
        let mut counts = vec![0_u32; here.stacks.len() + 1];
        here.stacks.ids().skip(1).for_each(|id| counts[parent(id) + 1] += 1);
        let has_none = stacks.contains(&Stacks::ROOT.0);
        counts[1] += u32::from(has_none);
        (1..counts.len()).for_each(|i| counts[i] += counts[i - 1]);
        let from = above.len();
        above.resize(from + counts[here.stacks.len()] as usize, 0);
        first_above.extend(counts.iter().map(|count| from as u32 + count));
        for (id, spot) in here.stacks.ids().zip(here.from..).skip(1) {
            let next = &mut counts[parent(id)];
            above[from + *next as usize] = spot;
            *next += 1;
        }
        if has_none {
            above[from + counts[0] as usize] = here.of(Stacks::ROOT);
        }
        list_of.push(lists.push(beginning.iter().copied()));
        let frames =
            here.stacks.ids().skip(1).map(|id| profile.stacks.leaf_id(StackId(id)).map_or(no_stack, |leaf| leaf.0));
        list_of.extend(frames);
        list_of.push(no_stack);
        spots.push(here);
    }
    // Where those of the last spot, which is no stack, end.
    first_above.push(above.len() as u32);

    let mut walk = Walk {
        names: &names.all,
        lists: &lists,
        list_of: &list_of,
        first_above: &first_above,
        above: &above,
        nodes: vec![Node { parent: 0, name: 0 }],
        of_spot: vec![0; list_of.len()],
    };
    walk.walk(spots.iter().map(|spots| spots.from));
    let Walk { nodes, of_spot, .. } = walk;
    let of_sample = profile
        .samples
        .iter()
        .zip(&of_samples)
        .map(|(sample, of)| of_spot[spots[*of as usize].of(sample.stack) as usize]);
    let of_sample = of_sample.collect();
    (Tree { names: names.all, nodes, of_sample, is_in_order: true }, spots, of_spot)
}

/// The names of each frame that samples have.
fn frames(profile: &Profile, symbols: &Symbols, names: &mut Names, escape: Escape) -> Lists {
    let stacks =
        Dense::with_parents(profile.stacks.len(), profile.samples.iter().map(|sample| &sample.stack.0), |id| {
            profile.stacks.parent(StackId(id)).0
        });
    let mut is_used = vec![false; profile.stacks.frames().len()];
    stacks.ids().filter_map(|id| profile.stacks.leaf_id(StackId(id))).for_each(|leaf| is_used[leaf.index()] = true);
    names.all.reserve(is_used.len());
    names.ids.reserve(is_used.len());
    let mut lists = Lists::default();
    for (frame, is_used) in profile.stacks.frames().iter().zip(is_used) {
        let of_frame = if is_used { names::of(frame, profile, symbols) } else { Vec::new() };
        lists.push(of_frame.iter().rev().map(|name| names.id(&escape(name))));
    }
    lists
}

/// The walk over the names' tree.
struct Walk<'a> {
    names: &'a [String],
    lists: &'a Lists,
    list_of: &'a [u32],
    first_above: &'a [u32],
    above: &'a [u32],
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
            self.group(&mut next, &mut groups);
            for (name, range) in groups.drain(..) {
                pending.push((node, name, steps.len()));
                steps.extend(next[range].iter().map(|(_, step)| *step));
            }
            next.clear();
            let Some((parent, name, from)) = pending.pop() else { return };
            node = self.nodes.len() as NodeId;
            self.nodes.push(Node { parent, name });
            for (spot, position) in steps.drain(from..) {
                self.enter(spot, position + 1, node, &mut next);
            }
        }
    }

    /// What comes after the names of a spot up to this one, which led to `node`.
    fn enter(&mut self, spot: u32, position: u32, node: NodeId, next: &mut Vec<(u32, Step)>) {
        if let Some(name) = self.lists.get(self.list_of[spot as usize]).get(position as usize) {
            next.push((*name, (spot, position)));
            return;
        }
        self.of_spot[spot as usize] = node;
        let above = self.first_above[spot as usize] as usize..self.first_above[spot as usize + 1] as usize;
        for spot in &self.above[above] {
            match self.lists.get(self.list_of[*spot as usize]).first() {
                Some(name) => next.push((*name, (*spot, 0))),
                None => continue,
            }
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
