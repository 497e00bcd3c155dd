//! Measures symbolising: `random_addresses FILE [COUNT] [names|full]` names random addresses of the code of FILE.

use std::fs::File;
use std::time::Instant;

use object::read::{Object, ObjectSection, ReadCache, SectionKind};
use profile::{AddressKind, Frame, Mapping, MappingId, Profile, Svma};
use profile_recorder_symbolize::{Detail, Options, symbolize};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("FILE");
    let count: usize = arguments.next().map_or(3000, |count| count.parse().expect("COUNT"));
    let detail = match arguments.next().as_deref() {
        Some("full") => Detail::Full,
        _ => Detail::Names,
    };
    let code = code(&path);
    let length: u64 = code.iter().map(|(_, size)| size).sum();
    let mut profile = Profile { mappings: vec![Mapping { path, ..Mapping::default() }], ..Profile::default() };
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..count {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let frame = Frame::Address {
            mapping: Some(MappingId(0)),
            svma: Svma(address(&code, random % length)),
            kind: AddressKind::ReturnAddress,
        };
        profile.stacks.frame_id(frame);
    }
    let before = resident("VmRSS:");
    let started = Instant::now();
    let found = symbolize(&profile, &Options { detail, ..Options::default() });
    let took = started.elapsed();
    let (peak, after) = (resident("VmHWM:"), resident("VmRSS:"));
    let frames: usize = profile.stacks.frames().iter().map(|frame| found.symbols.get(frame).len()).sum();
    println!(
        "{} of {count} addresses named, {frames} frames, {:.1} ms; RSS {} KiB before, {} peak, {} after",
        found.symbols.len(),
        took.as_secs_f64() * 1e3,
        before,
        peak,
        after
    );
    found.notes.iter().for_each(|note| println!("note: {note}"));
}

/// Address and size of each section of code.
fn code(path: &str) -> Vec<(u64, u64)> {
    let data = ReadCache::new(File::open(path).expect("a file"));
    let file = object::read::elf::ElfFile64::<object::Endianness, _>::parse(&data).expect("an ELF file");
    let sections = file.sections().filter(|section| section.kind() == SectionKind::Text);
    sections.map(|section| (section.address(), section.size())).collect()
}

/// The address of the byte at an offset into all code.
fn address(code: &[(u64, u64)], mut offset: u64) -> u64 {
    for (start, size) in code {
        if offset < *size {
            return start + offset;
        }
        offset -= size;
    }
    unreachable!("the offset lies in the code");
}

/// A figure of `/proc/self/status`, in KiB.
fn resident(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
