//! Nodes of the store's call trees, each brought to its stack in the profile of its tree.

use super::syscalls;
use crate::{AddressKind, Frame, FrameId, Label, Labels, Mapping, MappingId, StackId, Stacks, Svma};
use layout::{ModuleFields, ModuleIndex, NodeFields, Pseudo, RecordId, Root, State, View};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;

/// Where a node stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) root: Root,
    /// Record of the thread; none for what belongs to no known thread.
    pub(super) thread: RecordId,
    pub(super) stack: StackId,
    pub(super) state: Option<State>,
    pub(super) system_call: Option<u32>,
    /// The thread's label set; none if there was none.
    set: RecordId,
}

impl Place {
    fn own_labels(self) -> impl Iterator<Item = Label> {
        let state = self.state.map(|state| {
            Label::text(
                "state",
                match state {
                    State::OnCpu => "on-cpu",
                    State::Runnable => "runnable",
                    State::OffCpu => "off-cpu",
                },
            )
        });
        let system_call = self.system_call.map(|number| {
            Label::text("syscall", syscalls::name(number).map_or_else(|| number.to_string(), str::to_owned))
        });
        state.into_iter().chain(system_call)
    }
}

/// The modules of a store.
pub(super) struct Modules {
    /// In the order in which profiles list them: the executable first.
    pub(super) mappings: Vec<Mapping>,
    ids: FxHashMap<ModuleIndex, MappingId>,
    own: FxHashSet<ModuleIndex>,
}

impl Modules {
    pub(super) fn new(view: &View<'_>, exe: &str) -> Self {
        let (mut found, mut own) = (Vec::new(), FxHashSet::default());
        for (_, _, module) in view.records::<ModuleFields>() {
            let index = u16::try_from(module.index).ok().and_then(ModuleIndex::new).filter(|i| *i != ModuleIndex::NONE);
            let Some(index) = index else { continue };
            if module.own == 1 {
                own.insert(index);
                continue;
            }
            found.push((index, mapping(view, &module)));
        }
        found.sort_by_key(|(index, mapping)| (mapping.path != exe, *index));
        found.dedup_by_key(|(index, _)| *index);
        let ids = found.iter().zip(0..).map(|((index, _), id)| (*index, MappingId(id))).collect();
        Self { mappings: found.into_iter().map(|(_, mapping)| mapping).collect(), ids, own }
    }
}

fn mapping(view: &View<'_>, module: &ModuleFields) -> Mapping {
    // No path is longer, but a damaged length could make each one as long as the store.
    let length = (module.path_length as usize).min(layout::CHUNK);
    let path = view.text(RecordId(module.path), length).unwrap_or_default();
    let build_id = module.build_id.iter().flat_map(|word| word.to_le_bytes());
    Mapping {
        start: module.start_avma,
        end: module.end_avma,
        file_offset: module.file_offset,
        bias: module.bias,
        path: String::from_utf8_lossy(path).into_owned(),
        build_id: build_id.take(module.build_id_length as usize).collect(),
    }
}

/// The places of nodes that were looked at.
struct Places {
    /// By the node's id: 0 if it was not looked at, [`NOWHERE`] if it cannot be read, or something between it and its root cannot, and else 1 more than where it is among `all`.
    of: Vec<u32>,
    all: Vec<Place>,
}

const NOWHERE: u32 = u32::MAX;

impl Places {
    fn new(view: &View<'_>) -> Self {
        Self { of: vec![0; view.end().0 as usize], all: Vec::new() }
    }

    /// `None` if the node was not looked at.
    fn get(&self, node: RecordId) -> Option<Option<Place>> {
        match self.of.get(node.0 as usize).copied().unwrap_or(NOWHERE) {
            0 => None,
            at => Some(self.all.get(at as usize - 1).copied()),
        }
    }

    /// A node that lies in the store.
    fn set(&mut self, node: RecordId, place: Option<Place>) {
        let Some(of) = self.of.get_mut(node.0 as usize) else { return };
        *of = match place {
            Some(place) => {
                self.all.push(place);
                self.all.len() as u32
            }
            None => NOWHERE,
        };
    }
}

/// Brings nodes to their places, each once.
pub(super) struct Nodes<'a> {
    view: View<'a>,
    modules: &'a Modules,
    /// The stacks of each tree's profile, by the number of its [`Root`].
    pub(super) stacks: [Stacks; 4],
    places: Places,
    /// The frames of each tree's profile, by those of the store.
    frames: [FxHashMap<layout::Frame, FrameId>; 4],
    /// The labels of places that have the same ones.
    labels: FxHashMap<OfPlace, Option<Labels>>,
}

/// What the labels of a place follow from: its label set, its state and its system call.
type OfPlace = (RecordId, Option<State>, Option<u32>);

impl<'a> Nodes<'a> {
    pub(super) fn new(view: View<'a>, modules: &'a Modules) -> Self {
        Self {
            view,
            modules,
            stacks: Default::default(),
            places: Places::new(&view),
            frames: Default::default(),
            labels: FxHashMap::default(),
        }
    }

    /// The place of a node; `None` if it cannot be told.
    pub(super) fn place(&mut self, node: RecordId) -> Option<Place> {
        let mut unknown: Vec<(RecordId, NodeFields)> = Vec::new();
        let mut at = node;
        let mut place = loop {
            if let Some(known) = self.places.get(at) {
                break known;
            }
            let Some(fields) = self.view.get::<NodeFields>(at).filter(|fields| fields.frame != 0) else { break None };
            // Until the way down is known there is none: a corrupt store can lead in circles.
            self.places.set(at, None);
            let parent = RecordId(fields.parent);
            unknown.push((at, fields));
            if parent.is_none() {
                break None;
            }
            at = parent;
        };
        for (id, fields) in unknown.into_iter().rev() {
            place = self.child(place, &fields);
            self.places.set(id, place);
        }
        place
    }

    fn child(&mut self, parent: Option<Place>, fields: &NodeFields) -> Option<Place> {
        let frame = layout::Frame::from_bits(fields.frame);
        let pseudo = frame.as_pseudo();
        if let (Some(Pseudo::Root(root, thread)), 0) = (pseudo, fields.parent) {
            return Some(Place {
                root,
                thread,
                stack: Stacks::ROOT,
                state: None,
                system_call: None,
                set: RecordId::NONE,
            });
        }
        let mut place = parent?;
        match pseudo {
            Some(Pseudo::Root(..)) => return None,
            Some(Pseudo::State(state)) => place.state = Some(state),
            Some(Pseudo::SystemCall(number)) => place.system_call = Some(number),
            Some(Pseudo::Labels(set)) => place.set = set,
            None if !frame.is_pseudo() && self.modules.own.contains(&frame.module()) => {}
            _ => {
                let frame = self.frame(place.root, frame)?;
                place.stack = self.stacks[place.root as usize].push(place.stack, frame);
            }
        }
        Some(place)
    }

    /// The frame of a tree's profile that this one is; `None` if it is not known what it means.
    fn frame(&mut self, root: Root, frame: layout::Frame) -> Option<FrameId> {
        if let Some(known) = self.frames[root as usize].get(&frame) {
            return Some(*known);
        }
        let shown = match frame.as_pseudo() {
            Some(Pseudo::Function(function)) => Frame::named(function.name()),
            Some(Pseudo::Truncated(reason)) => Frame::Named(Cow::Owned(format!("[truncated: {}]", reason.reason()))),
            Some(Pseudo::Lost(reason)) => lost_frame(reason),
            Some(_) => return None,
            None if frame.is_pseudo() => return None,
            None => self.address(frame),
        };
        let id = self.stacks[root as usize].frame_id(shown);
        self.frames[root as usize].insert(frame, id);
        Some(id)
    }

    /// The labels of a place in a fixed order. `None` if its label set cannot be read.
    pub(super) fn labels(&mut self, place: Place) -> Option<Labels> {
        let view = self.view;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let read = || {
            let set = if place.set.is_none() { None } else { Some(view.labels(place.set)?) };
            let set = set.into_iter().flatten().map(|(key, value)| Label::text(text(key), text(value)));
            let mut labels: Vec<Label> = set.chain(place.own_labels()).collect();
            labels.sort_unstable();
            Some(labels.into())
        };
        self.labels.entry((place.set, place.state, place.system_call)).or_insert_with(read).clone()
    }

    fn address(&self, frame: layout::Frame) -> Frame {
        let kind = if frame.is_instruction() { AddressKind::Instruction } else { AddressKind::ReturnAddress };
        let mapping = self.modules.ids.get(&frame.module()).copied();
        let svma = match mapping {
            Some(id) => self.modules.mappings[id.index()].to_svma(frame.avma()),
            None => Svma(frame.avma()),
        };
        Frame::Address { mapping, svma, kind }
    }
}

/// What stands for a stack that was not kept.
pub(super) fn lost_frame(reason: layout::Lost) -> Frame {
    Frame::Named(Cow::Owned(format!("[lost: {}]", reason.reason())))
}
