//! Program headers of an object that is mapped, read as memory that may vanish meanwhile; numbers in any headers.

use crate::probed::Copied;
use unwind::cfi::Source as _;

/// What the program headers say, in addresses of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Headers {
    /// Address in the process minus address in the file, where the first byte is mapped.
    pub(crate) bias: u64,
    /// The same for the mapping at hand, which can be another copy of a part of the file (V8 maps its builtins twice).
    pub(crate) mapping_bias: u64,
    /// Where the object's code begins to run.
    pub(crate) entry: u64,
    /// `.eh_frame_hdr`: address and bytes; 0 if there is none.
    pub(crate) eh_frame_hdr: u64,
    pub(crate) eh_frame_hdr_length: u64,
    pub(crate) build_id: [u8; 32],
    pub(crate) build_id_length: usize,
    /// Of the program headers, the build id and the beginning of `.eh_frame_hdr`, which depends on all of the code.
    pub(crate) fingerprint: u64,
}

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const MAX_HEADERS: usize = 64;
const HEADER: usize = 56;

/// The number of two bytes at an offset; `None` if there are not as many. So the two that follow.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// The number of four bytes.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The number of eight bytes.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// The table of program headers. Read again for each question: the stack of a host's thread may have no room for a copy of all.
struct Table {
    start: u64,
    count: usize,
}

impl Table {
    fn header(&self, memory: &mut Copied, index: usize) -> Option<[u8; HEADER]> {
        memory.read(self.start.wrapping_add((index * HEADER) as u64))
    }

    /// Up to the first that is not there.
    fn each(&self, memory: &mut Copied) -> impl Iterator<Item = [u8; HEADER]> {
        (0..self.count).map_while(|index| self.header(memory, index))
    }

    fn of_type(&self, memory: &mut Copied, wanted: u32) -> impl Iterator<Item = [u8; HEADER]> {
        self.each(memory).filter(move |h| u32_at(h, 0) == Some(wanted))
    }
}

/// Reads the headers of the 64-bit ELF object whose first byte is mapped at `base`, for a mapping of it at `start` that begins at `offset` in the file.
pub(crate) fn read(base: u64, start: u64, offset_in_file: u64) -> Option<Headers> {
    // Whoever closes the object at this moment may have it.
    let mut memory = Copied::new();
    let file: [u8; 64] = memory.read(base).filter(|file: &[u8; 64]| file.starts_with(b"\x7fELF\x02\x01"))?;
    let offset = u64_at(&file, 32)?;
    let count = (u16_at(&file, 56)? as usize).min(MAX_HEADERS);
    if u16_at(&file, 54)? as usize != HEADER {
        return None;
    }
    let table = Table { start: base.wrapping_add(offset), count };
    if table.each(&mut memory).count() != count {
        return None;
    }
    // The segment with the file's first byte gives the bias.
    let mut first = table.of_type(&mut memory, PT_LOAD).find(|h| u64_at(h, 8) == Some(0));
    if first.is_none() {
        first = table.of_type(&mut memory, PT_LOAD).next();
    }
    let first = first?;
    let bias = base.wrapping_sub(u64_at(&first, 16)?.wrapping_sub(u64_at(&first, 8)?) & !0xfff);
    let entry = bias.wrapping_add(u64_at(&file, 24)?);
    let segment = table.of_type(&mut memory, PT_LOAD).find(|h| {
        let (offset, size) = (u64_at(h, 8).unwrap_or(0) & !0xfff, u64_at(h, 32).unwrap_or(0));
        offset <= offset_in_file
            && offset_in_file < offset.wrapping_add(size.wrapping_add(0xfff))
            && u32_at(h, 4).is_some_and(|flags| flags & PF_X != 0)
    });
    let mapping_bias = segment.map_or(bias, |h| {
        let svma = u64_at(&h, 16).unwrap_or(0).wrapping_sub(u64_at(&h, 8).unwrap_or(0)).wrapping_add(offset_in_file);
        start.wrapping_sub(svma)
    });
    let mut headers = Headers { bias, mapping_bias, entry, ..Headers::default() };
    if let Some(h) = table.of_type(&mut memory, PT_GNU_EH_FRAME).next() {
        let svma = u64_at(&h, 16)?;
        headers.eh_frame_hdr = bias.wrapping_add(svma);
        headers.eh_frame_hdr_length = u64_at(&h, 40)?;
    }
    for note in 0..count {
        let Some(note) = table.header(&mut memory, note).filter(|h| u32_at(h, 0) == Some(PT_NOTE)) else { continue };
        if read_build_id(&mut memory, bias.wrapping_add(u64_at(&note, 16)?), u64_at(&note, 40)?, &mut headers).is_some()
        {
            break;
        }
    }
    let mut hash = 0_u64;
    let mut mix = |bytes: &[u8]| {
        for word in bytes.chunks(8) {
            let word = word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            hash = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    };
    table.each(&mut memory).for_each(|header| mix(&header));
    mix(&headers.build_id);
    // A page at most: whoever closed an object may have mapped less there.
    for at in (0..headers.eh_frame_hdr_length.min(1024)).step_by(8) {
        mix(&memory.read::<8>(headers.eh_frame_hdr.wrapping_add(at)).unwrap_or_default());
    }
    headers.fingerprint = hash;
    Some(headers)
}

fn read_build_id(memory: &mut Copied, address: u64, length: u64, headers: &mut Headers) -> Option<()> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let (mut at, end) = (address, address.checked_add(length.min(4096))?);
    while at.checked_add(12)? <= end {
        let head: [u8; 12] = memory.read(at)?;
        let (name, content, kind) = (u32_at(&head, 0)?, u32_at(&head, 4)?, u32_at(&head, 8)?);
        let start = at.checked_add(12)?.checked_add(u64::from(name).next_multiple_of(4))?;
        if kind == NT_GNU_BUILD_ID && memory.read(at.checked_add(12)?) == Some(*b"GNU\0") {
            let mut build_id = [0; 32];
            let length = (content as usize).min(build_id.len());
            for (byte, at) in build_id.get_mut(..length)?.iter_mut().zip(start..) {
                [*byte] = memory.read(at)?;
            }
            (headers.build_id, headers.build_id_length) = (build_id, length);
            return Some(());
        }
        at = start.checked_add(u64::from(content).next_multiple_of(4))?;
    }
    None
}
