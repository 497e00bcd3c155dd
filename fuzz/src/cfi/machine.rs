use gimli::{AArch64, Register, Vendor, X86_64};
use unwind::cfi::Compile;
use unwind::{aarch64, x86_64};

/// Made-up registers: each has a value of its own, the stack pointer the lowest.
pub(super) fn register<A: Machine>(number: u16) -> u64 {
    0x7000_0000 + 0x100 * u64::from(number.wrapping_sub(A::SP))
}

/// Made-up memory: every address holds a word of its own, which lies above the registers.
pub(super) fn word(address: u64) -> u64 {
    0x7100_0000 + (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
}

/// What the second reader needs to know of an architecture.
pub(super) trait Machine: Compile {
    const RETURN_ADDRESS: Register;
    const VENDOR: Vendor;
    /// A frame with the made-up registers.
    fn made_up(pc: u64) -> Self;
    fn frame_pointer(&self) -> Option<u64>;
    /// What the return address column holds in the frame.
    fn return_address(pc: u64) -> u64;
}

impl Machine for x86_64::Registers {
    const RETURN_ADDRESS: Register = X86_64::RA;
    const VENDOR: Vendor = Vendor::Default;

    fn made_up(pc: u64) -> Self {
        Self { pc, sp: register::<Self>(Self::SP), fp: Some(register::<Self>(Self::FP)) }
    }

    fn frame_pointer(&self) -> Option<u64> {
        self.fp
    }

    fn return_address(pc: u64) -> u64 {
        pc
    }
}

impl Machine for aarch64::Registers {
    const RETURN_ADDRESS: Register = AArch64::X30;
    const VENDOR: Vendor = Vendor::AArch64;

    fn made_up(pc: u64) -> Self {
        Self {
            pc,
            sp: register::<Self>(Self::SP),
            fp: Some(register::<Self>(Self::FP)),
            lr: Some(register::<Self>(Self::RA)),
        }
    }

    fn frame_pointer(&self) -> Option<u64> {
        self.fp
    }

    fn return_address(_pc: u64) -> u64 {
        register::<Self>(Self::RA)
    }
}
