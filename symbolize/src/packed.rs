//! The small symbol table that some distributions leave in stripped files: `.gnu_debugdata`, an xz-packed ELF file.

use std::io::{Cursor, Read};

use lzma_rust2::XzReader;

use crate::elf::Elf;
use crate::image::Image;

/// Largest packed and unpacked section that is looked at.
const PACKED: u64 = 64 << 20;
const UNPACKED: u64 = 256 << 20;
/// Memory that the decoder may take.
const DECODER_KIB: u32 = 128 << 10;

/// The ELF file inside `.gnu_debugdata`, or what is wrong with it; `None` if there is no such section.
pub(crate) fn unpack(elf: &Elf) -> Option<Result<Elf, &'static str>> {
    let section = elf.section(".gnu_debugdata")?;
    let Some(packed) = elf.bytes(section, PACKED) else {
        return Some(Err("its .gnu_debugdata cannot be read"));
    };
    let mut bytes = Vec::new();
    let mut reader = XzReader::new_mem_limit(Cursor::new(packed), true, DECODER_KIB).take(UNPACKED);
    Some(match reader.read_to_end(&mut bytes) {
        Ok(_) => Elf::parse(Image::Memory(bytes)).map_err(|_| "its .gnu_debugdata holds no ELF file"),
        Err(_) => Err("its .gnu_debugdata cannot be unpacked"),
    })
}
