//! Makes the edges: what each instruction of the library refers to.

use super::code::{Body, flow_of, is_locked, is_thread_local};
use super::graph::{Edge, Graph, Mark, Node, Via};
use super::library::Library;
use super::origin::{self, Origin};
use super::stack;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use std::collections::{BTreeMap, BTreeSet};

/// What a static variable of pointer size gets.
#[derive(Default)]
struct Stores {
    origins: BTreeSet<Origin>,
    /// Its address is taken, so others may write it.
    escapes: bool,
}

struct Builder<'a> {
    library: &'a Library,
    /// Where data begin.
    starts: BTreeSet<u64>,
    stores: BTreeMap<u64, Stores>,
    /// Bytes of stack taken at the instruction at hand.
    stack: u64,
    graph: Graph<'a>,
}

/// Decodes all of the library's code.
pub(super) fn build(library: &Library) -> Graph<'_> {
    let bodies: Vec<(u64, Body)> = library.functions().map(|f| (f.start, Body::decode(library, f))).collect();
    let graph = Graph {
        library,
        edges: BTreeMap::new(),
        instructions: BTreeMap::new(),
        frames: BTreeMap::new(),
        diverging: BTreeSet::new(),
    };
    let mut builder = Builder { library, starts: library.data_starts(), stores: BTreeMap::new(), stack: 0, graph };
    for (_, body) in &bodies {
        builder.note_data(body);
    }
    for (start, body) in &bodies {
        builder.add(*start, body);
    }
    builder.find_diverging(&bodies);
    builder.graph
}

impl Builder<'_> {
    /// Notes where data begin, and what is stored into static variables.
    fn note_data(&mut self, body: &Body) {
        for (at, instruction) in body.instructions.iter().enumerate() {
            if !instruction.is_ip_rel_memory_operand() {
                continue;
            }
            let address = instruction.ip_rel_memory_address();
            if instruction.mnemonic() == Mnemonic::Lea {
                if !self.library.is_code(address) {
                    self.starts.insert(address);
                    self.stores.entry(address).or_default().escapes = true;
                }
            } else if instruction.op0_kind() == OpKind::Memory {
                // `mov [static], register`, `xchg`, `cmpxchg`; comparisons store nothing.
                let stores = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Xchg | Mnemonic::Cmpxchg);
                if stores && instruction.op1_kind() == OpKind::Register && instruction.op1_register().is_gpr64() {
                    let origins = origin::of_register(self.library, body, at, instruction.op1_register());
                    self.stores.entry(address).or_default().origins.extend(origins);
                }
            }
        }
    }

    fn add(&mut self, start: u64, body: &Body) {
        let from = Node::Function(start);
        let depths = stack::depths(body);
        let calls = |i: &Instruction| matches!(flow_of(i), FlowControl::Call | FlowControl::IndirectCall);
        let red_zone = if body.instructions.iter().any(calls) { 0 } else { stack::RED_ZONE };
        self.graph.frames.insert(start, depths.iter().copied().max().unwrap_or(0) + red_zone);
        for (at, instruction) in body.instructions.iter().enumerate() {
            let ip = instruction.ip();
            self.stack = depths[at];
            let mark = Mark {
                at: ip,
                locks: is_locked(instruction),
                is_thread_local: is_thread_local(instruction),
                calls_kernel: instruction.mnemonic() == Mnemonic::Syscall,
            };
            self.graph.instructions.entry(start).or_default().push(mark);
            match flow_of(instruction) {
                FlowControl::Call => self.add_address(&from, ip, instruction.near_branch_target(), Via::Call),
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    self.add_address(&from, ip, instruction.near_branch_target(), Via::Jump);
                }
                FlowControl::IndirectCall => self.add_indirect(start, body, at),
                FlowControl::IndirectBranch if !body.switches.contains(&at) => self.add_indirect(start, body, at),
                _ if instruction.is_ip_rel_memory_operand() => {
                    let address = instruction.ip_rel_memory_address();
                    if instruction.mnemonic() == Mnemonic::Lea {
                        self.add_address(&from, ip, address, Via::Address);
                    } else {
                        self.add_slot(&from, ip, address);
                    }
                }
                _ => {}
            }
        }
    }

    /// A function returns if it has a return, or jumps to one that does.
    fn find_diverging(&mut self, bodies: &[(u64, Body)]) {
        let leaves = |body: &Body, at: usize, instruction: &Instruction| match flow_of(instruction) {
            FlowControl::Return => true,
            FlowControl::IndirectBranch => !body.switches.contains(&at),
            _ => false,
        };
        let returning = bodies.iter().filter(|(_, body)| {
            let mut instructions = body.instructions.iter().enumerate();
            instructions.any(|(at, instruction)| leaves(body, at, instruction))
        });
        let mut returning: BTreeSet<u64> = returning.map(|(start, _)| *start).collect();
        loop {
            let jumps_to_returning = |start: &u64| {
                let mut jumps = self.graph.edges(&Node::Function(*start)).iter().filter(|e| e.via == Via::Jump);
                jumps.any(|edge| match &edge.to {
                    Node::Function(to) => returning.contains(to),
                    to => !self.graph.diverges(to),
                })
            };
            let all = bodies.iter().map(|(start, _)| *start);
            let more: Vec<u64> = all.filter(|s| !returning.contains(s)).filter(jumps_to_returning).collect();
            if more.is_empty() {
                break;
            }
            returning.extend(more);
        }
        self.graph.diverging = bodies.iter().map(|(start, _)| *start).filter(|s| !returning.contains(s)).collect();
    }

    fn push(&mut self, from: &Node, at: u64, to: Node, via: Via) {
        let edge = Edge { from: from.clone(), at, to, via, stack: self.stack };
        self.graph.edges.entry(from.clone()).or_default().push(edge);
    }

    /// What a slot holds that code loads.
    fn add_slot(&mut self, from: &Node, at: u64, slot: u64) {
        if let Some(name) = self.library.import(slot).map(str::to_owned) {
            self.add_import(from, at, name, Via::Address);
        } else if let Some(to) = self.library.relative(slot) {
            self.add_address(from, at, to, Via::Address);
        }
    }

    fn add_import(&mut self, from: &Node, at: u64, name: String, via: Via) {
        // The dynamic linker may bind the library's own symbol to another library's.
        if let Some(own) = self.library.export_start(&name) {
            self.push(from, at, Node::Function(own), via);
        }
        self.push(from, at, Node::Import(name), via);
    }

    fn add_address(&mut self, from: &Node, at: u64, address: u64, via: Via) {
        if let Some(name) = self.library.linkage(address).map(str::to_owned) {
            self.add_import(from, at, name, via);
        } else if self.library.is_code(address) {
            let function = self.library.function_at(address).map(|f| f.start);
            let function =
                function.unwrap_or_else(|| panic!("{at:#x} refers to code without a function: {address:#x}"));
            if Node::Function(function) != *from {
                self.push(from, at, Node::Function(function), via);
            }
        } else if self.add_data(address) {
            self.push(from, at, Node::Data(address), Via::Address);
        }
    }

    /// Whether data at an address lead to functions; the edges are added.
    fn add_data(&mut self, address: u64) -> bool {
        let node = Node::Data(address);
        if let Some(edges) = self.graph.edges.get(&node) {
            return !edges.is_empty();
        }
        self.graph.edges.insert(node.clone(), Vec::new());
        let Some(end) = self.library.end_of_data(address) else { return false };
        let next = self.starts.range(address + 1..).next().copied().unwrap_or(end);
        let targets: Vec<u64> = self.library.relatives(address, end.min(next)).collect();
        for target in targets {
            self.add_address(&node, address, target, Via::Address);
        }
        !self.graph.edges[&node].is_empty()
    }

    fn add_indirect(&mut self, start: u64, body: &Body, at: usize) {
        let (from, ip) = (Node::Function(start), body.instructions[at].ip());
        for origin in origin::of_call(self.library, body, at) {
            match origin {
                Origin::Address(address) => self.add_address(&from, ip, address, Via::Pointer),
                Origin::Import(name) => self.add_import(&from, ip, name, Via::Call),
                Origin::Static(variable) | Origin::Behind(variable) => self.add_variable(&from, ip, variable),
                Origin::Result(name) => self.push(&from, ip, Node::Pointer(name), Via::Pointer),
                Origin::Unknown => self.push(&from, ip, Node::Unknown(start), Via::Pointer),
            }
        }
    }

    /// A call through a static variable: to all that is ever stored there, if that is known.
    fn add_variable(&mut self, from: &Node, at: u64, variable: u64) {
        let stores = self.stores.get(&variable).filter(|stores| !stores.escapes && !stores.origins.is_empty());
        let addresses: Option<Vec<u64>> = stores.and_then(|stores| {
            let addresses = stores.origins.iter();
            addresses.map(|o| if let Origin::Address(a) = o { Some(*a) } else { None }).collect()
        });
        match addresses {
            Some(addresses) => {
                addresses.into_iter().for_each(|address| self.add_address(from, at, address, Via::Pointer));
            }
            None => self.push(from, at, Node::Pointer(self.library.name_of_data(variable)), Via::Pointer),
        }
    }
}
