//! The few tables of an ELF file that symbolising needs, read one by one.
//!
//! Covers 64-bit little-endian files, the only ones that this profiler records. Whatever a file claims is checked
//! against its length before it is read or allocated.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use object::elf::{self, FileHeader64, NoteHeader64, SectionFlags, SectionHeader64, SectionType};
use object::endian::LittleEndian as LE;
use object::pod;

use crate::image::Image;

/// Linked files have tens of sections; relocatable ones, which no process maps, may have many more.
const SECTIONS: u64 = 0x1_0000;
/// Largest table of section names, and largest note, that is read.
const SMALL_TABLE: u64 = 1 << 20;
/// The kernel maps files in pages of 4 KiB at least.
const PAGE_BITS: u64 = 4095;

/// One entry of the section table.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: SectionType,
    pub(crate) flags: SectionFlags,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
}

impl Section {
    /// The first address after the section.
    pub(crate) fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }

    /// Whether the file holds bytes for it.
    pub(crate) fn has_bytes(&self) -> bool {
        self.kind != elf::SHT_NOBITS && self.size > 0
    }
}

/// An ELF file with its section table.
#[derive(Debug)]
pub(crate) struct Elf {
    pub(crate) image: Image,
    pub(crate) sections: Vec<Section>,
    segments: (u64, u64),
}

impl Elf {
    /// Reads header and section table; the error says what is wrong with the file.
    pub(crate) fn parse(image: Image) -> Result<Elf, &'static str> {
        let length = size_of::<FileHeader64<LE>>() as u64;
        let bytes = image.read(0, length, length).ok_or("not an ELF file")?;
        let (header, _) = pod::from_bytes::<FileHeader64<LE>>(&bytes).map_err(|()| "not an ELF file")?;
        if header.e_ident.magic != elf::ELFMAG {
            return Err("not an ELF file");
        }
        if header.e_ident.class != elf::ELFCLASS64 || header.e_ident.data != elf::ELFDATA2LSB {
            return Err("not a 64-bit little-endian ELF file");
        }
        let segments = (header.e_phoff.get(LE), u64::from(header.e_phnum.get(LE)));
        let sections = sections(&image, header).ok_or("the section table of the ELF file is damaged")?;
        Ok(Elf { image, sections, segments })
    }

    /// The section of that name, if the file holds its bytes.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name.as_bytes() && section.has_bytes())
    }

    /// The bytes of a section as they stand in the file, unless they are more than `limit`.
    pub(crate) fn bytes(&self, section: &Section, limit: u64) -> Option<Vec<u8>> {
        self.image.read(section.offset, section.size, limit)
    }

    /// The build id, from the note sections, else from the note segments.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        let notes = self.sections.iter().filter(|section| section.kind == elf::SHT_NOTE);
        notes
            .filter_map(|section| build_id_of_notes(&self.bytes(section, SMALL_TABLE)?))
            .next()
            .or_else(|| self.build_id_of_segments())
    }

    fn build_id_of_segments(&self) -> Option<Vec<u8>> {
        self.segments().into_iter().find_map(|segment| {
            if segment.p_type.get(LE) != elf::PT_NOTE {
                return None;
            }
            build_id_of_notes(&self.image.read(segment.p_offset.get(LE), segment.p_filesz.get(LE), SMALL_TABLE)?)
        })
    }

    /// The address at which the linker meant the bytes at this offset to lie, of code if the offset belongs to several segments: the
    /// kernel maps whole pages, so the first page of one can hold the end of another.
    pub(crate) fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let segments = self.segments();
        let loaded = segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD);
        let holding = loaded.filter(|segment| {
            let start = segment.p_offset.get(LE);
            // Of a debug file the sizes in the file are zero; those in memory are the original's.
            let size = segment.p_filesz.get(LE).max(segment.p_memsz.get(LE));
            (start & !PAGE_BITS..start.saturating_add(size)).contains(&offset)
        });
        let best = holding.max_by_key(|segment| segment.p_flags.get(LE).contains(elf::PF_X))?;
        Some(best.p_vaddr.get(LE).wrapping_add(offset).wrapping_sub(best.p_offset.get(LE)))
    }

    fn segments(&self) -> Vec<elf::ProgramHeader64<LE>> {
        let (offset, count) = self.segments;
        let length = size_of::<elf::ProgramHeader64<LE>>() as u64;
        let table = self.image.read(offset, count * length, SMALL_TABLE * 8).unwrap_or_default();
        pod::slice_from_all_bytes(&table).map(<[_]>::to_vec).unwrap_or_default()
    }

    /// Name and CRC of the separate debug file that `.gnu_debuglink` asks for.
    pub(crate) fn debug_link(&self) -> Option<(OsString, u32)> {
        let bytes = self.bytes(self.section(".gnu_debuglink")?, 8192)?;
        let length = bytes.iter().position(|&byte| byte == 0)?;
        let crc = bytes.get((length + 1).next_multiple_of(4)..)?.first_chunk::<4>()?;
        let name = OsString::from_vec(bytes.get(..length)?.to_vec());
        let plain = !name.is_empty() && !bytes.get(..length)?.contains(&b'/');
        plain.then_some((name, u32::from_le_bytes(*crc)))
    }

    /// Whether the address lies in a section of code.
    pub(crate) fn has_code_at(&self, address: u64) -> bool {
        let holds = |section: &Section| (section.address..section.end()).contains(&address);
        self.sections.iter().any(|section| section.flags.contains(elf::SHF_EXECINSTR) && holds(section))
    }

    /// Whether there is a symbol table that strip would remove.
    pub(crate) fn has_symtab(&self) -> bool {
        self.sections.iter().any(|section| section.kind == elf::SHT_SYMTAB && section.has_bytes())
    }

    /// Whether the file itself holds debug information.
    pub(crate) fn has_dwarf(&self) -> bool {
        self.section(".debug_info").is_some() || self.section(".zdebug_info").is_some()
    }

    /// Bytes of the debug information in memory, uncompressed.
    pub(crate) fn dwarf_bytes(&self) -> u64 {
        let is_dwarf =
            |section: &&Section| section.name.starts_with(b".debug_") || section.name.starts_with(b".zdebug_");
        self.sections.iter().filter(is_dwarf).map(|section| self.uncompressed(section)).fold(0, u64::saturating_add)
    }

    /// Bytes of a section, by the header in front of compressed ones: `Elf64_Chdr`, or of old `ZLIB` and a number.
    fn uncompressed(&self, section: &Section) -> u64 {
        let number = |offset: u64| {
            let mut bytes = [0; 8];
            self.image.fill(section.offset.checked_add(offset)?, &mut bytes)?;
            Some(bytes)
        };
        let told = if section.flags.contains(elf::SHF_COMPRESSED) {
            number(8).map(u64::from_le_bytes)
        } else if section.name.starts_with(b".z") {
            number(4).map(u64::from_be_bytes)
        } else {
            None
        };
        if section.has_bytes() { told.unwrap_or(section.size) } else { 0 }
    }
}

fn sections(image: &Image, header: &FileHeader64<LE>) -> Option<Vec<Section>> {
    let length = size_of::<SectionHeader64<LE>>() as u64;
    let offset = header.e_shoff.get(LE);
    if offset == 0 {
        return Some(Vec::new());
    }
    if u64::from(header.e_shentsize.get(LE)) != length {
        return None;
    }
    // Numbers that do not fit the header stand in the first section.
    let first = image.read(offset, length, length)?;
    let (first, _) = pod::from_bytes::<SectionHeader64<LE>>(&first).ok()?;
    let count = match header.e_shnum.get(LE) {
        0 => first.sh_size.get(LE),
        count => u64::from(count),
    };
    let names = match header.e_shstrndx.get(LE) {
        elf::SHN_XINDEX => first.sh_link.get(LE),
        index => u32::from(index.0),
    };
    if count > SECTIONS {
        return None;
    }
    let table = image.read(offset, count * length, SECTIONS * length)?;
    let headers: &[SectionHeader64<LE>] = pod::slice_from_all_bytes(&table).ok()?;
    let names = headers.get(names as usize)?;
    let names = image.read(names.sh_offset.get(LE), names.sh_size.get(LE), SMALL_TABLE)?;
    let name = |offset: u32| {
        let rest = names.get(offset as usize..).unwrap_or_default();
        rest.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
    };
    let section = |header: &SectionHeader64<LE>| Section {
        name: name(header.sh_name.get(LE)),
        kind: header.sh_type.get(LE),
        flags: header.sh_flags.get(LE),
        address: header.sh_addr.get(LE),
        offset: header.sh_offset.get(LE),
        size: header.sh_size.get(LE),
        link: header.sh_link.get(LE),
    };
    Some(headers.iter().map(section).collect())
}

fn build_id_of_notes(mut notes: &[u8]) -> Option<Vec<u8>> {
    while let Ok((header, rest)) = pod::from_bytes::<NoteHeader64<LE>>(notes) {
        let name_length = header.n_namesz.get(LE) as usize;
        let length = header.n_descsz.get(LE) as usize;
        let start = name_length.next_multiple_of(4);
        let bytes = rest.get(start..start.checked_add(length)?)?;
        if header.n_type.get(LE) == elf::NT_GNU_BUILD_ID && rest.get(..name_length)? == b"GNU\0" && !bytes.is_empty() {
            return Some(bytes.to_vec());
        }
        notes = rest.get(start + length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        note.extend((name.len() as u32).to_le_bytes());
        note.extend((description.len() as u32).to_le_bytes());
        note.extend(kind.to_le_bytes());
        for part in [name, description] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let mut notes = note(b"GNU\0", 1, &[0; 16]);
        notes.extend(note(b"stapsdt\0", 3, &[1, 2, 3]));
        notes.extend(note(b"GNU\0", 3, &[0xab; 20]));
        assert_eq!(build_id_of_notes(&notes), Some(vec![0xab; 20]));
        for length in 0..notes.len() {
            assert_eq!(build_id_of_notes(&notes[..length]), None, "cut to {length} bytes");
        }
    }

    #[test]
    fn debug_information_counts_as_what_it_is_unpacked() {
        let mut bytes = vec![0; 100];
        bytes[18..26].copy_from_slice(&7_000_u64.to_le_bytes());
        bytes[44..52].copy_from_slice(&900_u64.to_be_bytes());
        let section = |name: &str, offset, size, flags| Section {
            name: name.into(),
            kind: elf::SHT_PROGBITS,
            flags,
            address: 0,
            offset,
            size,
            link: 0,
        };
        let plain = SectionFlags::default();
        let sections = vec![
            section(".debug_line", 0, 5, plain),
            section(".debug_info", 10, 30, elf::SHF_COMPRESSED),
            section(".zdebug_str", 40, 30, plain),
            section(".text", 0, 50, plain),
            Section { kind: elf::SHT_NOBITS, ..section(".debug_frame", 0, 60, plain) },
            // Damaged: as it stands.
            section(".debug_abbrev", 95, 4, elf::SHF_COMPRESSED),
        ];
        let elf = Elf { image: Image::Memory(bytes), sections, segments: (0, 0) };
        assert_eq!(elf.dwarf_bytes(), 5 + 7_000 + 900 + 4);
    }

    #[test]
    fn damaged_headers_are_errors() {
        assert!(Elf::parse(Image::Memory(Vec::new())).is_err());
        assert!(Elf::parse(Image::Memory(b"\x7fELF".to_vec())).is_err());
        assert!(Elf::parse(Image::Memory(vec![0xff; 4096])).is_err());
    }
}
