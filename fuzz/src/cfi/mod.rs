//! Call frame information out of arbitrary bytes.
//!
//! Whatever they are: tables are sorted and their indices in range, and every address can be looked up. Where gimli, the second reader, takes all descriptions for sound, the three
//! ways to the rule at an address (the whole table, a piece of it, the one description by the binary-search header) agree, and what they say is what gimli's rows say.
//!
//! The first byte chooses where the section lies, the second is the length of an arbitrary header that follows it; the rest is the section.

mod agreement;
mod machine;
mod row;
mod second;

use crate::input::Input;
use machine::Machine;
use unwind::build::{Counts, OwnedTable, Section, build, build_with_debug_frame, find_eh_frame};
use unwind::cfi::{Description, Header};
use unwind::{Rule, aarch64, x86_64};

/// Where a section lies, and what its table counts from.
#[derive(Clone, Copy, Debug)]
struct Place {
    address: u64,
    base: u64,
}

impl Place {
    /// From the ordinary to the strange: in the middle of the 4 GiB of a table, in a file, and where addresses wrap around.
    fn of(choice: u8) -> Self {
        match choice % 4 {
            0 => Self { address: 0x5555_8000_0000, base: 0x5555_0000_0000 },
            1 => Self { address: 0x20_0000, base: 0 },
            2 => Self { address: u64::MAX - 5000, base: u64::MAX - 0xffff_ffff },
            _ => Self { address: 0x1000, base: 0x1000 },
        }
    }
}

/// Reads the bytes as call frame information of both architectures.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let place = Place::of(input.u8());
    let length = input.u8();
    let header = input.take(usize::from(length));
    let bytes = input.rest();
    check_as::<x86_64::Registers, 17>(place, header, bytes);
    check_as::<aarch64::Registers, 32>(place, header, bytes);
}

/// `N` registers are asked for.
fn check_as<A: Machine, const N: usize>(place: Place, header: &[u8], bytes: &[u8]) {
    let eh_frame = Section { bytes, address: place.address };
    let (table, counts) = build::<A>(eh_frame, place.base);
    sound(&table, &counts);
    arbitrary_header::<A, N>(place, header, eh_frame);
    agreement::check::<A, N>(place, eh_frame, &table, &counts);
    let (table, counts) = build_with_debug_frame::<A>(None, bytes);
    sound(&table, &counts);
    let (table, counts) = build_with_debug_frame::<A>(Some((eh_frame, place.base)), bytes);
    sound(&table, &counts);
}

/// What holds for every table.
fn sound(table: &OwnedTable, counts: &Counts) {
    assert_eq!(table.pcs.len(), table.rules.len());
    assert!(table.pcs.is_sorted_by(|a, b| a < b), "{:x?}", table.pcs);
    assert!(table.rules.iter().all(|rule| usize::from(*rule) < table.interned.len()));
    assert_eq!(table.interned[..2], [Rule::NONE, Rule::UNSUPPORTED].map(Rule::to_bits));
    let mut interned = table.interned.clone();
    interned.sort_unstable();
    assert!(interned.is_sorted_by(|a, b| a < b), "every rule is interned once");
    assert!(interned.iter().all(|bits| Rule::from_bits(*bits).to_bits() == *bits));
    assert_eq!(counts.overflowed_rows, 0, "such inputs are too small for that");
    assert_eq!(counts.unsupported_rows, table.rules.iter().filter(|rule| **rule == 1).count());
    assert!(counts.malformed <= counts.functions);
    assert_eq!(table.rules.last().copied().unwrap_or(0), 0, "the last function ends");
    for pc in table.pcs.iter().flat_map(|pc| [pc.wrapping_sub(1), *pc]).chain([0, u32::MAX]) {
        let rule = table.as_table().lookup(pc);
        assert!(rule.is_none_or(|rule| !rule.is_none()));
    }
}

/// A header that says anything at all gives wrong rules or none, nothing worse.
fn arbitrary_header<A: Machine, const N: usize>(place: Place, bytes: &[u8], eh_frame: Section<'_>) {
    let section = Section { bytes, address: place.address.wrapping_sub(0x1000) };
    let length = bytes.len() as u64;
    let mut sections = [section, eh_frame];
    let header = Header::read(&mut sections, section.address, length);
    assert_eq!(find_eh_frame(section), header.map(|header| header.eh_frame));
    // Longer than what is there, as damaged program headers have it.
    for beyond in [0, 0x1000, u64::MAX >> 1, u64::MAX] {
        let length = length.wrapping_add(beyond);
        let Some(header) = Header::read(&mut sections, section.address, length) else { continue };
        let words = bytes.chunks_exact(4).map(|four| i32::from_le_bytes(four.try_into().expect("four bytes")));
        let places = words.map(|word| section.address.wrapping_add_signed(i64::from(word)));
        for address in places.chain([0, place.base, place.address, u64::MAX]) {
            let described = header.describe::<A>(&mut sections, address);
            assert!(described.is_none() || header.is_searchable());
            assert!(described.is_some() || !header.is_searchable() || beyond != 0);
            if let Some(Description::Function { start, .. }) = described {
                assert!(start <= address.saturating_add(1), "{start:#x} for {address:#x}");
            }
            let _all = header.describe_all::<A, N>(&mut sections, address);
        }
        if beyond <= 0x1000 {
            let range = (place.base, place.base.wrapping_add(0x1_0000));
            let (piece, counts) = unwind::build::build_piece::<A>(&header, sections, place.base, range);
            sound(&piece, &counts);
        }
    }
}
