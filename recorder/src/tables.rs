//! Builds unwind tables for the capture side, which cannot: it does not allocate.
//!
//! Called from: ordinary threads, and allocation hooks under their guard (never a handler). Files are read by raw system calls: the C library's functions are
//! cancellation points, where malloc has none, and change errno.
//!
//! # Safety
//! Parts of a file are borrowed from `Parts`, which keeps each as it was read until it is dropped itself.
#![allow(unsafe_code)]

use capture::maps;
use capture::modules::{self, Builder, Object, Publish};
use capture::probed::{Copied, Probed};
use capture::syscall::File;
use capture::thread;
use object::read::elf::{ElfFile64, SectionHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ReadRef};
use std::cell::RefCell;
use std::ops::Range;
use unwind::arch::Registers;
use unwind::build::{OwnedTable, Section, build_piece, build_with_debug_frame};
use unwind::cfi::Header;

/// Installs the builder, once.
pub(crate) fn install() {
    static BUILDER: Builder = Builder { piece, file };
    modules::set_builder(&BUILDER);
}

fn piece(header: &Header, bias: u64, from: u64, to: u64, publish: &mut Publish<'_>) {
    let range = (from, to);
    // From outside the object may be taken away meanwhile.
    let (table, _) = if thread::is_ignored() {
        build_piece::<Registers>(header, Copied::new(), bias, range)
    } else {
        build_piece::<Registers>(header, Probed::new(), bias, range)
    };
    publish(&table.pcs, &table.rules, &table.interned);
}

fn file(object: &Object, publish: &mut Publish<'_>) {
    if let Some(table) = path_of(object.start).and_then(|path| table_of(&path, object)) {
        publish(&table.pcs, &table.rules, &table.interned);
    }
}

/// Path of the file that is mapped at an address, with a terminating zero.
fn path_of(start: u64) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    maps::each(|line| {
        if line.start == start && line.path.starts_with(b"/") {
            path.extend_from_slice(line.path);
            path.push(0);
        }
        line.start < start
    });
    (!path.is_empty()).then_some(path)
}

/// Frame information larger than this is not believed.
const MOST_BYTES: u64 = 1 << 30;

fn table_of(path: &[u8], wanted: &Object) -> Option<OwnedTable> {
    let file = File::open(path, File::READ_AT_ONCE).ok()?;
    // Another file may have taken the place of the one that is mapped.
    let status = file.status().ok().filter(|status| status.is_regular && status.inode == wanted.inode)?;
    let parts = Parts { file, length: status.length, read: RefCell::default() };
    let elf = ElfFile64::<Endianness, _>::parse(&parts).ok()?;
    let section = |name: &str| {
        let section = elf.section_by_name(name)?;
        // A file that only holds debugging information has the loaded sections by name alone.
        let is_there = section.elf_section_header().sh_type(elf.endian()) != object::elf::SHT_NOBITS;
        (is_there && section.size() <= MOST_BYTES.min(status.length.saturating_mul(32))).then_some(section)
    };
    let eh_frame = section(".eh_frame").filter(|_| wanted.needs_eh_frame);
    let eh_frame = eh_frame.and_then(|section| Some((section.data().ok()?, section.address())));
    let debug_frame = section(".debug_frame").or_else(|| section(".zdebug_frame")).and_then(|section| {
        let data = section.compressed_data().ok()?;
        match data.format {
            object::CompressionFormat::None => Some(data.data.to_vec()),
            object::CompressionFormat::Zlib => {
                // Nothing beyond what the section says, and no library that allocates by pointers to functions.
                let most = usize::try_from(data.uncompressed_size.min(MOST_BYTES)).ok()?;
                miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(data.data, most).ok()
            }
            _ => None,
        }
    });
    let eh_frame = eh_frame.map(|(bytes, address)| (Section { bytes, address }, 0));
    let (table, _) = build_with_debug_frame::<Registers>(eh_frame, debug_frame.as_deref().unwrap_or_default());
    Some(table)
}

/// Parts of a file, each read when it is first asked for. (`object`'s own cache keys them with random numbers of std: a thread-local behind
/// `__tls_get_addr`, which allocates from the host in a program that opened many libraries.)
struct Parts {
    file: File,
    length: u64,
    read: RefCell<Vec<Part>>,
}

struct Part {
    offset: u64,
    /// From `Box::into_raw`.
    bytes: *mut [u8],
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: made by `Parts::part`; whoever borrowed it borrowed the `Parts` that is being dropped.
        drop(unsafe { Box::from_raw(self.bytes) });
    }
}

fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> Option<()> {
    while !buffer.is_empty() {
        let read = file.read_at(buffer, offset).ok().filter(|read| *read > 0)?;
        buffer = buffer.get_mut(read..)?;
        offset += read as u64;
    }
    Some(())
}

impl Parts {
    fn part(&self, offset: u64, size: u64) -> Option<&[u8]> {
        offset.checked_add(size).filter(|end| *end <= self.length)?;
        let mut read = self.read.borrow_mut();
        let known = read.iter().find(|part| part.offset == offset && part.bytes.len() as u64 == size);
        let bytes = match known {
            Some(part) => part.bytes,
            None => {
                let size = usize::try_from(size).ok()?;
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(size).ok()?;
                bytes.resize(size, 0);
                read_exact_at(&self.file, &mut bytes, offset)?;
                let bytes = Box::into_raw(bytes.into_boxed_slice());
                read.push(Part { offset, bytes });
                bytes
            }
        };
        // SAFETY: parts are freed with `self` alone, and never written again.
        Some(unsafe { &*bytes })
    }
}

impl<'a> ReadRef<'a> for &'a Parts {
    fn len(self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size == 0 { Ok(&[]) } else { self.part(offset, size).ok_or(()) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        // Names of sections: short ones.
        const MOST: u64 = 256;
        let end = range.end.min(self.length).min(range.start.saturating_add(MOST));
        let bytes = self.read_bytes_at(range.start, end.checked_sub(range.start).ok_or(())?)?;
        let length = bytes.iter().position(|byte| *byte == delimiter).ok_or(())?;
        bytes.get(..length).ok_or(())
    }
}
