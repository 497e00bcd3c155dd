//! Damaged `.eh_frame` sections: no panic, no endless loop, and a table that can be looked up in.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use object::{Object as _, ObjectSection as _};
use profile_recorder_unwind::build::{Section, build, find_eh_frame};
use profile_recorder_unwind::cfi::Compile;
use profile_recorder_unwind::{aarch64, x86_64};

struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % limit
    }
}

/// The first functions of this program, and the header.
fn sections() -> (Vec<u8>, u64, Vec<u8>, u64) {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let eh_frame = file.section_by_name(".eh_frame").unwrap();
    let header = file.section_by_name(".eh_frame_hdr").unwrap();
    let head = &eh_frame.data().unwrap()[..4096];
    (head.to_vec(), eh_frame.address(), header.data().unwrap()[..64].to_vec(), header.address())
}

fn look_everywhere<A: Compile>(bytes: &[u8], address: u64) {
    let (table, _) = build::<A>(Section { bytes, address }, 0);
    assert_eq!(table.pcs.len(), table.rules.len());
    assert!(table.pcs.is_sorted_by(|a, b| a < b));
    for pc in table.pcs.iter().flat_map(|pc| [pc.wrapping_sub(1), *pc]).chain([0, u32::MAX]) {
        let _rule = table.as_table().lookup(pc);
    }
}

#[test]
fn damaged_sections_give_sorted_tables_and_no_panic() {
    let (sound, address, _, _) = sections();
    let mut chance = Chance(0x9876_5432_1fed_cba9);
    for _ in 0..3000 {
        let mut bytes = sound.clone();
        for _ in 0..=chance.below(20) {
            let at = chance.below(bytes.len());
            bytes[at] = [0, 0xff, 0x80, 0x0a, 0x0b, 0x0f, 0x10, chance.below(256) as u8][chance.below(8)];
        }
        bytes.truncate(1 + chance.below(bytes.len()));
        let address = if chance.below(4) == 0 { u64::MAX - chance.below(5000) as u64 } else { address };
        look_everywhere::<x86_64::Registers>(&bytes, address);
        look_everywhere::<aarch64::Registers>(&bytes, address);
    }
}

#[test]
fn noise_gives_no_panic() {
    let mut chance = Chance(0x1111_2222_3333_4444);
    for _ in 0..3000 {
        let bytes: Vec<u8> = (0..chance.below(300)).map(|_| chance.below(256) as u8 >> chance.below(8)).collect();
        look_everywhere::<x86_64::Registers>(&bytes, 0x1000);
        look_everywhere::<aarch64::Registers>(&bytes, 0x1000);
    }
}

#[test]
fn a_damaged_header_names_a_wrong_section_or_none() {
    let (_, address, header, header_address) = sections();
    assert_eq!(find_eh_frame(Section { bytes: &header, address: header_address }), Some(address));
    let mut chance = Chance(0x5555_6666_7777_8888);
    for _ in 0..10_000 {
        let mut bytes = header.clone();
        let at = chance.below(12);
        bytes[at] = chance.below(256) as u8;
        bytes.truncate(chance.below(bytes.len()));
        let _found = find_eh_frame(Section { bytes: &bytes, address: u64::MAX - chance.below(100) as u64 });
    }
}
