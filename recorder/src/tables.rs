//! Builds unwind tables for the capture side, which cannot: it does not allocate.
//!
//! Called from: ordinary threads, and allocation hooks under their guard (never a handler). A hook's errno is the host's, so it is put back.
//!
//! # Safety
//! The C library's `errno` of the calling thread is read and written, nothing else.
#![allow(unsafe_code)]

use capture::modules::{self, Builder, Object, Publish};
use capture::probed::Probed;
use flate2::read::ZlibDecoder;
use object::read::elf::{ElfFile64, SectionHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ReadCache};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use unwind::arch::Registers;
use unwind::build::{OwnedTable, Section, build_piece, build_with_debug_frame};
use unwind::cfi::Header;

/// Installs the builder, once.
pub(crate) fn install() {
    static BUILDER: Builder = Builder { piece, file };
    modules::set_builder(&BUILDER);
}

fn piece(header: &Header, bias: u64, from: u64, to: u64, publish: &mut Publish<'_>) {
    let (table, _) = build_piece::<Registers>(header, Probed::new(), bias, (from, to));
    publish(&table.pcs, &table.rules, &table.interned);
}

fn file(object: &Object, publish: &mut Publish<'_>) {
    let _errno = Errno::keep();
    if let Some(table) = path_of(object.start).and_then(|path| table_of(&path, object)) {
        publish(&table.pcs, &table.rules, &table.interned);
    }
}

/// Puts errno back.
struct Errno(i32);

impl Errno {
    fn keep() -> Self {
        // SAFETY: the address of the calling thread's errno.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Path of the file that is mapped at an address.
fn path_of(start: u64) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let from = line.split('-').next().and_then(|from| u64::from_str_radix(from, 16).ok());
        from == Some(start)
    })?;
    line.find('/').and_then(|at| line.get(at..)).map(str::to_owned)
}

/// Frame information larger than this is not believed.
const MOST_BYTES: u64 = 1 << 30;

fn table_of(path: &str, wanted: &Object) -> Option<OwnedTable> {
    let file = File::open(path).ok()?;
    // Another file may have taken the place of the one that is mapped.
    let metadata = file.metadata().ok().filter(|metadata| metadata.is_file() && metadata.ino() == wanted.inode)?;
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let section = |name: &str| {
        let section = elf.section_by_name(name)?;
        // A file that only holds debugging information has the loaded sections by name alone.
        let is_there = section.elf_section_header().sh_type(elf.endian()) != object::elf::SHT_NOBITS;
        (is_there && section.size() <= MOST_BYTES.min(metadata.len().saturating_mul(32))).then_some(section)
    };
    let eh_frame = section(".eh_frame").filter(|_| wanted.needs_eh_frame);
    let eh_frame = eh_frame.and_then(|section| Some((section.data().ok()?, section.address())));
    let debug_frame = section(".debug_frame").or_else(|| section(".zdebug_frame")).and_then(|section| {
        let data = section.compressed_data().ok()?;
        match data.format {
            object::CompressionFormat::None => Some(data.data.to_vec()),
            object::CompressionFormat::Zlib => {
                let mut bytes = Vec::new();
                ZlibDecoder::new(data.data).take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
                Some(bytes)
            }
            _ => None,
        }
    });
    let eh_frame = eh_frame.map(|(bytes, address)| (Section { bytes, address }, 0));
    let (table, _) = build_with_debug_frame::<Registers>(eh_frame, debug_frame.as_deref().unwrap_or_default());
    Some(table)
}
