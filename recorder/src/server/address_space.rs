//! Names of addresses of this process, for `/debug/pprof/symbol`.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use profile::{AddressKind, Frame, Mapping, MappingId, Profile};
use symbolize::{Detail, Options};

/// The name of the function at each address, in the order given.
pub(super) fn names(addresses: &[u64]) -> Vec<Option<String>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut profile = Profile { mappings: mappings(&maps, &link_address), ..Profile::default() };
    let frames: Vec<Option<Frame>> = addresses.iter().map(|avma| frame_at(&profile.mappings, *avma)).collect();
    for frame in frames.iter().flatten() {
        profile.stacks.frame_id(frame.clone());
    }
    let options = Options { detail: Detail::Names, perf_map_pids: vec![std::process::id()], ..Options::default() };
    let symbols = symbolize::symbolize(&profile, &options).symbols;
    frames.iter().map(|frame| Some(symbols.get(frame.as_ref()?).last()?.name.to_string())).collect()
}

fn frame_at(mappings: &[Mapping], avma: u64) -> Option<Frame> {
    let index = mappings.iter().position(|mapping| (mapping.start..mapping.end).contains(&avma))?;
    let mapping = Some(MappingId(u32::try_from(index).ok()?));
    Some(Frame::Address { mapping, svma: mappings[index].to_svma(avma), kind: AddressKind::Instruction })
}

/// The executable mappings of files in the text of `/proc/PID/maps`. `link_address` tells where a file's first segment wants to lie.
fn mappings(maps: &str, link_address: &dyn Fn(&Path) -> Option<u64>) -> Vec<Mapping> {
    let mut biases: HashMap<&str, u64> = HashMap::new();
    let mut mappings = Vec::new();
    for line in maps.lines() {
        let Some(Line { start, end, executable, file_offset, path }) = Line::parse(line) else { continue };
        if file_offset == 0
            && !biases.contains_key(path)
            && let Some(linked) = link_address(Path::new(path))
        {
            biases.insert(path, start.wrapping_sub(linked));
        }
        if let Some(&bias) = biases.get(path).filter(|_| executable) {
            mappings.push(Mapping { start, end, file_offset, bias, path: path.to_owned(), build_id: Vec::new() });
        }
    }
    mappings
}

struct Line<'a> {
    start: u64,
    end: u64,
    executable: bool,
    file_offset: u64,
    path: &'a str,
}

impl<'a> Line<'a> {
    /// `START-END PERMISSIONS OFFSET DEVICE INODE    PATH`, of files alone.
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let permissions = words.next()?;
        let file_offset = words.next()?;
        let path = words.nth(2)?.trim_start();
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            executable: permissions.as_bytes().get(2) == Some(&b'x'),
            file_offset: u64::from_str_radix(file_offset, 16).ok()?,
            path: path.starts_with('/').then_some(path)?,
        })
    }
}

/// Page-aligned address of the first loaded segment of a 64-bit little-endian ELF file, as it was linked.
fn link_address(path: &Path) -> Option<u64> {
    const PAGE: u64 = 4096;
    const PROGRAM_HEADER: u64 = 56;
    const LOAD: u32 = 1;
    let file = File::open(path).ok()?;
    let mut header = [0_u8; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let entries = u16::from_le_bytes(header[56..58].try_into().ok()?);
    (0..u64::from(entries)).find_map(|i| {
        let mut entry = [0_u8; PROGRAM_HEADER as usize];
        file.read_exact_at(&mut entry, table.checked_add(i * PROGRAM_HEADER)?).ok()?;
        let kind = u32::from_le_bytes(entry[..4].try_into().ok()?);
        let address = u64::from_le_bytes(entry[16..24].try_into().ok()?);
        (kind == LOAD).then_some(address & !(PAGE - 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
555555554000-555555556000 r--p 00000000 fe:01 11    /usr/bin/a b
555555556000-555555558000 r-xp 00002000 fe:01 11    /usr/bin/a b
555555558000-555555559000 rw-p 00004000 fe:01 11    /usr/bin/a b
7ffff7c00000-7ffff7c01000 r-xp 00001000 fe:01 12    /no/first/segment.so
7ffff7d00000-7ffff7d01000 r-xp 00000000 00:00 0
7ffff7fc5000-7ffff7fc7000 r-xp 00000000 00:00 0     [vdso]
junk
-
";

    #[test]
    fn executable_mappings_of_files_get_the_bias_of_their_first_segment() {
        let mappings = mappings(MAPS, &|_| Some(0x1000));
        assert_eq!(mappings.len(), 1, "{mappings:?}");
        assert_eq!(mappings[0].path, "/usr/bin/a b");
        assert_eq!((mappings[0].start, mappings[0].file_offset), (0x5555_5555_6000, 0x2000));
        assert_eq!(mappings[0].bias, 0x5555_5555_3000);
    }

    #[inline(never)]
    fn known_function() -> u32 {
        std::hint::black_box(std::process::id())
    }

    #[test]
    fn a_function_of_this_process_is_named() {
        known_function();
        let names = names(&[known_function as *const () as usize as u64, 0x10]);
        assert!(names[0].as_deref().is_some_and(|name| name.ends_with("known_function")), "{names:?}");
        assert_eq!(names[1], None);
    }
}
