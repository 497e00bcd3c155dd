//! Bytes of stack: what a function has taken at each of its instructions, and what a root takes with all that it calls.

use super::code::{Body, flow_of};
use super::graph::{Edge, Graph, Node, Reached, Via};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes between the stack pointer and the return address, before each instruction.
pub(super) fn depths(body: &Body) -> Vec<u64> {
    let frame_pointer = FramePointer::of(body);
    let mut known: Vec<Option<i64>> = vec![None; body.instructions.len()];
    if let Some(entry) = known.first_mut() {
        *entry = Some(0);
    }
    // In the order of their addresses most have a known one before them; loops and late blocks take another round.
    loop {
        let mut more = false;
        for at in 0..known.len() {
            if known[at].is_some() {
                continue;
            }
            let mut before = body.before(at).iter().copied();
            let depth = before.find_map(|b| Some(after(&body.instructions[b], known[b]?, frame_pointer)));
            more |= depth.is_some();
            known[at] = depth;
        }
        if !more {
            break;
        }
    }
    // Where a panic would land nothing is known: as deep as the function ever is.
    let deepest = known.iter().flatten().copied().max().unwrap_or(0);
    known.into_iter().map(|depth| u64::try_from(depth.unwrap_or(deepest)).unwrap_or(0)).collect()
}

/// Depth to which the frame pointer points, in a function that has one.
#[derive(Clone, Copy)]
struct FramePointer(Option<i64>);

impl FramePointer {
    fn of(body: &Body) -> Self {
        let mut depth = 0;
        for instruction in &body.instructions {
            if instruction.mnemonic() == Mnemonic::Push {
                depth += 8;
            } else if instruction.mnemonic() == Mnemonic::Mov
                && (instruction.op0_register(), instruction.op1_register()) == (Register::RBP, Register::RSP)
            {
                return Self(Some(depth));
            } else if instruction.op0_register() == Register::RSP {
                break;
            }
        }
        Self(None)
    }
}

/// Depth after an instruction.
fn after(instruction: &Instruction, depth: i64, FramePointer(frame): FramePointer) -> i64 {
    if matches!(flow_of(instruction), FlowControl::Call | FlowControl::IndirectCall) {
        return depth;
    }
    let to_stack_pointer = instruction.op_count() > 0 && instruction.op0_register() == Register::RSP;
    let immediate = match instruction.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => Some(instruction.immediate(1) as i64),
        _ => None,
    };
    match (instruction.mnemonic(), immediate) {
        (Mnemonic::Sub, Some(bytes)) if to_stack_pointer => depth + bytes,
        (Mnemonic::Add, Some(bytes)) if to_stack_pointer => depth - bytes,
        // Alignment may take so many.
        (Mnemonic::And, Some(mask)) if to_stack_pointer => depth + !mask,
        (Mnemonic::Mov, _) if to_stack_pointer && instruction.op1_register() == Register::RBP => frame.unwrap_or(depth),
        (Mnemonic::Lea, _) if to_stack_pointer => {
            let displacement = instruction.memory_displacement64() as i64;
            match instruction.memory_base() {
                Register::RBP => frame.unwrap_or(depth) - displacement,
                _ => depth - displacement,
            }
        }
        // The pages of a large frame are touched one after the other, down to this address.
        (Mnemonic::Lea, _)
            if instruction.op0_register() == Register::R11
                && instruction.memory_base() == Register::RSP
                && (instruction.memory_displacement64() as i64) < -4096 =>
        {
            depth - instruction.memory_displacement64() as i64 - 4096
        }
        (Mnemonic::Leave, _) => frame.map_or(0, |frame| frame - 8),
        _ => depth - i64::from(instruction.stack_pointer_increment()),
    }
}

/// What a function that calls nothing may use below its stack pointer.
pub(super) const RED_ZONE: u64 = 128;
/// A return address.
const CALL: u64 = 8;
/// What a function of another library takes: one that copies or stores something.
const IMPORT: u64 = 128;

/// The deepest way through what was reached.
#[derive(Clone, Debug, Default)]
pub struct Need {
    /// Bytes below the stack pointer at the root's entry.
    pub bytes: u64,
    /// The functions on that way, each with what it has taken when it calls the next one.
    pub way: Vec<(String, u64)>,
    /// Functions that call themselves, over others or not: counted once.
    pub recursive: BTreeSet<String>,
}

/// Adds up the stack of a root. A pointer of which nothing is known calls any function whose address is taken in what was reached.
pub(super) fn need(graph: &Graph<'_>, reached: &Reached<'_>, root: &Node) -> Need {
    let taken = reached.edges().filter(|edge| edge.via == Via::Address && reached.contains(&edge.to));
    let taken: BTreeSet<Node> =
        taken.map(|edge| edge.to.clone()).filter(|to| matches!(to, Node::Function(_))).collect();
    let mut adding =
        Adding { graph, reached, taken, known: BTreeMap::new(), open: Vec::new(), recursive: BTreeSet::new() };
    let (bytes, way) = adding.of(root);
    Need { bytes, way, recursive: adding.recursive }
}

type Way = Vec<(String, u64)>;

struct Adding<'g> {
    graph: &'g Graph<'g>,
    reached: &'g Reached<'g>,
    taken: BTreeSet<Node>,
    known: BTreeMap<Node, (u64, Way)>,
    open: Vec<Node>,
    recursive: BTreeSet<String>,
}

impl Adding<'_> {
    fn of(&mut self, node: &Node) -> (u64, Way) {
        if let Some(known) = self.known.get(node) {
            return known.clone();
        }
        if self.open.contains(node) {
            self.recursive.insert(self.graph.name(node));
            return (0, Vec::new());
        }
        let Node::Function(start) = node else { return (IMPORT, vec![(self.graph.name(node), IMPORT)]) };
        self.open.push(node.clone());
        let frame = self.graph.frames.get(start).copied().unwrap_or(0);
        let mut deepest = (frame, vec![(self.graph.name(node), frame)]);
        for edge in self.graph.edges(node) {
            for callee in self.callees(edge) {
                let (below, way) = self.of(&callee);
                let address = if edge.via == Via::Jump { 0 } else { CALL };
                let bytes = edge.stack + address + below;
                if bytes > deepest.0 {
                    let own = (self.graph.name(node), edge.stack + address);
                    deepest = (bytes, [own].into_iter().chain(way).collect());
                }
            }
        }
        self.open.pop();
        self.known.insert(node.clone(), deepest.clone());
        deepest
    }

    fn callees(&self, edge: &Edge) -> Vec<Node> {
        match (&edge.to, edge.via) {
            (Node::Unknown(_), _) => self.taken.iter().cloned().collect(),
            // What is called there takes the same without us.
            (Node::Pointer(_) | Node::Data(_), _) | (_, Via::Address) => Vec::new(),
            (to, _) if self.reached.contains(to) => vec![to.clone()],
            _ => Vec::new(),
        }
    }
}
