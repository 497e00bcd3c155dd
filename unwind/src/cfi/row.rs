use crate::cfi::Computed;
use crate::{Rule, Unwind};

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
    AtCfa(i32),
    /// It is the CFA plus this offset.
    CfaPlus(i32),
    /// In memory, at the computed address.
    At(Computed),
    /// In another register, by DWARF's number.
    Register(u16),
    /// Anything else: an expression that is not understood.
    Unknown,
}

impl Saved {
    pub(super) fn at_cfa(offset: i64) -> Self {
        i32::try_from(offset).map_or(Self::Unknown, Self::AtCfa)
    }

    pub(super) fn cfa_plus(offset: i64) -> Self {
        i32::try_from(offset).map_or(Self::Unknown, Self::CfaPlus)
    }
}

/// What call frame instructions change: how the registers of the caller are found.
pub(crate) trait CallerRules: Copy {
    /// Before the first instruction.
    const EMPTY: Self;
    /// Room for states that are remembered at once.
    type Remembered: AsMut<[Self]>;

    fn nothing_remembered() -> Self::Remembered;
    fn cfa(&mut self) -> &mut Computed;
    /// Registers that are not kept are ignored.
    fn set(&mut self, register: u16, saved: Saved);
    fn get(&self, register: u16) -> Option<Saved>;
}

/// What the instructions of a description say for a range of addresses about the registers that walking keeps.
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

/// [`Row`] for an architecture, which says what the registers' numbers are.
#[derive(Debug)]
pub(crate) struct RowOf<A>(pub(crate) Row, core::marker::PhantomData<A>);

impl<A> Clone for RowOf<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for RowOf<A> {}

impl<A: Compile> CallerRules for RowOf<A> {
    const EMPTY: Self = Self(Row::EMPTY, core::marker::PhantomData);
    type Remembered = [Self; 6];

    fn nothing_remembered() -> Self::Remembered {
        [Self::EMPTY; 6]
    }

    #[inline]
    fn cfa(&mut self) -> &mut Computed {
        &mut self.0.cfa
    }

    #[inline]
    fn set(&mut self, register: u16, saved: Saved) {
        if register == A::FP {
            self.0.fp = saved;
        } else if register == A::RA {
            self.0.ra = saved;
        } else if register == A::SP {
            self.0.sp = saved;
        }
    }

    #[inline]
    fn get(&self, register: u16) -> Option<Saved> {
        match register {
            r if r == A::FP => Some(self.0.fp),
            r if r == A::RA => Some(self.0.ra),
            r if r == A::SP => Some(self.0.sp),
            _ => None,
        }
    }
}

/// What the instructions say about the first `N` registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllRules<const N: usize> {
    /// The canonical frame address.
    pub cfa: Computed,
    /// By DWARF's numbers.
    pub registers: [Saved; N],
}

impl<const N: usize> CallerRules for AllRules<N> {
    const EMPTY: Self = Self { cfa: Computed::Unknown, registers: [Saved::Unspecified; N] };
    // One is large, and the stack of a handler is not. Compilers never nest them.
    type Remembered = [Self; 1];

    fn nothing_remembered() -> Self::Remembered {
        [Self::EMPTY; 1]
    }

    fn cfa(&mut self) -> &mut Computed {
        &mut self.cfa
    }

    fn set(&mut self, register: u16, saved: Saved) {
        if let Some(slot) = self.registers.get_mut(usize::from(register)) {
            *slot = saved;
        }
    }

    fn get(&self, register: u16) -> Option<Saved> {
        self.registers.get(usize::from(register)).copied()
    }
}

/// What compiling a [`Row`] needs to know of an architecture.
pub trait Compile: Unwind {
    /// DWARF's number of the stack pointer.
    const SP: u16;
    /// DWARF's number of the frame pointer.
    const FP: u16;
    /// DWARF's number of the return address column.
    const RA: u16;
    /// Registers that a called function leaves as they were, by DWARF's numbers, one bit each.
    const CALLEE_SAVED: u64;

    /// The code address in a word that was a return address: without the signature that some architectures put into its highest bits.
    fn code_address(word: u64) -> u64 {
        word
    }

    /// The rule that does what the row says; [`Rule::UNSUPPORTED`] if there is none. `signal`: the description belongs to a
    /// frame that a signal makes.
    fn rule(row: &Row, signal: bool) -> Rule;
}
