//! Loaded objects as the dynamic linker left them: the symbols that they define, and the slots that their imports are called through.
//!
//! Called from: the start of a preloaded process, hooks and the front of `dlsym`, one thread at a time (the caller sees to that); never from a handler. Everything is found
//! from `/proc/self/maps` and the objects' own headers, without the dynamic linker and its lock. What is read is probed; a slot is written by one
//! atomic store.
//!
//! # Safety
//! A slot is written in an object that is mapped as the list said, and whose relocations are done (`Image::is_settled`). Only an object that is unmapped between the list and the
//! store could fault: the caller keeps `dlclose` away meanwhile.
#![allow(unsafe_code)]

use crate::mapping::Mapping;
use crate::maps;
use crate::probed::{Copied, Probed};
use crate::syscall::{mm, protect};
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::{AtomicUsize, Ordering};
use unwind::cfi::Source;

mod symbols;
#[cfg(test)]
mod tests;

pub use symbols::Names;

const PAGE: u64 = 4096;
/// Most mappings that are looked at.
const MOST: usize = 16384;
/// Most objects.
const MOST_OBJECTS: usize = 4096;
/// Bytes of an entry of a relocation table.
const RELOCATION: u64 = 24;

/// One mapping.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Area {
    start: u64,
    end: u64,
    inode: u64,
    /// [`WRITABLE`], [`EXECUTABLE`], [`FIRST`].
    flags: u64,
}

const WRITABLE: u64 = 1;
const EXECUTABLE: u64 = 2;
/// Begins with the file's first byte.
const FIRST: u64 = 4;

/// The mappings of the process and the objects among them, at one moment.
#[derive(Debug)]
pub struct Images {
    areas: List<Area>,
    objects: List<Object>,
}

/// Values in a mapping of their own, up to a number.
#[derive(Debug)]
struct List<T: Copy> {
    memory: Mapping,
    most: usize,
    count: usize,
    of: PhantomData<T>,
}

impl<T: Copy> List<T> {
    fn new(most: usize) -> Option<Self> {
        Some(Self { memory: Mapping::new(most * size_of::<T>())?, most, count: 0, of: PhantomData })
    }

    fn push(&mut self, value: T) {
        if self.count < self.most {
            // SAFETY: below the number that the mapping has room for, and aligned.
            unsafe { self.memory.address().cast::<T>().add(self.count).write(value) };
            self.count += 1;
        }
    }

    fn all(&self) -> &[T] {
        // SAFETY: so many were written.
        unsafe { core::slice::from_raw_parts(self.memory.address().cast::<T>(), self.count) }
    }
}

impl Images {
    /// Reads mappings and headers. `None` if the kernel refuses.
    pub fn read() -> Option<Self> {
        let mut areas = List::new(MOST)?;
        let whole = maps::each(|line| {
            let flags = [(line.writable, WRITABLE), (line.executable, EXECUTABLE), (line.offset == 0, FIRST)];
            let flags = flags.iter().filter(|(is, _)| *is).fold(0, |all, (_, flag)| all | flag);
            areas.push(Area { start: line.start, end: line.end, inode: line.inode, flags });
            true
        });
        let mut objects = List::new(MOST_OBJECTS)?;
        let first = |area: &&Area| area.flags & FIRST != 0 && area.inode != 0;
        areas
            .all()
            .iter()
            .filter(first)
            .filter_map(|area| Object::read(areas.all(), area))
            .for_each(|o| objects.push(o));
        whole.then_some(Self { areas, objects })
    }

    fn area(&self, address: u64) -> Option<&Area> {
        let areas = self.areas.all();
        areas.get(areas.partition_point(|area| area.end <= address)).filter(|area| area.start <= address)
    }

    fn image<'a>(&'a self, object: &'a Object) -> Image<'a> {
        Image { all: self, object }
    }

    /// Every object that is mapped to be run.
    pub fn each(&self) -> impl Iterator<Item = Image<'_>> {
        self.objects.all().iter().map(|object| self.image(object))
    }

    /// The object whose first byte is at an address.
    pub fn at(&self, base: u64) -> Option<Image<'_>> {
        self.each().find(|image| image.base == base)
    }

    /// The object that an address lies in.
    pub fn of(&self, address: u64) -> Option<Image<'_>> {
        self.each().find(|image| image.contains(address))
    }
}

/// One loaded object.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    all: &'a Images,
    object: &'a Object,
}

impl Deref for Image<'_> {
    type Target = Object;
    fn deref(&self) -> &Object {
        self.object
    }
}

/// What an object's headers say.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    base: u64,
    end: u64,
    /// Address in the process minus address in the file.
    bias: u64,
    symbols: u64,
    strings: u64,
    hash: u64,
    /// `DT_VERSYM`, if it has one.
    versions: u64,
    /// Address and bytes of `DT_JMPREL` and of `DT_RELA`.
    tables: [(u64, u64); 2],
    linkage: u64,
    /// Whether its imports are looked for in itself first.
    is_symbolic: bool,
    /// What becomes read-only when the relocations are done.
    relro: (u64, u64),
    /// The last byte that can be written, before that at least.
    last_of_data: u64,
}

/// An import of an object.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// Where the function's address stands.
    address: u64,
    symbol: u32,
    is_jump: bool,
    /// What stands there.
    pub value: u64,
}

/// An import of an object that is listed.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    image: &'a Image<'a>,
    import: Import,
}

impl Deref for Slot<'_> {
    type Target = Import;
    fn deref(&self) -> &Import {
        &self.import
    }
}

fn u32_of(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_of(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

impl Object {
    /// The object whose first byte is at an address, if it has been made ready to run.
    pub fn at(base: u64) -> Option<Self> {
        let mut memory = Probed::new();
        let (mut object, section) = Self::headers(&mut memory, base)?;
        object.read_dynamic(&mut memory, section)?;
        Some(object)
    }

    fn read(areas: &[Area], first: &Area) -> Option<Self> {
        // Somebody may be closing it.
        let mut memory = Copied::new();
        let (mut object, section) = Self::headers(&mut memory, first.start)?;
        // A file that is mapped as data looks like an object too, but none of it may be run.
        let is_run =
            |area: &Area| area.flags & EXECUTABLE != 0 && area.inode == first.inode && object.contains(area.start);
        let from = areas.partition_point(|area| area.start < object.base);
        if !areas.iter().skip(from).take_while(|area| area.start < object.end).any(is_run) {
            return None;
        }
        object.read_dynamic(&mut memory, section)?;
        Some(object)
    }

    /// An object without what its dynamic section says, and where that is.
    fn headers(memory: &mut impl Source, base: u64) -> Option<(Self, (u64, u64))> {
        const PF_W: u32 = 2;
        const PT_LOAD: u32 = 1;
        const PT_DYNAMIC: u32 = 2;
        const PT_GNU_RELRO: u32 = 0x6474_e552;
        let file: [u8; 64] = memory.read(base).filter(|file: &[u8; 64]| file.starts_with(b"\x7fELF\x02\x01"))?;
        let (headers, count) = (base.wrapping_add(u64_of(&file, 32)?), u64::from(u32_of(&file, 56)? & 0xffff).min(64));
        let (mut bias, mut end, mut data, mut dynamic, mut relro) = (None, 0_u64, 0_u64, None, (0, 0));
        for i in 0..count {
            let header: [u8; 56] = memory.read(headers.wrapping_add(i * 56))?;
            let (svma, bytes) = (u64_of(&header, 16)?, u64_of(&header, 40)?);
            match u32_of(&header, 0)? {
                PT_LOAD => {
                    bias = bias.or(Some(base.wrapping_sub(svma & !(PAGE - 1))));
                    end = svma.wrapping_add(bytes);
                    if u32_of(&header, 4)? & PF_W != 0 {
                        data = end.wrapping_sub(1);
                    }
                }
                PT_DYNAMIC => dynamic = Some((svma, bytes)),
                PT_GNU_RELRO => relro = (svma, bytes),
                _ => {}
            }
        }
        let (bias, (dynamic, length)) = (bias?, dynamic?);
        let end = bias.wrapping_add(end);
        let object = Self {
            base,
            end,
            bias,
            symbols: 0,
            strings: 0,
            hash: 0,
            versions: 0,
            tables: [(0, 0); 2],
            linkage: 0,
            is_symbolic: false,
            // As the dynamic linker rounds it: whole pages, downwards.
            relro: (
                bias.wrapping_add(relro.0) & !(PAGE - 1),
                bias.wrapping_add(relro.0.wrapping_add(relro.1)) & !(PAGE - 1),
            ),
            last_of_data: bias.wrapping_add(data),
        };
        (end > base).then_some((object, (bias.wrapping_add(dynamic), length.min(1 << 16))))
    }

    fn read_dynamic(&mut self, memory: &mut impl Source, (section, bytes): (u64, u64)) -> Option<()> {
        const DF_SYMBOLIC: u64 = 2;
        let mut relative = 0;
        for at in (section..section.checked_add(bytes)?).step_by(16) {
            let entry: [u8; 16] = memory.read(at)?;
            let (tag, value) = (u64_of(&entry, 0)?, u64_of(&entry, 8)?);
            // The dynamic linker adds the bias in place in some objects and not in others.
            let address = if value < self.base { value.wrapping_add(self.bias) } else { value };
            let [jumps, others] = &mut self.tables;
            match tag {
                0 => break,
                2 => jumps.1 = value,
                3 => self.linkage = address,
                5 => self.strings = address,
                6 => self.symbols = address,
                7 => others.0 = address,
                8 => others.1 = value,
                16 => self.is_symbolic = true,
                30 => self.is_symbolic |= value & DF_SYMBOLIC != 0,
                23 => jumps.0 = address,
                0x6fff_fef5 => self.hash = address,
                0x6fff_fff0 => self.versions = address,
                0x6fff_fff9 => relative = value,
                _ => {}
            }
        }
        // So many come first that name no symbol.
        let [_, (table, bytes)] = &mut self.tables;
        let skipped = relative.saturating_mul(RELOCATION).min(*bytes);
        (*table, *bytes) = (table.wrapping_add(skipped), *bytes - skipped);
        Some(())
    }

    /// Calls `visit` for every slot that holds the address of a function.
    pub fn imports(&self, mut visit: impl FnMut(&Import)) {
        const GLOB_DAT: u32 = 6;
        const JUMP_SLOT: u32 = 7;
        let (mut memory, mut values) = (Probed::new(), Probed::new());
        for (table, bytes) in self.tables {
            for at in (table..table.saturating_add(bytes)).step_by(RELOCATION as usize) {
                let Some(entry) = memory.read::<24>(at) else { break };
                let (Some(offset), Some(kind), Some(symbol)) =
                    (u64_of(&entry, 0), u32_of(&entry, 8), u32_of(&entry, 12))
                else {
                    break;
                };
                let address = self.bias.wrapping_add(offset);
                if (kind != GLOB_DAT && kind != JUMP_SLOT) || !address.is_multiple_of(8) || !self.contains(address) {
                    continue;
                }
                if let Some(value) = values.read(address).map(u64::from_le_bytes) {
                    visit(&Import { address, symbol, is_jump: kind == JUMP_SLOT, value });
                }
            }
        }
    }

    /// Whether the object's imports are looked for in itself first.
    pub fn is_symbolic(&self) -> bool {
        self.is_symbolic
    }

    /// Address of the object's first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Whether an address lies in the object.
    pub fn contains(&self, address: u64) -> bool {
        (self.base..self.end).contains(&address)
    }
}

impl Image<'_> {
    /// Whether the dynamic linker has done with the object: its data is there (before, a mapping of the whole file is in its place), and what is made read-only in the end is so.
    pub fn is_settled(&self) -> bool {
        let (start, end) = self.relro;
        let is_writable = |at: u64| self.all.area(at).is_some_and(|area| area.flags & WRITABLE != 0);
        let is_there = (start..end).contains(&self.last_of_data) || is_writable(self.last_of_data);
        is_there && (start >= end || !is_writable(start))
    }

    /// Whether the list of objects that begins with `head` has this one, which binds functions when they are first called. (Other lists are those of `dlmopen` and of auditors.)
    pub fn is_listed_after(&self, head: u64) -> bool {
        const BEFORE: u64 = 32;
        let mut memory = Probed::new();
        let mut next = |address: u64| memory.read(address);
        let Some(mut object) = next(self.linkage.wrapping_add(8)).map(u64::from_le_bytes) else { return false };
        for _ in 0..4096 {
            if object == head {
                return true;
            }
            match next(object.wrapping_add(BEFORE)).map(u64::from_le_bytes) {
                Some(before) if before != 0 => object = before,
                _ => return false,
            }
        }
        false
    }

    /// Calls `visit` for every slot that holds the address of a function; names are read with what it gets besides.
    pub fn slots(&self, mut visit: impl FnMut(&Slot<'_>, &mut Names)) {
        let mut names = Names::default();
        self.imports(|import| visit(&Slot { image: self, import: *import }, &mut names));
    }
}

impl Slot<'_> {
    /// Whether the function is looked up when it is first called: the slot leads back into the object's own linkage table.
    pub fn is_unbound(&self) -> bool {
        self.is_jump
            && self.image.contains(self.value)
            && self.image.all.area(self.value).is_some_and(|area| area.flags & EXECUTABLE != 0)
    }

    /// The function's name; `None` if it is a long one.
    pub fn name<'n>(&self, names: &'n mut Names) -> Option<&'n [u8]> {
        names.read(self.image, self.symbol)
    }

    /// Puts another address there, if what was read still stands there. A read-only page is made writable for that moment.
    ///
    /// # Safety
    /// The object's relocations are done, nobody closes it meanwhile, and the function at `new` does what the one before did.
    pub unsafe fn replace(&self, new: u64) {
        let Some(area) = self.image.all.area(self.address) else { return };
        let page = self.address & !(PAGE - 1);
        let locked = area.flags & WRITABLE == 0;
        if locked && (area.flags & EXECUTABLE != 0 || !allow(page, mm::READ_WRITE)) {
            return;
        }
        // SAFETY: the page is mapped and writable, and the address is that of an aligned word, which others only read or bind at the same time.
        let slot = unsafe { AtomicUsize::from_ptr(self.address as *mut usize) };
        let _ = slot.compare_exchange(self.value as usize, new as usize, Ordering::AcqRel, Ordering::Relaxed);
        if locked {
            allow(page, mm::READ);
        }
    }
}

fn allow(page: u64, protection: usize) -> bool {
    // SAFETY: the page holds slots that the dynamic linker filled in and that nobody writes any more; reading stays possible throughout.
    unsafe { protect(page, PAGE as usize, protection).is_ok() }
}
