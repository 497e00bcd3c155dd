//! Where in its source each node of the tree is: a function can stand at one place of the tree on several lines.

use crate::kind::Kind;
use crate::named::{NONE, NodeId, Tree};
use crate::sites::{self, Level};
use crate::{Frame, Profile, StackId, Symbols};
use rustc_hash::FxHashMap;

/// More places of one node are not told.
const MOST: usize = 16;

/// A number of a place, beginning with 1, or of a set of them; 0 is none.
type Set = u32;

/// What is known of names and nodes beyond the tree.
#[derive(Debug, Default)]
pub(super) struct Places<'a> {
    /// The kind of each name; `None`: it is no frame's.
    pub(super) kinds: Vec<Option<Kind>>,
    /// The module of each name, a number in `modules`.
    pub(super) module: Vec<u32>,
    pub(super) modules: Vec<&'a str>,
    pub(super) files: Vec<String>,
    /// File and line of each place.
    pub(super) places: Vec<(u32, u32)>,
    /// The places of each set that is not a single one.
    pub(super) sets: Vec<Vec<u32>>,
    /// The set of each node.
    pub(super) of_node: Vec<Set>,
}

/// What a level of a frame adds to the node that it is.
#[derive(Clone, Copy)]
struct Found {
    place: u32,
    kind: Kind,
    module: u32,
}

impl<'a> Places<'a> {
    pub(super) fn new(profile: &'a Profile, symbols: &Symbols, tree: &Tree<'_>, of_stack: &[NodeId]) -> Self {
        let mut places = Self {
            kinds: vec![None; tree.names().len()],
            module: vec![0; tree.names().len()],
            modules: vec![""],
            of_node: vec![0; tree.len()],
            ..Self::default()
        };
        let (found, ends) = places.find(profile, symbols);
        let mut more: FxHashMap<NodeId, Vec<u32>> = FxHashMap::default();
        for (stack, node) in of_stack.iter().enumerate().filter(|(_, node)| **node != NONE) {
            let Some(frame) = profile.stacks.leaf_id(StackId(stack as u32)) else { continue };
            let first = frame.index().checked_sub(1).map_or(0, |before| ends[before]);
            let mut node = *node;
            for level in &found[first..ends[frame.index()]] {
                places.enter(tree, node, *level, &mut more);
                node = tree.parent(node);
            }
        }
        let mut ids: FxHashMap<Vec<u32>, Set> = FxHashMap::default();
        let mut nodes: Vec<(NodeId, Vec<u32>)> = more.into_iter().collect();
        nodes.sort_unstable();
        for (node, mut set) in nodes {
            set.sort_unstable();
            let next = (places.places.len() + ids.len() + 1) as Set;
            let id = *ids.entry(set.clone()).or_insert(next);
            if id == next {
                places.sets.push(set);
            }
            places.of_node[node as usize] = id;
        }
        places
    }

    /// The levels of all frames, innermost first, and where those of each end.
    fn find(&mut self, profile: &'a Profile, symbols: &Symbols) -> (Vec<Found>, Vec<usize>) {
        let mut files: FxHashMap<std::sync::Arc<str>, u32> = FxHashMap::default();
        let mut places: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut modules: FxHashMap<&str, u32> = FxHashMap::default();
        let (mut found, mut ends) = (Vec::new(), Vec::new());
        for frame in profile.stacks.frames() {
            let module = match frame {
                Frame::Address { mapping: Some(id), .. } => {
                    profile.mapping(*id).map_or("", |mapping| mapping.file_name())
                }
                _ => "",
            };
            let number = match module {
                "" => 0,
                module => *modules.entry(module).or_insert_with(|| {
                    self.modules.push(module);
                    self.modules.len() as u32 - 1
                }),
            };
            for level in sites::of_frame(profile, symbols, frame) {
                let kind = Kind::of(profile, symbols, frame, &level);
                let Level { file, line, .. } = level;
                let place = file.map_or(0, |file| {
                    let file = *files.entry(file).or_insert_with_key(|file| {
                        self.files.push(file.to_string());
                        self.files.len() as u32 - 1
                    });
                    *places.entry((file, line)).or_insert_with(|| {
                        self.places.push((file, line));
                        self.places.len() as u32
                    })
                });
                found.push(Found { place, kind, module: number });
            }
            ends.push(found.len());
        }
        (found, ends)
    }

    fn enter(&mut self, tree: &Tree<'_>, node: NodeId, level: Found, more: &mut FxHashMap<NodeId, Vec<u32>>) {
        let name = tree.name_id(node) as usize;
        if self.kinds[name].is_none() {
            (self.kinds[name], self.module[name]) = (Some(level.kind), level.module);
        }
        let place = &mut self.of_node[node as usize];
        match (*place, level.place) {
            (_, 0) => {}
            (0, new) => *place = new,
            (known, new) if known == new => {}
            (known, new) => {
                let set = more.entry(node).or_insert_with(|| vec![known]);
                if set.len() < MOST && !set.contains(&new) {
                    set.push(new);
                }
            }
        }
    }
}
