/// The code address of a frame, with what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameAddress {
    /// The instruction that is about to run: the leaf's, or that of a frame which a signal interrupted.
    Instruction(u64),
    /// The instruction after a call that has not returned yet.
    ReturnAddress(u64),
}

impl FrameAddress {
    /// The address itself.
    #[inline]
    pub const fn address(self) -> u64 {
        match self {
            Self::Instruction(address) | Self::ReturnAddress(address) => address,
        }
    }

    /// An address inside the instruction that the frame is at: what tables and symbols are looked up with.
    ///
    /// A return address minus one lies inside the call. The return address itself can lie beyond the end of the function, if
    /// the compiler knows that the called function never returns and so put nothing behind the call; and another row, with the stack
    /// already popped, may begin there.
    #[inline]
    pub const fn for_lookup(self) -> u64 {
        match self {
            Self::Instruction(address) => address,
            Self::ReturnAddress(address) => address.wrapping_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_address_is_looked_up_inside_the_call() {
        assert_eq!(FrameAddress::ReturnAddress(0x1005).for_lookup(), 0x1004);
        assert_eq!(FrameAddress::ReturnAddress(0x1005).address(), 0x1005);
    }

    #[test]
    fn an_interrupted_instruction_is_looked_up_as_it_is() {
        assert_eq!(FrameAddress::Instruction(0x1005).for_lookup(), 0x1005);
    }
}
