//! What the fuzz targets found, each as small as it gets.

use profile_recorder_unwind::cfi::{AllRules, Compile as _, Computed, Saved};
use profile_recorder_unwind::full::AllRegisters;
use profile_recorder_unwind::x86_64::Registers;
use profile_recorder_unwind::{FrameAddress, Memory};

/// The return address is everywhere.
struct Everywhere;

impl Memory for Everywhere {
    fn read(&mut self, _address: u64) -> Option<u64> {
        Some(0x40_1234)
    }
}

const SP: u64 = 0x7000;
const RBX: u16 = 3;

/// The caller's stack pointer in an entry of a linkage table at an address that ends in `low`, where `rbx` ends in 15.
fn caller_sp(compared: u16, low: u64) -> Option<u64> {
    let mut rules = AllRules {
        cfa: Computed::Plt { register: Registers::SP, offset: 8, ra: compared, pushed_from: 11 },
        registers: [Saved::Unspecified; 17],
    };
    rules.registers[usize::from(Registers::RA)] = Saved::AtCfa(-8);
    let mut frame = AllRegisters::<17>::at(FrameAddress::Instruction(0x1000 + low));
    frame.set(Registers::SP, Some(SP));
    frame.set(RBX, Some(15));
    frame.step::<Registers>(&rules, false, &mut Everywhere).ok()??.get(Registers::SP)
}

#[test]
fn what_an_entry_of_a_linkage_table_has_pushed_depends_on_the_register_that_it_names() {
    assert_eq!((caller_sp(Registers::RA, 10), caller_sp(Registers::RA, 11)), (Some(SP + 8), Some(SP + 16)));
    assert_eq!(caller_sp(RBX, 0), Some(SP + 16), "rbx counts, not the address");
    assert_eq!(caller_sp(12, 0), None, "r12 is not known");
}
