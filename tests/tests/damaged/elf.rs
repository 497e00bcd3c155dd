//! Bytes of ELF files, to be damaged.

use object::elf::{PT_LOAD, ProgramHeader64};
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSegment as _};
use std::ops::Range;

/// An ELF file to be damaged.
pub(crate) struct Elf(pub(crate) Vec<u8>);

impl Elf {
    /// Where a section lies in the file.
    pub(crate) fn section(&self, name: &str) -> Range<usize> {
        let file = ElfFile64::<Endianness>::parse(&*self.0).unwrap();
        let section = file.section_by_name(name).unwrap_or_else(|| panic!("no {name}"));
        let (start, length) = section.file_range().unwrap();
        start as usize..(start + length) as usize
    }

    /// Where the header of a section lies in the file.
    pub(crate) fn section_header(&self, name: &str) -> usize {
        let file = ElfFile64::<Endianness>::parse(&*self.0).unwrap();
        let index = file.section_by_name(name).unwrap_or_else(|| panic!("no {name}")).index().0;
        file.elf_header().e_shoff.get(Endianness::Little) as usize + index * 64
    }

    /// Where the last byte lies that is loaded.
    pub(crate) fn end_of_segments(&self) -> usize {
        let file = ElfFile64::<Endianness>::parse(&*self.0).unwrap();
        let ends = file.segments().map(|segment| segment.file_range()).map(|(start, length)| start + length);
        ends.max().unwrap() as usize
    }

    /// Moves the segment that begins with this byte of the file behind everything else, and leaves zeros. Where it begins now.
    pub(crate) fn move_segment_to_the_end(&mut self, start: usize) -> usize {
        let file = ElfFile64::<Endianness>::parse(&*self.0).unwrap();
        let offset = |header: &ProgramHeader64<Endianness>| header.p_offset(Endianness::Little) as usize;
        let headers = file.elf_program_headers();
        let load = |header: &ProgramHeader64<Endianness>| header.p_type(Endianness::Little) == PT_LOAD;
        let index = headers.iter().position(|header| load(header) && offset(header) == start);
        let index = index.expect("a segment that begins there");
        let length = headers[index].p_filesz(Endianness::Little) as usize;
        let field = file.elf_header().e_phoff.get(Endianness::Little) as usize + index * 56 + 8;
        let new_start = self.0.len().next_multiple_of(4096) + start % 4096;
        self.0.resize(new_start + length, 0);
        self.0.copy_within(start..start + length, new_start);
        self.0[start..start + length].fill(0);
        self.long_word(field, new_start as u64);
        new_start
    }

    pub(crate) fn bytes(&mut self, section: &str) -> &mut [u8] {
        let range = self.section(section);
        &mut self.0[range]
    }

    /// Where a program header lies in the file.
    pub(crate) fn program_header(&self, kind: object::elf::ProgramType) -> usize {
        let file = ElfFile64::<Endianness>::parse(&*self.0).unwrap();
        let header = file.elf_header();
        let index = file.elf_program_headers().iter().position(|header| header.p_type(Endianness::Little) == kind);
        header.e_phoff.get(Endianness::Little) as usize + index.expect("such a program header") * 56
    }

    pub(crate) fn word(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn long_word(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// The same numbers on each run (xorshift).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = (self.next() >> 24) as u8);
    }
}

pub(crate) const SEEDS: [u64; 3] = [0x1234_5678_9abc_def1, 0x2545_f491_4f6c_dd1d, 0x9e37_79b9_7f4a_7c15];
