//! The graph of what reaches what.
//!
//! An indirect call is resolved to what its pointer can be; a function whose address is taken counts as reached, and so does every function that data lead to whose
//! address is taken (virtual tables). What stays unresolved is an edge to [`Node::Pointer`] or [`Node::Unknown`], which a test has to explain.

use super::edges;
use super::library::Library;
use super::places::Places;
use super::stack::{self, Need};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What can be reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// The function that begins at this address.
    Function(u64),
    /// Data at this address that hold addresses of functions.
    Data(u64),
    /// A function of another library.
    Import(String),
    /// Whatever the static variable of this name points to, or the dynamic symbol of this name returned.
    Pointer(String),
    /// A pointer of which nothing is known, in the function that begins at this address.
    Unknown(u64),
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A call.
    Call,
    /// A jump to another function: a call in the place of a return.
    Jump,
    /// An indirect one, to what its pointer can be.
    Pointer,
    /// Its address is taken.
    Address,
}

/// A step in the graph.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Where from.
    pub from: Node,
    /// The instruction; for data the slot.
    pub at: u64,
    /// Where to.
    pub to: Node,
    /// How.
    pub via: Via,
    /// Bytes of stack that the function has taken there.
    pub stack: u64,
}

/// Functions of other libraries that do not return.
const NEVER_RETURN: [&str; 5] = ["abort", "_exit", "exit", "_Unwind_Resume", "__stack_chk_fail"];

/// The whole library.
pub struct Graph<'a> {
    /// The library.
    pub library: &'a Library,
    pub(super) edges: BTreeMap<Node, Vec<Edge>>,
    /// Instructions, by function.
    pub(super) instructions: BTreeMap<u64, Vec<Mark>>,
    /// Bytes of stack that a function takes at most.
    pub(super) frames: BTreeMap<u64, u64>,
    /// Functions that never return.
    pub(super) diverging: BTreeSet<u64>,
}

/// An instruction, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Its address.
    pub at: u64,
    /// It locks the bus.
    pub locks: bool,
    /// It uses the thread pointer.
    pub is_thread_local: bool,
    /// It calls the kernel.
    pub calls_kernel: bool,
}

impl<'a> Graph<'a> {
    /// Decodes all of the library's code.
    pub fn new(library: &'a Library) -> Self {
        edges::build(library)
    }

    /// The function of this name, as the compiler demangles it.
    ///
    /// # Panics
    /// If there is not exactly one.
    pub fn function(&self, name: &str) -> Node {
        let mut found = self.library.functions().filter(|f| f.name == name);
        let function = found.next().unwrap_or_else(|| panic!("there is no function {name}"));
        assert!(found.next().is_none(), "there are several functions {name}");
        Node::Function(function.start)
    }

    /// A node's name.
    pub fn name(&self, node: &Node) -> String {
        match node {
            Node::Function(at) => self.library.function_at(*at).map_or_else(|| format!("{at:#x}"), |f| f.name.clone()),
            Node::Data(at) => self.library.name_of_data(*at),
            Node::Import(name) => format!("{name} (dynamic symbol)"),
            Node::Pointer(name) => format!("whatever {name} gives"),
            Node::Unknown(_) => "an unknown pointer".to_owned(),
        }
    }

    /// Whether a node never returns: a panic, an abort.
    pub fn diverges(&self, node: &Node) -> bool {
        match node {
            Node::Function(start) => self.diverging.contains(start),
            Node::Import(name) => NEVER_RETURN.contains(&name.as_str()),
            _ => false,
        }
    }

    /// Edges that leave a node.
    pub fn edges(&self, node: &Node) -> &[Edge] {
        self.edges.get(node).map_or(&[], Vec::as_slice)
    }

    /// All that the roots reach by edges that `follow` allows.
    pub fn reach(&self, roots: &[Node], mut follow: impl FnMut(&Edge) -> bool) -> Reached<'_> {
        let mut parents: BTreeMap<Node, Option<&Edge>> = roots.iter().map(|root| (root.clone(), None)).collect();
        let mut open: VecDeque<Node> = roots.iter().cloned().collect();
        while let Some(node) = open.pop_front() {
            for edge in self.edges(&node) {
                if !parents.contains_key(&edge.to) && follow(edge) {
                    parents.insert(edge.to.clone(), Some(edge));
                    open.push_back(edge.to.clone());
                }
            }
        }
        Reached { graph: self, parents }
    }
}

/// What was reached, and how.
pub struct Reached<'g> {
    graph: &'g Graph<'g>,
    parents: BTreeMap<Node, Option<&'g Edge>>,
}

impl Reached<'_> {
    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.parents.keys()
    }

    /// Whether a node was reached.
    pub fn contains(&self, node: &Node) -> bool {
        self.parents.contains_key(node)
    }

    /// Names of the functions that were reached.
    pub fn functions(&self) -> Vec<String> {
        let functions = self.parents.keys().filter(|node| matches!(node, Node::Function(_)));
        functions.map(|node| self.graph.name(node)).collect()
    }

    /// The instructions of all functions that were reached.
    pub fn instructions(&self) -> impl Iterator<Item = (&Node, &Mark)> {
        self.parents.keys().flat_map(|node| {
            let marks = if let Node::Function(start) = node { self.graph.instructions.get(start) } else { None };
            marks.into_iter().flatten().map(move |mark| (node, mark))
        })
    }

    /// The edges that leave what was reached, followed or not.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.parents.keys().flat_map(|node| self.graph.edges(node))
    }

    /// The stack that a root takes with all that was reached.
    pub fn stack(&self, root: &Node) -> Need {
        stack::need(self.graph, self, root)
    }

    /// A shortest way from a root to a node, a line each step, with its places in the source.
    pub fn path(&self, node: &Node) -> String {
        let mut steps = Vec::new();
        let mut at = node;
        while let Some(Some(edge)) = self.parents.get(at) {
            steps.push(*edge);
            at = &edge.from;
        }
        steps.reverse();
        let code = steps.iter().filter(|edge| matches!(edge.from, Node::Function(_)));
        let places = Places::of(self.graph.library, &code.map(|edge| edge.at).collect::<Vec<_>>());
        let mut text = self.graph.name(at);
        for edge in steps {
            let (to, place) = (self.graph.name(&edge.to), places.chain(edge.at));
            text += &format!("\n    {:?} to {to} at {:#x} {place}", edge.via, edge.at);
        }
        text
    }
}
