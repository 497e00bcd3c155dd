//! The walk under test: that of the tick handler, from one instruction to the next as from one tick to the next.

use capture::kept::Kept;
use capture::modules::{self, All};
use capture::probed::Probed;
use capture::region;
use capture::rules::{self, InHandler};
use capture::stack::Bounds;
use capture::thread::{self, Recording};
use layout::{Frame, Node, Pseudo, RecordId, Root};
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::Ordering;
use unwind::FrameAddress;
use unwind::arch::Registers;
use unwind::build::build_piece;

/// Walks stacks of one thread.
pub(crate) struct Walk {
    kept: Box<Kept>,
    recording: Box<Recording>,
    stack: Bounds,
    thread: RecordId,
    /// The leaf of the last stack.
    node: RecordId,
}

impl Walk {
    /// Walks of the calling thread, through the objects that are loaded now.
    pub(crate) fn of_this_thread() -> Self {
        static SET_UP: Once = Once::new();
        SET_UP.call_once(set_up);
        modules::refresh();
        modules::prepare_for_handlers();
        let here = 0_u64;
        let stack = Bounds::of_current_thread(&raw const here as u64);
        let thread = thread::record_for(1, b"stepped").expect("the store has room for a thread");
        // SAFETY: zeroed memory is one that has kept nothing, as its documentation says.
        let kept = unsafe { Box::new(MaybeUninit::zeroed().assume_init()) };
        Self { kept, recording: Box::default(), stack, thread, node: RecordId::NONE }
    }

    /// Walks from where a signal interrupted the thread. For handlers.
    pub(crate) fn capture(&mut self, context: &libc::ucontext_t) {
        let of = |index: i32| context.uc_mcontext.gregs[index as usize] as u64;
        let registers = Registers { pc: of(libc::REG_RIP), sp: of(libc::REG_RSP), fp: Some(of(libc::REG_RBP)) };
        let at = FrameAddress::Instruction(registers.pc);
        let mut all = All::at(at);
        for (number, place) in (0..).zip(PLACES) {
            all.set(number, Some(of(place)));
        }
        let place = (self.stack, self.thread, Root::Cpu);
        let place = self.kept.capture::<InHandler>(&mut self.recording, place, (at, registers, Some(&all)), None);
        self.node = place.expect("the store has room").node();
    }

    /// What the last walk found, leaf first. The last one may be the reason of an early end.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> + Clone + '_ {
        let mut node = self.node;
        core::iter::from_fn(move || {
            if node.is_none() {
                return None;
            }
            // SAFETY: ids of nodes, each the parent of the one before.
            let record: &Node = unsafe { region::record(node) };
            node = RecordId(record.parent.load(Ordering::Relaxed));
            let frame = Frame::from_bits(record.frame.load(Ordering::Relaxed));
            (!matches!(frame.as_pseudo(), Some(Pseudo::Root(..)))).then_some(frame)
        })
    }
}

/// The kernel's places of the registers, by DWARF's numbers.
const PLACES: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RBX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

fn set_up() {
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
        region::Purpose { modes: layout::modes::CPU, budget_bytes: 512 << 20, alloc_interval_bytes: 0, period_ns: 0 };
    region::open(&purpose, None).expect("memory for a store");
    rules::set_up();
}
