use crate::build::Computed;
use crate::{Rule, Unwind};

/// What the instructions of a description say for a range of addresses about the registers that unwinding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The canonical frame address.
    pub cfa: Computed,
    /// The caller's stack pointer, where it is described; else it is the CFA.
    pub sp: Saved,
    /// The caller's frame pointer.
    pub fp: Saved,
    /// The return address.
    pub ra: Saved,
}

impl Row {
    /// Before the first instruction.
    pub const EMPTY: Self =
        Self { cfa: Computed::Unknown, sp: Saved::Unspecified, fp: Saved::Unspecified, ra: Saved::Unspecified };
}

/// Where the caller's value of a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Nothing was said.
    Unspecified,
    /// Still in the register.
    Same,
    /// Lost, or never there.
    Undefined,
    /// In memory at this offset from the CFA.
    AtCfa(i64),
    /// It is the CFA plus this offset.
    CfaPlus(i64),
    /// In memory, at the computed address.
    At(Computed),
    /// Anything else: in another register, or an expression that is not understood.
    Unknown,
}

/// What compiling a [`Row`] needs to know of an architecture.
pub trait Compile: Unwind {
    /// DWARF's number of the stack pointer.
    const SP: u16;
    /// DWARF's number of the frame pointer.
    const FP: u16;
    /// DWARF's number of the return address column.
    const RA: u16;
    /// Selects the meaning of the instructions that vendors share.
    const VENDOR: gimli::Vendor;

    /// The rule that does what the row says; [`Rule::UNSUPPORTED`] if there is none. `signal`: the description belongs to a
    /// frame that a signal makes.
    fn rule(row: &Row, signal: bool) -> Rule;
}
