//! The page's data, as [the page](super) describes it.

use super::column::Column;
use super::places::Places;
use super::rows::{Group, Rows};
use crate::difference::canonical;
use crate::encode::svg;
use crate::kind::Kind;
use crate::named::Tree;
use crate::{LabelValue, Options, Profile, Symbols};
use rustc_hash::FxHashMap;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::io;

const SCHEMA: &str = "profile-recorder.page";
const VERSION: u32 = 1;

/// Pairs of profiles, base and head.
#[derive(Serialize)]
pub(super) struct Comparison<'a> {
    schema: &'static str,
    version: u32,
    pairs: &'a [(Document<'a>, Document<'a>)],
}

impl<'a> Comparison<'a> {
    pub(super) const fn new(pairs: &'a [(Document<'a>, Document<'a>)]) -> Self {
        Self { schema: "profile-recorder.comparison", version: VERSION, pairs }
    }
}

/// Everything that the page draws.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: &'static str,
    version: u32,
    title: String,
    about: String,
    start_unix_ns: i64,
    duration_ns: i64,
    comments: &'a [String],
    columns: Vec<ValueColumn<'a>>,
    first: usize,
    names: Names<'a>,
    kinds: String,
    module: Column,
    modules: Vec<&'a str>,
    canonical: Vec<(u32, String)>,
    files: Vec<String>,
    places: PlaceColumns,
    sets: Vec<Vec<u32>>,
    frames: FrameColumns,
    nodes: NodeColumns,
    threads: Vec<Thread<'a>>,
    groups: Vec<GroupEntry<'a>>,
    rows: RowColumns,
}

#[derive(Serialize)]
struct ValueColumn<'a> {
    kind: &'a str,
    unit: &'a str,
    caption: String,
    memory: bool,
    wide: bool,
}

#[derive(Serialize)]
struct PlaceColumns {
    file: Column,
    line: Column,
}

#[derive(Default, Serialize)]
struct FrameColumns {
    name: Column,
    set: Column,
}

#[derive(Serialize)]
struct NodeColumns {
    climb: Column,
    frame: Column,
}

#[derive(Serialize)]
struct Thread<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    process: &'a str,
}

#[derive(Serialize)]
struct GroupEntry<'a> {
    thread: Option<u32>,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    rows: usize,
}

#[derive(Serialize)]
struct RowColumns {
    node: Column,
    values: Vec<Column>,
}

/// The names of the tree; its root has none.
struct Names<'a>(Tree<'a>);

impl Serialize for Names<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut names = serializer.serialize_seq(Some(self.0.names().len()))?;
        self.0.names().iter().try_for_each(|name| names.serialize_element(name))?;
        names.end()
    }
}

impl<'a> Document<'a> {
    pub(super) fn new(profile: &'a Profile, symbols: &'a Symbols, options: &Options) -> io::Result<Self> {
        let first = options.column(profile)?;
        let (tree, of_stack) = Tree::with_stacks(profile, symbols, |name| Cow::Borrowed(name));
        let places = Places::new(profile, symbols, &tree, &of_stack);
        let order: Vec<_> = tree.depth_first().collect();
        let mut number = vec![0_u32; tree.len()];
        (1..).zip(&order).for_each(|(i, (node, _))| number[*node as usize] = i);
        let rows = Rows::new(profile, &tree, &number);
        let (frames, nodes) = nodes(&tree, &order, &places);
        let columns = profile.sample_types.iter().zip(&rows.wide).map(|(sample_type, wide)| ValueColumn {
            kind: &sample_type.kind,
            unit: &sample_type.unit,
            caption: svg::caption(sample_type),
            memory: sample_type.is_memory(),
            wide: *wide,
        });
        let thread = |thread: &'a crate::Thread| Thread {
            pid: thread.pid,
            tid: thread.tid,
            name: &thread.name,
            process: &thread.process,
        };
        Ok(Self {
            schema: SCHEMA,
            version: VERSION,
            title: svg::title(profile, options),
            about: about(profile),
            start_unix_ns: profile.start_unix_ns,
            duration_ns: profile.duration_ns,
            comments: &profile.comments,
            columns: columns.collect(),
            first,
            kinds: places.kinds.iter().map(|kind| kind.unwrap_or(Kind::Missing).digit()).collect(),
            module: places.module.into_iter().collect(),
            modules: places.modules,
            canonical: canonical_names(&tree),
            files: places.files,
            places: PlaceColumns {
                file: places.places.iter().map(|place| place.0).collect(),
                line: places.places.iter().map(|place| place.1).collect(),
            },
            sets: places.sets,
            frames,
            nodes,
            threads: profile.threads.iter().map(thread).collect(),
            groups: rows.groups.iter().map(GroupEntry::new).collect(),
            rows: RowColumns { node: rows.node, values: rows.values },
            names: Names(tree),
        })
    }
}

impl<'a> GroupEntry<'a> {
    fn new(group: &Group<'a>) -> Self {
        let labels = group.labels.iter().map(|label| {
            let value = match &label.value {
                LabelValue::Text(text) => Cow::Borrowed(text.as_str()),
                LabelValue::Number { value, unit: None } => Cow::Owned(value.to_string()),
                LabelValue::Number { value, unit: Some(unit) } => Cow::Owned(format!("{value} {unit}")),
            };
            (&*label.key, value)
        });
        Self { thread: group.thread.map(|id| id.0), labels: labels.collect(), rows: group.rows }
    }
}

/// The tree in depth-first order; names with their places are frames, each told once.
fn nodes(tree: &Tree<'_>, order: &[(u32, usize)], places: &Places<'_>) -> (FrameColumns, NodeColumns) {
    let mut ids: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut frames = FrameColumns::default();
    let mut nodes =
        NodeColumns { climb: Column::with_capacity(order.len()), frame: Column::with_capacity(order.len() * 2) };
    let mut depth_before = 0;
    for (node, depth) in order {
        nodes.climb.push((depth_before + 1 - depth) as u64);
        depth_before = *depth;
        let (name, set) = (tree.name_id(*node), places.of_node[*node as usize]);
        let next = ids.len() as u32;
        let frame = *ids.entry((name, set)).or_insert(next);
        if frame == next {
            frames.name.push(name.into());
            frames.set.push(set.into());
        }
        nodes.frame.push(frame.into());
    }
    (frames, nodes)
}

/// The names that a comparison knows by another.
fn canonical_names(tree: &Tree<'_>) -> Vec<(u32, String)> {
    let named = (0..).zip(tree.names()).filter_map(|(id, name)| {
        let canonical = canonical(name);
        (canonical != *name).then(|| (id, canonical.into_owned()))
    });
    named.collect()
}

fn about(profile: &Profile) -> String {
    let pids = profile.pids();
    match (&pids[..], profile.threads.first()) {
        ([pid], Some(thread)) => format!("{} (pid {pid})", thread.process),
        ([_, ..], _) => format!("{} processes", pids.len()),
        _ => String::new(),
    }
}
