//! One level of a stack before symbols: an address in an ELF file, or a name.

use crate::MappingId;
use std::borrow::Cow;
use std::fmt;

/// An address in an ELF file, as its program headers and symbols state it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Svma(pub u64);

impl fmt::LowerHex for Svma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// What an address is to the code around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressKind {
    /// The instruction that was about to run.
    Instruction,
    /// Where a call returns to: the first byte after the call, which can already belong to another function.
    ReturnAddress,
}

impl AddressKind {
    /// The address to look up: inside the call instruction, if the address is where the call returns to.
    ///
    /// This is the only place that subtracts the one.
    pub const fn for_lookup(self, svma: Svma) -> Svma {
        match self {
            Self::Instruction => svma,
            Self::ReturnAddress => Svma(svma.0.saturating_sub(1)),
        }
    }
}

/// What a [`Frame::Address`] consists of; the key of [`crate::Symbols`].
pub type AddressKey = (Option<MappingId>, Svma, AddressKind);

/// One level of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// A code address.
    Address {
        /// The file that was mapped there, if any.
        mapping: Option<MappingId>,
        /// Address in that file; without a mapping the address in the process.
        svma: Svma,
        /// How the address was come by.
        kind: AddressKind,
    },
    /// A frame that never had an address here: an allocation function, `[lost: REASON]`, a frame of a format without addresses.
    Named(Cow<'static, str>),
}

impl Frame {
    /// A frame with a fixed name.
    pub const fn named(name: &'static str) -> Self {
        Self::Named(Cow::Borrowed(name))
    }

    /// The key of this frame in [`crate::Symbols`]; `None` for a named one.
    pub const fn address(&self) -> Option<AddressKey> {
        match self {
            Self::Address { mapping, svma, kind } => Some((*mapping, *svma, *kind)),
            Self::Named(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_address_is_looked_up_inside_the_call() {
        assert_eq!(AddressKind::ReturnAddress.for_lookup(Svma(0x1005)), Svma(0x1004));
        assert_eq!(AddressKind::Instruction.for_lookup(Svma(0x1005)), Svma(0x1005));
        assert_eq!(AddressKind::ReturnAddress.for_lookup(Svma(0)), Svma(0));
    }
}
