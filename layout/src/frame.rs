//! One word of a call-tree node: a code address with its module, or a pseudo frame.

use crate::{Function, RecordId};

/// Bits of an address in a [`Frame`].
pub const AVMA_BITS: u32 = 48;

/// Number of a module in the store; 0 means that the address lies in no known module.
///
/// A library that is closed and another that takes its place have different numbers, so an address in a frame keeps its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleIndex(u16);

impl ModuleIndex {
    /// The address lies in no known module.
    pub const NONE: Self = Self(0);
    /// Largest number a module can have.
    pub const MAX: u16 = 0x3ffe;

    /// The module with this number, if it can be expressed.
    pub const fn new(index: u16) -> Option<Self> {
        if index <= Self::MAX { Some(Self(index)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// One frame of a stack, packed: bit 62 is set if the address is an instruction that was about to run (else a return address),
/// bits 48 to 61 are the module's number (all ones: a [`Pseudo`] frame), bits 0 to 47 the address in the process (AVMA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame(u64);

const AVMA_MASK: u64 = (1 << AVMA_BITS) - 1;
const MODULE_MASK: u64 = 0x3fff;
const PSEUDO_MODULE: u64 = MODULE_MASK;
const INSTRUCTION: u64 = 1 << 62;

impl Frame {
    /// A frame at a return address.
    pub const fn return_address(module: ModuleIndex, avma: u64) -> Self {
        Self((avma & AVMA_MASK) | ((module.0 as u64) << AVMA_BITS))
    }

    /// A frame at the instruction that was about to run.
    pub const fn instruction(module: ModuleIndex, avma: u64) -> Self {
        Self(Self::return_address(module, avma).0 | INSTRUCTION)
    }

    /// A frame that stands for something else than a code address.
    #[inline]
    pub const fn pseudo(pseudo: Pseudo) -> Self {
        Self(pseudo.encode() | (PSEUDO_MODULE << AVMA_BITS))
    }

    /// The frame as stored; zero only for an empty record.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The frame that was stored.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether the address is that of an instruction about to run, not a return address.
    pub const fn is_instruction(self) -> bool {
        self.0 & INSTRUCTION != 0
    }

    /// The address in the process; meaningless for a pseudo frame.
    pub const fn avma(self) -> u64 {
        self.0 & AVMA_MASK
    }

    /// The module that the address lies in; [`ModuleIndex::NONE`] for a pseudo frame.
    pub const fn module(self) -> ModuleIndex {
        let module = (self.0 >> AVMA_BITS) & MODULE_MASK;
        if module == PSEUDO_MODULE { ModuleIndex::NONE } else { ModuleIndex(module as u16) }
    }

    /// What a pseudo frame stands for; `None` for a code address and for codes this version does not know.
    pub const fn as_pseudo(self) -> Option<Pseudo> {
        if self.is_pseudo() { Pseudo::decode(self.0 & AVMA_MASK) } else { None }
    }

    /// Whether this is a pseudo frame, known or not.
    pub const fn is_pseudo(self) -> bool {
        (self.0 >> AVMA_BITS) & MODULE_MASK == PSEUDO_MODULE
    }
}

/// Which tree a root node begins; it decides the kind of the values below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Root {
    /// Allocations: nodes carry `AllocValues`.
    Allocs = 1,
    /// CPU time: nodes carry `TimeValues`.
    Cpu = 2,
    /// Elapsed time: nodes carry `TimeValues`, below a [`Pseudo::State`] leaf.
    Wall = 3,
}

/// What a thread was doing when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// On a CPU.
    OnCpu = 1,
    /// Waiting for a CPU.
    Runnable = 2,
    /// Blocked.
    OffCpu = 3,
}

/// Why a stack ends before its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Truncated {
    /// No table covers an address, and there is no plausible frame-pointer chain.
    NoTable = 1,
    /// The table names a rule that cannot be evaluated (a register that was not kept, an unusual expression).
    UnsupportedRule = 2,
    /// A stack slot could not be read.
    StackUnreadable = 3,
    /// The walk did not advance towards the root.
    NoProgress = 4,
    /// More frames than are kept; the leaf-most are.
    TooDeep = 5,
    /// The frame pointer was needed but is not known.
    FramePointerUnknown = 6,
    /// The stack had too little room left for a walk.
    NoRoom = 7,
    /// Nobody looked at the thread while it was there: between two looks it ran, or blocked, and was elsewhere again.
    BetweenLooks = 8,
}

impl Truncated {
    /// The reason as it is shown: `[truncated: REASON]`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoTable => "no unwind table",
            Self::UnsupportedRule => "unsupported unwind rule",
            Self::StackUnreadable => "stack unreadable",
            Self::NoProgress => "no progress",
            Self::TooDeep => "too deep",
            Self::FramePointerUnknown => "frame pointer unknown",
            Self::NoRoom => "no room on the stack",
            Self::BetweenLooks => "between two looks",
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::NoTable,
            2 => Self::UnsupportedRule,
            3 => Self::StackUnreadable,
            4 => Self::NoProgress,
            5 => Self::TooDeep,
            6 => Self::FramePointerUnknown,
            7 => Self::NoRoom,
            8 => Self::BetweenLooks,
            _ => return None,
        })
    }
}

/// Why something was not recorded where it belongs; the number indexes the header's `lost` arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Lost {
    /// The budget is used up: values of allocations are kept, their stacks are not.
    StoreFull = 0,
    /// The event came while the same thread was inside the recorder.
    Reentered = 1,
    /// The log of single samples is full: totals are kept, times of single samples are not.
    LogFull = 2,
    /// The thread could not be registered.
    NoThread = 3,
    /// A table of live allocations is full or was not available.
    LiveTableFull = 4,
    /// The budget is used up: the time is kept, its stack is not.
    TimeStoreFull = 5,
    /// No timer could be made for a thread: its CPU time is missing.
    NoTimer = 6,
    /// Too many label sets, or too large a one: the labels around it are kept.
    LabelsFull = 7,
}

impl Lost {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::StoreFull,
        Self::Reentered,
        Self::LogFull,
        Self::NoThread,
        Self::LiveTableFull,
        Self::TimeStoreFull,
        Self::NoTimer,
        Self::LabelsFull,
    ];

    /// Whether the weight is nanoseconds of time, not bytes of allocations.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::LogFull | Self::TimeStoreFull | Self::NoTimer)
    }

    /// The reason as it is shown: `[lost: REASON]`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::StoreFull | Self::TimeStoreFull => "store full",
            Self::Reentered => "inside the recorder",
            Self::LogFull => "sample log full",
            Self::NoTimer => "thread without a timer",
            Self::NoThread => "thread not registered",
            Self::LiveTableFull => "live table full",
            Self::LabelsFull => "too many labels",
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        let mut i = 0;
        while i < Self::ALL.len() {
            if Self::ALL[i] as u8 == number {
                return Some(Self::ALL[i]);
            }
            i += 1;
        }
        None
    }
}

/// Why a program that a recorded process executed is not recorded; the number indexes the header's `unfollowed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Unfollowed {
    /// It is statically linked.
    Static = 0,
    /// It is built for another architecture.
    Architecture = 1,
    /// Its dynamic loader is another C library's, or of an older one than the preload library needs.
    Library = 2,
    /// Where it runs, as the user that it runs as, the preload library's file cannot be opened.
    Unreachable = 3,
    /// It gains rights by being run, and the dynamic loader takes nothing from its environment.
    Privileged = 4,
}

impl Unfollowed {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Static, Self::Architecture, Self::Library, Self::Unreachable, Self::Privileged];

    /// The reason as it is shown.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Static => "statically linked",
            Self::Architecture => "for another architecture",
            Self::Library => "for another C library, or an older one",
            Self::Unreachable => "where the preload library cannot be read: another user or another root directory",
            Self::Privileged => "set-user-ID or set-group-ID",
        }
    }
}

/// What a pseudo frame stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pseudo {
    /// Root of a thread's tree. The record is the [`crate::Thread`], or none for what belongs to no known thread.
    Root(Root, RecordId),
    /// Leaf of an allocation stack: the function that was called.
    Function(Function),
    /// Root-most frame of a stack that ends early.
    Truncated(Truncated),
    /// Stands for a stack that was not kept.
    Lost(Lost),
    /// Leaf of a wall-clock stack; readers turn it into the label `state`.
    State(State),
    /// Leaf of a wall-clock stack, below the state: the number of the system call the thread blocks in.
    SystemCall(u32),
    /// Below a root: the labels of what lies below, a text of [`crate::Labels`].
    Labels(RecordId),
}

const ROOT: u64 = 1;
const FUNCTION: u64 = 2;
const TRUNCATED: u64 = 3;
const LOST: u64 = 4;
const STATE: u64 = 5;
const SYSTEM_CALL: u64 = 6;
const LABELS: u64 = 7;

impl Pseudo {
    const fn encode(self) -> u64 {
        let (kind, sub, code) = match self {
            Self::Root(root, thread) => (ROOT, root as u64, thread.0 as u64),
            Self::Function(function) => (FUNCTION, 0, function as u64),
            Self::Truncated(reason) => (TRUNCATED, 0, reason as u64),
            Self::Lost(reason) => (LOST, 0, reason as u64),
            Self::State(state) => (STATE, 0, state as u64),
            Self::SystemCall(number) => (SYSTEM_CALL, 0, number as u64),
            Self::Labels(set) => (LABELS, 0, set.0 as u64),
        };
        (kind << 40) | (sub << 32) | code
    }

    const fn decode(bits: u64) -> Option<Self> {
        let code = (bits & 0xffff_ffff) as u32;
        let byte = (code & 0xff) as u8;
        Some(match bits >> 40 {
            ROOT => {
                let root = match (bits >> 32) & 0xff {
                    1 => Root::Allocs,
                    2 => Root::Cpu,
                    3 => Root::Wall,
                    _ => return None,
                };
                Self::Root(root, RecordId(code))
            }
            FUNCTION => match Function::from_number(byte) {
                Some(function) => Self::Function(function),
                None => return None,
            },
            TRUNCATED => match Truncated::from_number(byte) {
                Some(reason) => Self::Truncated(reason),
                None => return None,
            },
            LOST => match Lost::from_number(byte) {
                Some(reason) => Self::Lost(reason),
                None => return None,
            },
            STATE => Self::State(match byte {
                1 => State::OnCpu,
                2 => State::Runnable,
                3 => State::OffCpu,
                _ => return None,
            }),
            SYSTEM_CALL => Self::SystemCall(code),
            LABELS => Self::Labels(RecordId(code)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pseudo_frame_survives_packing() {
        let mut all = [Pseudo::State(State::OnCpu); 7 + Function::ALL.len() + 8 + 8];
        let mut n = 0;
        let mut add = |p| {
            all[n] = p;
            n += 1;
        };
        add(Pseudo::Root(Root::Allocs, RecordId(u32::MAX)));
        add(Pseudo::Root(Root::Cpu, RecordId(7)));
        add(Pseudo::Root(Root::Wall, RecordId(0)));
        add(Pseudo::State(State::Runnable));
        add(Pseudo::State(State::OffCpu));
        add(Pseudo::SystemCall(232));
        add(Pseudo::Labels(RecordId(u32::MAX)));
        Function::ALL.iter().for_each(|f| add(Pseudo::Function(*f)));
        Lost::ALL.iter().for_each(|l| add(Pseudo::Lost(*l)));
        (1..=8).filter_map(Truncated::from_number).for_each(|t| add(Pseudo::Truncated(t)));
        assert_eq!(n, all.len());
        for pseudo in all {
            let frame = Frame::pseudo(pseudo);
            assert_eq!(frame.as_pseudo(), Some(pseudo));
            assert_eq!(frame.module(), ModuleIndex::NONE);
        }
    }

    #[test]
    fn an_address_survives_packing_with_its_module() {
        let module = ModuleIndex::new(ModuleIndex::MAX).unwrap();
        let frame = Frame::instruction(module, 0x7fff_ffff_f123);
        assert_eq!((frame.avma(), frame.module(), frame.is_instruction()), (0x7fff_ffff_f123, module, true));
        assert_eq!(frame.as_pseudo(), None);
        assert!(!Frame::return_address(module, 1).is_instruction());
        assert_eq!(ModuleIndex::new(ModuleIndex::MAX + 1), None, "the next number marks pseudo frames");
    }
}
