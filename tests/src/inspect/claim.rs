//! What the code of a path may contain, and what it contains beyond that.

use super::graph::{Edge, Graph, Mark, Node, Reached};
use super::places::{Place, Places};
use std::collections::BTreeMap;

/// Names, each with the reason why it may be there.
pub type Reasons = &'static [(&'static str, &'static str)];

/// What the code of a path may contain besides plain instructions.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Functions that this claim does not look into.
    pub left_out: Reasons,
    /// Functions of other libraries.
    pub imports: Reasons,
    /// Variables whose pointers are called, and functions of other libraries whose results are.
    pub pointers: Reasons,
    /// Who calls a pointer of which nothing is known: a function, or a place (a beginning of a file's path, or a file and a function in it).
    pub unknown: Reasons,
    /// Places that lock the bus, if they are restricted.
    pub locks: Option<Reasons>,
    /// Functions of `capture::syscall` that may be used, if they are restricted.
    pub kernel: Option<Reasons>,
    /// Places that use the thread pointer.
    pub thread_local: Reasons,
    /// Places that all code must come from, if that is restricted, and those among them that it may not come from.
    pub sources: Option<(Reasons, Reasons)>,
    /// Whether a function that never returns may be called.
    pub panics: bool,
}

/// Whether a name is listed. Instances of a generic function and parts of a variable have the name and more.
fn has(reasons: Reasons, name: &str) -> bool {
    let same =
        |known: &str| name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':']));
    reasons.iter().any(|(known, _)| same(known))
}

fn has_place(reasons: Reasons, place: &Place) -> bool {
    reasons.iter().any(|(known, _)| match known.split_once(' ') {
        Some((file, function)) => place.file == file && place.name() == function,
        None => place.file.starts_with(known),
    })
}

fn has_any(reasons: Reasons, places: &[Place]) -> bool {
    places.iter().any(|place| has_place(reasons, place))
}

/// Something that is not allowed, by what it is and the function that does it: where first, and how often.
type Found = BTreeMap<(String, Node), (u64, usize)>;

/// Everything that a claim does not allow.
///
/// # Panics
/// If there is anything, with the ways from a root to it.
pub fn assert_allowed(graph: &Graph<'_>, roots: &[Node], allowed: &Allowed) {
    /// More are counted, not told.
    const MOST_TOLD: usize = 12;
    let left_out = |node: &Node| has(allowed.left_out, &graph.name(node));
    let reached = graph.reach(roots, |edge| !left_out(&edge.to) && !graph.diverges(&edge.to));
    let addresses: Vec<u64> = reached.instructions().map(|(_, mark)| mark.at).collect();
    let places = Places::of(graph.library, &addresses);
    let mut found = Found::new();
    let mut note = |what: String, by: &Node, at: u64| {
        found.entry((what, by.clone())).or_insert((at, 0)).1 += 1;
    };
    for edge in reached.edges().filter(|edge| !left_out(&edge.to)) {
        if !is_allowed(graph, &places, allowed, edge) {
            note(graph.name(&edge.to), &edge.from, edge.at);
        }
    }
    for (node, mark) in reached.instructions() {
        for what in refused(places.get(mark.at), allowed, mark) {
            note(what, node, mark.at);
        }
    }
    let told = found.iter().take(MOST_TOLD).map(|((what, by), (at, times))| {
        format!("{what} ({times}), first at {at:#x} {}\n  by {}", places.chain(*at), reached.path(by))
    });
    let told: Vec<String> = told.collect();
    assert!(found.is_empty(), "{} violations:\n\n{}\n", found.len(), told.join("\n\n"));
    assert_is_something(&reached, roots);
}

/// A root that was inlined away, or a list of functions to leave out that names the first of all, would make any claim true.
fn assert_is_something(reached: &Reached<'_>, roots: &[Node]) {
    assert!(reached.instructions().count() > 100 * roots.len().min(3), "{} roots reach nothing", roots.len());
}

fn is_allowed(graph: &Graph<'_>, places: &Places, allowed: &Allowed, edge: &Edge) -> bool {
    match &edge.to {
        to if graph.diverges(to) => allowed.panics,
        Node::Import(name) => has(allowed.imports, name),
        Node::Pointer(name) => has(allowed.pointers, name),
        Node::Unknown(_) => {
            has_any(allowed.unknown, places.get(edge.at)) || has(allowed.unknown, &graph.name(&edge.from))
        }
        Node::Function(_) | Node::Data(_) => true,
    }
}

/// Where the functions are that make system calls, each of another kind.
const CALLS: [&str; 2] = ["capture/src/syscall/mod.rs", "capture/src/syscall/file.rs"];

/// What an instruction does and may not.
fn refused(at: &[Place], allowed: &Allowed, mark: &Mark) -> Vec<String> {
    let mut refused = Vec::new();
    if mark.locks && allowed.locks.is_some_and(|locks| !has_any(locks, at)) {
        refused.push("a locked instruction".to_owned());
    }
    if mark.is_thread_local && !has_any(allowed.thread_local, at) {
        refused.push("the thread pointer".to_owned());
    }
    if mark.calls_kernel {
        let call = at.iter().find(|place| CALLS.contains(&&*place.file)).map(Place::name);
        if allowed.kernel.is_some_and(|kernel| !call.as_ref().is_some_and(|call| has(kernel, call))) {
            refused.push(format!("the system call of {}", call.as_deref().unwrap_or("whom?")));
        }
    }
    if let Some((sources, except)) = allowed.sources {
        // What the compiler adds has no line.
        let foreign = |place: &&Place| place.line != 0 && (!has_place(sources, place) || has_place(except, place));
        if let Some(place) = at.iter().find(foreign) {
            refused.push(format!("code of {} {}", place.file, place.name()));
        }
    }
    refused
}

/// Adds up the stack of a root.
///
/// # Panics
/// If it takes more bytes than `most`, with the functions on the deepest way.
pub fn assert_stack(graph: &Graph<'_>, root: &Node, left_out: Reasons, most: u64) {
    let reached = graph
        .reach(std::slice::from_ref(root), |edge| !has(left_out, &graph.name(&edge.to)) && !graph.diverges(&edge.to));
    let need = reached.stack(root);
    let way: Vec<String> = need.way.iter().map(|(name, bytes)| format!("{bytes:6} {name}")).collect();
    assert!(need.bytes <= most, "{} bytes of stack, where {most} are there:\n{}\n", need.bytes, way.join("\n"));
}
