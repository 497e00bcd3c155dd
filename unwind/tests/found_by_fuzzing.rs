//! What the fuzz targets found, each as small as it gets.

use profile_recorder_unwind::cfi::{AllRules, Compile as _, Computed, Description, Header, Saved, Section};
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

#[test]
fn a_description_that_wraps_around_the_address_space_does_not_cover_what_lies_below_it() {
    const HEADER: u64 = 0x1000;
    const EH_FRAME: u64 = 0x2000;
    // A signal's frame at 0x5000, described by absolute pointers, that claims to be as long as the address space.
    let cie = [16, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', b'S', 0, 1, 0x78, 16, 1, 0, 0, 0];
    let mut section = Vec::from(cie);
    section.extend([24, 0, 0, 0, 24, 0, 0, 0]);
    section.extend(0x5000_u64.to_le_bytes());
    section.extend(u64::MAX.to_le_bytes());
    section.extend([0; 4]);
    // The header says that it begins at 0x3000.
    let mut header = vec![1, 4, 3, 0x3b];
    header.extend(EH_FRAME.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    header.extend(0x2000_i32.to_le_bytes());
    header.extend((0x1000 + cie.len() as i32).to_le_bytes());
    let mut sections = [Section { bytes: &header, address: HEADER }, Section { bytes: &section, address: EH_FRAME }];
    let header = Header::read(&mut sections, HEADER, header.len() as u64).unwrap();
    let described = |address, sections: &mut [Section<'_>; 2]| header.describe::<Registers>(sections, address).unwrap();
    assert!(matches!(described(0x5000, &mut sections), Description::Function { start: 0x5000, .. }));
    let below = described(0x2fff, &mut sections);
    assert_eq!(below, Description::Gap { from: 0, to: 0x3000 }, "the byte before what the header says");
}
