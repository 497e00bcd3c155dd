//! The walkers under comparison. Each is ready, so that a walk does what it would do in a signal handler and no more.

use crate::objects;
use capture::kept::Kept;
use capture::probed::Probed;
use capture::rules::{self, InHandler};
use capture::stack::{Bounds, StackMemory};
use capture::thread::{self, Recording};
use capture::tree::Tree;
use capture::{modules, region, walk};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder};
use layout::{Frame, Function, Node, RecordId, Root};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;
use unwind::FrameAddress;
use unwind::arch::Registers;
use unwind::build::{Section, build_piece};

/// Most frames of a stack that is walked here.
pub const MAX_FRAMES: usize = 256;

/// A way to walk the calling thread's stack.
pub trait StackWalker {
    /// What the tables call it.
    fn name(&self) -> &'static str;

    /// Walks from a frame with these registers.
    fn walk(&mut self, registers: Registers);

    /// The addresses that the last walk found, leaf first.
    fn frames(&self) -> Vec<u64>;
}

/// All of them, ours first.
pub fn all() -> Vec<Box<dyn StackWalker>> {
    set_up_capture();
    let here = 0_u64;
    let stack = Bounds::of_current_thread(&raw const here as u64);
    let thread = thread::record_for(1, b"bench").expect("a store has room for a thread");
    vec![
        Box::new(Ours { recording: Box::default(), stack }),
        Box::new(OursInTree { ours: Ours { recording: Box::default(), stack }, thread, node: RecordId::NONE }),
        Box::new(OursKept::new(stack, thread)),
        Box::new(Framehop::new(stack)),
        Box::new(Backtrace { frames: [0; MAX_FRAMES], count: 0 }),
    ]
}

/// The recorder's modules, tables and rule cache, as a session that samples time sets them up.
fn set_up_capture() {
    static BUILDER: modules::Builder = modules::Builder {
        piece: |header, bias, from, to, publish| {
            let (table, _) = build_piece::<Registers>(header, Probed::new(), bias, (from, to));
            publish(&table.pcs, &table.rules, &table.interned);
        },
        // Everything that is walked here has its frame information in memory.
        file: |_, _| (),
    };
    modules::set_builder(&BUILDER);
    let purpose =
        region::Purpose { modes: layout::modes::CPU, budget_bytes: 64 << 20, alloc_interval_bytes: 0, period_ns: 0 };
    region::open(&purpose, None).expect("memory for a store");
    rules::set_up();
    modules::refresh();
}

/// Ours: the walk of the tick handler.
struct Ours {
    recording: Box<Recording>,
    stack: Bounds,
}

impl StackWalker for Ours {
    fn name(&self) -> &'static str {
        "ours"
    }

    #[inline(never)]
    fn walk(&mut self, registers: Registers) {
        let memory = StackMemory::new(self.stack, registers.sp);
        let at = FrameAddress::Instruction(registers.pc);
        walk::capture_from::<InHandler>(&mut self.recording, memory, at, registers, None);
    }

    fn frames(&self) -> Vec<u64> {
        self.recording.frames[..self.recording.depth].iter().map(|bits| Frame::from_bits(*bits).avma()).collect()
    }
}

/// Ours, and then each frame's node in the call tree: what a sample is made of.
struct OursInTree {
    ours: Ours,
    thread: RecordId,
    node: RecordId,
}

/// The addresses from a node up to its root.
fn addresses_in_tree(mut node: RecordId) -> Vec<u64> {
    let mut addresses = Vec::new();
    while !node.is_none() {
        // SAFETY: ids of nodes, each the parent of the one before.
        let record: &Node = unsafe { region::record(node) };
        let frame = Frame::from_bits(record.frame.load(Ordering::Relaxed));
        // The root and, of an allocation, the function called.
        if !frame.is_pseudo() {
            addresses.push(frame.avma());
        }
        node = RecordId(record.parent.load(Ordering::Relaxed));
    }
    addresses
}

impl StackWalker for OursInTree {
    fn name(&self) -> &'static str {
        "ours, into the tree"
    }

    #[inline(never)]
    fn walk(&mut self, registers: Registers) {
        self.ours.walk(registers);
        let place = walk::intern(&mut self.ours.recording, Root::Cpu, self.thread);
        self.node = place.expect("the store has room").node();
    }

    fn frames(&self) -> Vec<u64> {
        addresses_in_tree(self.node)
    }
}

/// Ours as an allocation walks: what the walk before found is compared, the rest walked and entered.
struct OursKept {
    kept: Box<Kept>,
    recording: Box<Recording>,
    stack: Bounds,
    thread: RecordId,
    node: RecordId,
}

impl OursKept {
    fn new(stack: Bounds, thread: RecordId) -> Self {
        // SAFETY: zeroed memory is one that has kept nothing, as its documentation says.
        let kept = unsafe { Box::new(MaybeUninit::zeroed().assume_init()) };
        Self { kept, recording: Box::default(), stack, thread, node: RecordId::NONE }
    }
}

impl StackWalker for OursKept {
    fn name(&self) -> &'static str {
        "ours, incremental"
    }

    #[inline(never)]
    fn walk(&mut self, registers: Registers) {
        let at = (FrameAddress::Instruction(registers.pc), registers, None);
        let place = (self.stack, self.thread, Root::Allocs);
        let below = Some(Tree::frame_of(Function::Malloc));
        let place = self.kept.capture::<InHandler>(&mut self.recording, place, at, below).expect("the store has room");
        let site = self.recording.tree.site(place, Function::Malloc);
        assert!(site.is_some(), "the store has room");
        self.node = place.node();
    }

    fn frames(&self) -> Vec<u64> {
        addresses_in_tree(self.node)
    }
}

/// framehop, forbidden to allocate.
struct Framehop {
    unwinder: UnwinderX86_64<&'static [u8], MustNotAllocateDuringUnwind>,
    cache: CacheX86_64<MustNotAllocateDuringUnwind>,
    stack: Bounds,
    frames: [u64; MAX_FRAMES],
    count: usize,
}

impl Framehop {
    fn new(stack: Bounds) -> Self {
        let mut unwinder = UnwinderX86_64::new();
        for object in objects::loaded() {
            let in_file = |section: Section<'_>| {
                let start = section.address - object.bias;
                Some(start..start + section.bytes.len() as u64)
            };
            let sections = ExplicitModuleSectionInfo {
                eh_frame_svma: in_file(object.eh_frame),
                eh_frame: Some(object.eh_frame.bytes),
                eh_frame_hdr_svma: in_file(object.eh_frame_hdr),
                eh_frame_hdr: Some(object.eh_frame_hdr.bytes),
                ..Default::default()
            };
            unwinder.add_module(Module::new(object.path, object.range, object.bias, sections));
        }
        Self { unwinder, cache: CacheX86_64::new_in(), stack, frames: [0; MAX_FRAMES], count: 0 }
    }
}

impl StackWalker for Framehop {
    fn name(&self) -> &'static str {
        "framehop"
    }

    #[inline(never)]
    fn walk(&mut self, registers: Registers) {
        let (low, high) = (registers.sp, self.stack.high);
        let mut read = |address: u64| {
            if address < low || high < address + 8 {
                return Err(());
            }
            // SAFETY: between the stack pointer and the end of the stack.
            Ok(unsafe { (address as *const u64).read_unaligned() })
        };
        let start = UnwindRegsX86_64::new(registers.pc, registers.sp, registers.fp.unwrap_or(0));
        let mut frames = self.unwinder.iter_frames(registers.pc, start, &mut self.cache, &mut read);
        self.count = 0;
        while let Ok(Some(frame)) = frames.next() {
            let Some(slot) = self.frames.get_mut(self.count) else { break };
            *slot = frame.address();
            self.count += 1;
        }
    }

    fn frames(&self) -> Vec<u64> {
        self.frames[..self.count].to_vec()
    }
}

/// `backtrace::trace`: libgcc's unwinder. It begins in its own frames, where the registers do not matter.
struct Backtrace {
    frames: [u64; MAX_FRAMES],
    count: usize,
}

impl StackWalker for Backtrace {
    fn name(&self) -> &'static str {
        "backtrace (libgcc)"
    }

    #[inline(never)]
    fn walk(&mut self, _: Registers) {
        self.count = 0;
        backtrace::trace(|frame| {
            let Some(slot) = self.frames.get_mut(self.count) else { return false };
            // libgcc goes one step beyond the root.
            if frame.ip().is_null() {
                return false;
            }
            *slot = frame.ip() as u64;
            self.count += 1;
            true
        });
    }

    fn frames(&self) -> Vec<u64> {
        self.frames[..self.count].to_vec()
    }
}

/// Checks that two walks found the same return addresses. The leaf is not compared, and what lies below it in either is left out.
///
/// # Errors
/// Where they differ.
pub fn compare(ours: &[u64], theirs: &[u64]) -> Result<(), String> {
    let ours = ours.get(1..).unwrap_or_default();
    let first = ours.first().ok_or("no frames")?;
    let from = theirs.iter().position(|address| address == first);
    let theirs = &theirs[from.ok_or("nothing in common")?..];
    match ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs) {
        Some(at) => Err(format!("frame {}: {:#x} against {:#x}", at + 1, ours[at], theirs[at])),
        None if ours.len() != theirs.len() => Err(format!("{} frames against {}", ours.len() + 1, theirs.len() + 1)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn walks_that_begin_in_different_frames_are_compared_from_the_first_common_caller() {
        assert_eq!(compare(&[1, 20, 30], &[5, 6, 20, 30]), Ok(()));
        assert_eq!(compare(&[1, 20, 30], &[20, 31]).unwrap_err(), "frame 2: 0x1e against 0x1f");
        assert_eq!(compare(&[1, 20, 30], &[2, 20]).unwrap_err(), "3 frames against 2");
        assert!(compare(&[1, 20], &[30]).is_err());
    }
}
